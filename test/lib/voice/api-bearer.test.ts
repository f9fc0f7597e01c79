import { beforeEach, describe, expect, it } from 'vitest';
import type { Upstream, UpstreamRequest } from '../../../lib/host/upstream.ts';
import { openApiBearers } from '../../../lib/voice/api-bearer.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { memoryStores } from '../../support/states.ts';

const BASE = 'http://api.example/api';

/** An API server that accepts some bearers, at once or once `release` is called. */
function apiServer(...accepted: string[]) {
  const requests: UpstreamRequest[] = [];
  let held: Promise<void> | undefined;
  let release = () => {};
  const state = { accepted: new Set(accepted), acceptsAll: false, isSilent: false };
  const upstream: Upstream = async (request) => {
    requests.push(request);
    if (state.isSilent) await new Promise((_resolve, reject) => request.signal.addEventListener('abort', reject));
    await held;
    const token = request.headers.authorization?.replace('Bearer ', '') ?? '';
    const status = state.acceptsAll || state.accepted.has(token) ? 200 : 401;
    return { status, headers: {}, body: (async function* () {})() };
  };
  return Object.assign(state, {
    upstream,
    requests,
    hold() {
      held = new Promise((resolve) => {
        release = resolve;
      });
    },
    release: () => release(),
  });
}

let clock: TestClock;
beforeEach(() => {
  clock = createTestClock();
});

async function open(api: ReturnType<typeof apiServer>, { stores = memoryStores(), at = clock } = {}) {
  const log = createTestLog();
  const store = stores.open('voice-callers');
  const bearers = await openApiBearers({ base: BASE, upstream: api.upstream, store, clock: at, log });
  return { bearers, stores, store, log };
}

const fails = async (bearers: Awaited<ReturnType<typeof open>>['bearers'], times: number, caller: string) => {
  for (let at = 0; at < times; at++) expect(await bearers.isValid(`wrong ${at}`, caller)).toBe(false);
};

const limited = { kind: 'rate-limited', retryAfter: expect.any(Number) };

describe('bearers of the API server (contract 05 §2)', () => {
  it('asks for the list of models, with the bearer', async () => {
    const api = apiServer('key');
    const { bearers } = await open(api);
    expect(await bearers.isValid('key', 'peer')).toBe(true);
    expect(api.requests[0]).toMatchObject({
      method: 'GET',
      url: 'http://api.example/api/v1/models',
      headers: { authorization: 'Bearer key' },
    });
  });

  it('remembers a valid bearer for a minute, and an invalid one not at all', async () => {
    const api = apiServer('key');
    const { bearers } = await open(api);
    for (const wait of [0, 30_000, 29_999]) {
      clock.advance(wait);
      expect(await bearers.isValid('key', 'peer')).toBe(true);
    }
    expect(api.requests).toHaveLength(1);
    // Use does not lengthen it.
    clock.advance(1);
    api.accepted.clear();
    expect(await bearers.isValid('key', 'peer')).toBe(false);
    api.accepted.add('key');
    expect(await bearers.isValid('key', 'peer')).toBe(true);
    expect(api.requests).toHaveLength(3);
  });

  it('does not send what a header cannot carry', async () => {
    const api = apiServer();
    const { bearers } = await open(api);
    expect(await bearers.isValid('kéy', 'peer')).toBe(false);
    expect(await bearers.isValid('key\u0000', 'peer')).toBe(false);
    expect(api.requests).toHaveLength(0);
  });

  it('gives up after five seconds, and closes the call', async () => {
    const api = apiServer('key');
    api.isSilent = true;
    const { bearers } = await open(api);
    const answer = bearers.isValid('key', 'peer');
    await clock.advanceAsync(4_999);
    expect(api.requests[0]?.signal.aborted).toBe(false);
    await clock.advanceAsync(1);
    expect(await answer).toBe(false);
    expect(api.requests[0]?.signal.aborted).toBe(true);
  });

  it('asks once for calls at the same time, which fail once', async () => {
    const api = apiServer();
    const { bearers } = await open(api);
    for (let round = 0; round < 30; round++) {
      const answers = Array.from({ length: 5 }, () => bearers.isValid('wrong', 'peer'));
      expect(await Promise.all(answers)).toEqual(Array(5).fill(false));
    }
    expect(api.requests).toHaveLength(30);
    await expect(bearers.isValid('wrong', 'peer')).rejects.toMatchObject(limited);
  });

  it('limits failures per caller, until a minute after the first of them', async () => {
    const api = apiServer('key', 'other');
    const { bearers } = await open(api);
    await fails(bearers, 1, 'peer');
    clock.advance(10_000);
    await fails(bearers, 29, 'peer');
    await expect(bearers.isValid('key', 'peer')).rejects.toMatchObject({ ...limited, retryAfter: 50 });
    expect(await bearers.isValid('other', 'another peer')).toBe(true);
    expect(await bearers.isValid('other', 'peer')).toBe(true);
    clock.advance(50_000);
    expect(await bearers.isValid('key', 'peer')).toBe(true);
    await fails(bearers, 1, 'peer');
    await expect(bearers.isValid('wrong', 'peer')).rejects.toMatchObject(limited);
  });

  it('successes do not count, however many', async () => {
    const keys = Array.from({ length: 100 }, (_, at) => `key ${at}`);
    const { bearers } = await open(apiServer(...keys));
    for (const key of keys) expect(await bearers.isValid(key, 'peer')).toBe(true);
  });

  it('bearers at the same time are no way round the limit', async () => {
    const api = apiServer();
    api.hold();
    const { bearers } = await open(api);
    const answers = Array.from({ length: 60 }, (_, at) =>
      bearers.isValid(`wrong ${at}`, 'peer').catch(({ kind }) => kind),
    );
    await expect.poll(() => api.requests.length).toBe(30);
    api.release();
    const outcomes = await Promise.all(answers);
    expect(outcomes.filter((outcome) => outcome === false)).toHaveLength(30);
    expect(outcomes.filter((outcome) => outcome === 'rate-limited')).toHaveLength(30);
  });

  it('asks at most 64 times at once, over all callers', async () => {
    const api = apiServer();
    api.hold();
    const { bearers } = await open(api);
    const answers = Array.from({ length: 70 }, (_, at) => bearers.isValid('wrong', `${at}`).catch(({ kind }) => kind));
    // One token is one probe.
    expect(api.requests).toHaveLength(1);
    const others = Array.from({ length: 70 }, (_, at) =>
      bearers.isValid(`wrong ${at}`, `${at}`).catch(({ kind }) => kind),
    );
    expect(api.requests).toHaveLength(64);
    api.release();
    expect((await Promise.all([...answers, ...others])).filter((outcome) => outcome === 'rate-limited')).toHaveLength(
      7,
    );
  });

  it('remembers the 1,024 bearers that were used last', async () => {
    const keys = Array.from({ length: 1024 }, (_, at) => `key ${at}`);
    const api = apiServer('first', ...keys);
    const { bearers } = await open(api);
    for (const key of ['first', ...keys.slice(0, -1), 'first']) await bearers.isValid(key, 'peer');
    expect(api.requests).toHaveLength(1024);
    await bearers.isValid(keys.at(-1) as string, 'peer');
    await bearers.isValid('first', 'peer');
    expect(api.requests).toHaveLength(1025);
    await bearers.isValid(keys[0] as string, 'peer');
    expect(api.requests).toHaveLength(1026);
  });

  it('finds out whether the server accepts any bearer, with one that it has never seen', async () => {
    const api = apiServer('key');
    const { bearers, log } = await open(api);
    expect(await Promise.all([bearers.isOpen(), bearers.isOpen()])).toEqual([false, false]);
    expect(await bearers.isOpen()).toBe(false);
    expect(api.requests).toHaveLength(1);
    api.acceptsAll = true;
    clock.advance(60_000);
    expect(await bearers.isOpen()).toBe(true);
    expect(log.lines.join()).toContain('accepts any bearer');
    const [one, two] = api.requests.map(({ headers }) => headers.authorization);
    expect(one).not.toBe(two);
    expect(log.lines.join()).not.toContain(two?.replace('Bearer ', ''));
    api.acceptsAll = false;
    clock.advance(60_000);
    expect(await bearers.isOpen()).toBe(false);
  });

  it('does not remember that the server did not answer', async () => {
    const api = apiServer();
    const { bearers } = await open({ ...api, upstream: () => Promise.reject(new Error('unreachable')) });
    await expect(bearers.isOpen()).rejects.toMatchObject({ kind: 'unauthorized' });
    await expect(bearers.isOpen()).rejects.toMatchObject({ kind: 'unauthorized' });
  });

  it('a sleeping process forgets nothing, and stores neither bearer nor caller longer than it counts', async () => {
    const api = apiServer('key');
    const { bearers, stores, store } = await open(api);
    await bearers.isValid('key', 'peer');
    await bearers.isOpen();
    await fails(bearers, 30, 'peer');
    await clock.advanceAsync(20_000);
    const before = api.requests.length;
    expect(JSON.stringify(await Promise.all((await store.getKeys()).map((key) => store.getItem(key))))).not.toContain(
      'key',
    );

    // Another monotonic clock, and the wall clock an hour back: nothing lasts longer for it.
    const awake = createTestClock(clock.now() - 3_600_000);
    const second = await open(api, { stores, at: awake });
    expect(await second.bearers.isValid('key', 'peer')).toBe(true);
    expect(await second.bearers.isOpen()).toBe(false);
    await expect(second.bearers.isValid('wrong', 'peer')).rejects.toMatchObject(limited);
    expect(api.requests).toHaveLength(before);
    await awake.advanceAsync(60_000);
    expect(await second.bearers.isValid('wrong', 'peer')).toBe(false);

    const later = createTestClock(clock.now() + 120_000);
    await open(api, { stores, at: later });
    expect(await store.getKeys()).toEqual([]);
  });

  it('skips a stored record that cannot be read', async () => {
    const stores = memoryStores();
    await stores.open('voice-callers').setItem('open', { until: 'soon' } as never);
    const { log, store } = await open(apiServer(), { stores });
    expect(log.lines.join()).toContain('removed a stored record');
    expect(await store.getKeys()).toEqual([]);
  });
});

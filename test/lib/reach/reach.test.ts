import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { createStorage } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { digestOf } from '../../../lib/kit/sha256.ts';
import { windowFrame } from '../../../lib/reach/frames.ts';
import type { OpenLocalEnd, StreamPort } from '../../../lib/reach/host-streams.ts';
import { idOfBytes } from '../../../lib/reach/ids.ts';
import type { HostMessage } from '../../../lib/reach/messages.ts';
import { openReach } from '../../../lib/reach/reach.ts';
import type { ReachRecord, SessionRecord } from '../../../storage/schema.ts';
import { createTestClock } from '../../support/clock.ts';
import { TIMEOUT } from '../../support/limits.ts';
import { createTestLog } from '../../support/log.ts';
import { configOf, fakeHost } from '../pairing/fixtures.ts';
import { DAY, setup } from '../sessions/setup.ts';
import { createScriptedBroker, HOST_TOKEN, type ScriptedBrokerOptions } from './scripted-broker.ts';

const READY = {
  RELAY_SECURE_LINK_ENABLED: '1',
  RELAY_EXPERIMENTAL_REACH_ENABLED: '1',
  RELAY_SECURE_LINK_BROKER_URL: 'wss://reach.example',
  RELAY_SECURE_LINK_BROKER_HOST_TOKEN: HOST_TOKEN,
};

/** A broker that refuses a bootstrap credential with more than one use. */
const ONE_USE: ScriptedBrokerOptions = {
  onRequest(message, accepted) {
    if (message.type !== 'publish_bootstrap' || message.max_uses === 1) return;
    accepted.text({ type: 'error', protocol_version: 1, code: 'unauthorized' });
    accepted.close(1008);
  },
};

/** Lets everything finish that needs no I/O. */
async function settled() {
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** State that outlives a relay. */
async function createHome() {
  return {
    host: await fakeHost(),
    clock: createTestClock(),
    sessions: createStorage<SessionRecord>({ driver: memoryDriver() }),
    reach: createStorage<ReachRecord>({ driver: memoryDriver() }),
  };
}

interface Options {
  env?: Record<string, string>;
  broker?: ScriptedBrokerOptions;
  home?: Awaited<ReturnType<typeof createHome>>;
  /** Does not make Secure Link available. */
  unavailable?: boolean;
  /** Makes the local end of each stream. */
  open?: OpenLocalEnd;
}

const NO_END: OpenLocalEnd = () => ({ write: () => true, end() {}, destroy() {} });

async function setUp({ env = READY, broker: options, home, unavailable, open = NO_END }: Options = {}) {
  home ??= await createHome();
  const { host, clock, reach: store } = home;
  const broker = createScriptedBroker(options);
  const { sessions, pair } = await setup(home.sessions, clock);
  const log = createTestLog();
  const listeners = new Set<() => void>();
  const secureLink = {
    status: 'unavailable' as 'available' | 'unavailable',
    advertised: { url: 'https://10.0.0.2:9555', authority: '10.0.0.2:9555', pin: '', certDer: '' },
    onChange(listener: () => void) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    async become(status: 'available' | 'unavailable') {
      secureLink.status = status;
      for (const listener of [...listeners]) listener();
      await vi.waitFor(() => expect(['stopped', 'connecting']).not.toContain(reach.health(true).state), TIMEOUT);
    },
  };
  const config = configOf(env, host);
  const reach = await openReach({
    config,
    host,
    store,
    sessions,
    secureLink,
    dialBroker: broker.dial,
    clock,
    log,
  });
  reach.serve(open);
  if (!unavailable) await secureLink.become('available');
  onTestFinished(async () => {
    await reach.stop();
    broker.verify();
    expect(log.lines.join('\n')).not.toContain(HOST_TOKEN);
  });
  return {
    home,
    host,
    clock,
    broker,
    sessions,
    pair,
    log,
    secureLink,
    reach,
    store,
    path: config.secureLinkHostIdFile,
    restart: async (more: Options = {}) => {
      await reach.stop();
      return setUp({ env, broker: options, home, ...more });
    },
    requests: (type: HostMessage['type']) =>
      broker.accepted.flatMap(({ requests }) => requests.filter((one) => one.type === type)),
  };
}

const credentialIdOf = (tokenHash: string) => idOfBytes(Buffer.from(tokenHash, 'hex').subarray(0, 16));

describe('contract 08 §6.1: /health', () => {
  it('has every member for a caller on loopback, and five for others', async () => {
    const { reach, path, clock } = await setUp();
    const id = (await readFile(path, 'utf8')).trim();
    expect(reach.health(true)).toEqual({
      enabled: true,
      state: 'connected',
      status: 'connected',
      connected: true,
      broker_url: 'wss://reach.example',
      host_id: id,
      local_target: '127.0.0.1:9555',
      active_streams: 0,
      stream_limit: 16,
      completed_streams: 0,
      connect_attempts: 1,
      connected_at: clock.now() / 1000,
      last_error: null,
      transport: 'opaque_inner_tls',
    });
    expect(Object.keys(reach.health(false)).sort()).toEqual(['connected', 'enabled', 'state', 'status', 'transport']);
    expect(JSON.stringify(reach.health(true))).not.toContain(HOST_TOKEN);
  });

  it.each([
    ['disabled', {}, false, null],
    ['disabled', { RELAY_EXPERIMENTAL_REACH_ENABLED: '1' }, false, null],
    ['unavailable', { ...READY, RELAY_EXPERIMENTAL_REACH_ENABLED: '0' }, false, 'RELAY_EXPERIMENTAL_REACH_ENABLED=1'],
    ['unavailable', { ...READY, RELAY_SECURE_LINK_BROKER_URL: '' }, true, 'RELAY_SECURE_LINK_BROKER_URL'],
    ['unavailable', { ...READY, RELAY_SECURE_LINK_ENABLED: '0' }, true, 'RELAY_SECURE_LINK_ENABLED=1'],
  ])('is %s with %j, without a file or a connection', async (state, env, enabled, error) => {
    const { reach, broker, path } = await setUp({ env: env as Record<string, string> });
    expect(reach.health(true)).toEqual({
      enabled,
      state,
      status: state,
      connected: false,
      transport: 'opaque_inner_tls',
      last_error: error === null ? null : expect.stringContaining(error as string),
    });
    expect(broker.urls).toEqual([]);
    await expect(readFile(path)).rejects.toThrow();
  });

  it('is unavailable over a malformed host id, which stays as it is', async () => {
    const test = await setUp({ unavailable: true });
    const { host, secureLink, reach, path, broker } = test;
    await host.files.writeAtomic(path, Buffer.from('not an id'), 0o600);
    await secureLink.become('available');
    expect(reach.health(true)).toMatchObject({
      state: 'unavailable',
      last_error: expect.stringContaining('host id file'),
    });
    expect(await readFile(path, 'utf8')).toBe('not an id');
    expect(broker.urls).toEqual([]);
  });

  it('waits for Secure Link, is unavailable while it is lost, and stops', async () => {
    const { reach, secureLink, broker } = await setUp({ unavailable: true });
    expect(reach.health(true)).toMatchObject({ state: 'unavailable', last_error: 'Secure Link is not available' });
    await secureLink.become('available');
    expect(reach.health(true)).toMatchObject({ state: 'connected' });
    await secureLink.become('unavailable');
    expect(reach.health(true)).toMatchObject({ state: 'unavailable' });
    expect(broker.last.end).toEqual({ code: 1001 });
    await secureLink.become('available');
    expect(reach.health(true)).toMatchObject({ state: 'connected' });
    await reach.stop();
    expect(reach.health(true)).toMatchObject({ state: 'stopped', connected: false });
  });
});

describe('contract 08 §6.2: bootstrap credentials', () => {
  it('are handed out once the broker has acknowledged their digest', async () => {
    const { reach, requests, clock, path } = await setUp();
    const end = clock.now() / 1000 + 600.5;
    const route = await reach.bootstrap(end);
    expect(route).toEqual({
      protocol_version: 1,
      url: 'wss://reach.example/v1/connect',
      host_id: (await readFile(path, 'utf8')).trim(),
      credential_kind: 'bootstrap',
      token: expect.stringMatching(/^[\w-]{43}$/),
      expires_at: Math.floor(end),
    });
    expect(requests('publish_bootstrap')).toEqual([
      expect.objectContaining({ token_sha256: digestOf(route?.token ?? ''), max_uses: 4, expires_at: Math.floor(end) }),
    ]);
  });

  it('are many at once, each with its own id and token', async () => {
    const { reach, requests, clock } = await setUp();
    const made = await Promise.all(Array.from({ length: 20 }, () => reach.bootstrap(clock.now() / 1000 + 600)));
    expect(new Set(made.map((one) => one?.token)).size).toBe(20);
    const ids = requests('publish_bootstrap').map((one) => 'pairing_id' in one && one.pairing_id);
    expect(new Set(ids).size).toBe(20);
  });

  it('are left out while disconnected, and when the broker stays silent', async () => {
    const { reach, broker, clock } = await setUp({ broker: { acknowledges: false } });
    const silent = reach.bootstrap(clock.now() / 1000 + 600);
    await clock.advanceAsync(10_000);
    expect(await silent).toBeUndefined();
    broker.last.close();
    expect(await reach.bootstrap(clock.now() / 1000 + 600)).toBeUndefined();
  });

  it('have more than one use if the record of a broker that takes no more is damaged', async () => {
    const home = await createHome();
    await home.reach.setItem('broker', 'x' as never);
    const { reach, clock, requests } = await setUp({ home });
    expect(await reach.bootstrap(clock.now() / 1000 + 600)).toBeDefined();
    expect(requests('publish_bootstrap')).toMatchObject([{ max_uses: 4 }]);
  });

  it('have one use at a broker that takes no more, which is remembered over a restart', async () => {
    const first = await setUp({ broker: ONE_USE });
    const end = first.clock.now() / 1000 + 600;
    const minted = first.reach.bootstrap(end);
    await settled();
    await first.clock.advanceAsync(2000);
    expect(await minted).toMatchObject({ credential_kind: 'bootstrap' });
    const uses = (test: typeof first) =>
      test.requests('publish_bootstrap').map((one) => 'max_uses' in one && one.max_uses);
    expect(uses(first)).toEqual([4, 1]);
    await first.reach.bootstrap(end);
    expect(uses(first)).toEqual([4, 1, 1]);
    const second = await first.restart();
    expect(await second.reach.bootstrap(end)).toBeDefined();
    expect(uses(second)).toEqual([1]);
    await second.clock.advanceAsync(8 * DAY * 1000);
    // Tried again after a week, also without a restart.
    const later = second.reach.bootstrap(second.clock.now() / 1000 + 600);
    await settled();
    await second.clock.advanceAsync(2000);
    expect(await later).toBeDefined();
    expect(uses(second)).toEqual([1, 4, 1]);
    await second.clock.advanceAsync(8 * DAY * 1000);
    const third = await second.restart({ broker: {} });
    expect(await third.reach.bootstrap(third.clock.now() / 1000 + 600)).toBeDefined();
    expect(uses(third)).toEqual([4]);
  });

  it('are published although nothing can be stored about the broker', async () => {
    const home = await createHome();
    home.reach.setItem = () => Promise.reject(new Error('the disk is full'));
    const { reach, clock, requests, log } = await setUp({ home, broker: ONE_USE });
    const minted = reach.bootstrap(clock.now() / 1000 + 600);
    await settled();
    await clock.advanceAsync(2000);
    expect(await minted).toMatchObject({ credential_kind: 'bootstrap' });
    expect(requests('publish_bootstrap')).toMatchObject([{ max_uses: 4 }, { max_uses: 1 }]);
    expect(log.lines.join('\n')).toContain('the disk is full');
  });

  it('are not made weaker by a broker that has taken four uses before', async () => {
    const { reach, broker, clock, requests } = await setUp();
    const end = clock.now() / 1000 + 600;
    await reach.bootstrap(end);
    const failing = reach.bootstrap(end);
    broker.last.text({ type: 'error', protocol_version: 1, code: 'unauthorized' });
    expect(await failing).toBeUndefined();
    await clock.advanceAsync(2000);
    await reach.bootstrap(end);
    expect(requests('publish_bootstrap')).toMatchObject([{ max_uses: 4 }, { max_uses: 4 }, { max_uses: 4 }]);
  });
});

describe('contract 08 §6.4: route credentials', () => {
  it('have exactly six members, and the broker gets digests only', async () => {
    const { reach, pair, requests, path, broker } = await setUp();
    const { session, token } = await pair({ id: 'Gerät-é' }, { ttlSeconds: 5 * DAY });
    const route = await reach.routeCredential(session);
    expect(route).toEqual({
      kind: 'broker_route',
      broker_url: 'wss://reach.example/v1/connect',
      host_id: (await readFile(path, 'utf8')).trim(),
      credential_id: idOfBytes(Buffer.from(digestOf(token), 'base64url').subarray(0, 16)),
      token: expect.stringMatching(/^[\w-]{43}$/),
      expires_at: Math.floor(session.expiresAt ?? 0),
    });
    expect(requests('publish_route')).toEqual([
      {
        type: 'publish_route',
        credential_id: route?.credential_id,
        token_sha256: digestOf(route?.token ?? ''),
        expires_at: route?.expires_at,
        device_id_hash: digestOf('Gerät-é'),
      },
    ]);
    expect(JSON.stringify(broker.last.requests)).not.toContain(route?.token);
  });

  it('name the session token instead of a device without an id, and last 30 days without an end', async () => {
    const { reach, pair, requests, clock } = await setUp();
    const { session, token } = await pair({ id: 'unknown' }, { ttlSeconds: 0 });
    expect(await reach.routeCredential(session)).toMatchObject({
      expires_at: Math.floor(clock.now() / 1000 + 30 * DAY),
    });
    expect(requests('publish_route')).toMatchObject([{ device_id_hash: digestOf(token) }]);
  });

  it('are one token for many authentications at once and later, also over restarts', async () => {
    const first = await setUp();
    const { session } = await first.pair();
    const many = await Promise.all(Array.from({ length: 10 }, () => first.reach.routeCredential(session)));
    expect(new Set(many.map((one) => one?.token)).size).toBe(1);
    expect(await first.reach.routeCredential(session)).toEqual(many[0]);
    expect(first.requests('publish_route')).toHaveLength(1);
    const second = await first.restart();
    const [again] = second.sessions.list();
    expect(await second.reach.routeCredential(again as typeof session)).toEqual(many[0]);
    // Published again, for a broker that has lost its state.
    expect(second.requests('publish_route')).toEqual(first.requests('publish_route'));
  });

  it('are left out after three seconds without an acknowledgement, and handed out later', async () => {
    const { reach, pair, clock, broker } = await setUp({ broker: { acknowledges: false } });
    const { session } = await pair();
    let result: unknown = 'waiting';
    void reach.routeCredential(session).then((route) => {
      result = route;
    });
    await clock.advanceAsync(2_999);
    expect(result).toBe('waiting');
    await clock.advanceAsync(1);
    expect(result).toBeUndefined();
    const [request] = broker.last.requests;
    broker.last.acknowledge(request as HostMessage);
    await settled();
    expect(await reach.routeCredential(session)).toBeDefined();
    expect(broker.last.requests).toHaveLength(1);
  });

  it('are left out while disconnected', async () => {
    const { reach, pair, broker } = await setUp();
    const { session } = await pair();
    broker.last.close();
    expect(await reach.routeCredential(session)).toBeUndefined();
  });

  it('are revoked with their session, at once, and forgotten', async () => {
    const { reach, pair, sessions, requests, store } = await setUp();
    const { session } = await pair();
    const route = await reach.routeCredential(session);
    expect(JSON.stringify(await store.getItem(session.tokenHash.slice(0, 32)))).toContain(route?.token);
    await sessions.revoke(session);
    await settled();
    expect(requests('revoke')).toEqual([
      { type: 'revoke', credential_kind: 'route', credential_id: route?.credential_id },
    ]);
    expect(await store.getKeys()).toEqual([]);
    expect(await reach.routeCredential(session)).toBeUndefined();
  });

  it('are revoked once open streams have sent what they have, and within a second (4401 goes before)', async () => {
    const ports: StreamPort[] = [];
    const { reach, pair, sessions, requests, broker, clock } = await setUp({
      broker: { flow: { version: 1, window: 1000 } },
      open(port) {
        ports.push(port);
        return { write: () => true, end() {}, destroy() {} };
      },
    });
    const streamId = broker.last.open();
    for (const hasCredit of [true, false]) {
      const { session } = await pair();
      await reach.routeCredential(session);
      const before = requests('revoke').length;
      ports[0]?.send([new Uint8Array(2000)], () => {});
      await sessions.revoke(session);
      await clock.advanceAsync(500);
      expect(requests('revoke')).toHaveLength(before);
      if (hasCredit) broker.last.bytes(windowFrame(streamId, 2000));
      await clock.advanceAsync(hasCredit ? 100 : 500);
      expect(requests('revoke')).toHaveLength(before + 1);
    }
  });

  it('of a refreshed session stay until its answer has left, perhaps over their stream, and nothing waits after a stop', async () => {
    const { reach, pair, sessions, requests, broker, clock, store } = await setUp({
      broker: {
        onRequest(message, accepted) {
          if (message.type === 'publish_route') clock.after(2_900, () => accepted.acknowledge(message));
        },
        acknowledges: false,
      },
    });
    broker.last.open();
    const old = await pair();
    const given = reach.routeCredential(old.session);
    await clock.advanceAsync(2_900);
    expect(await given).toBeDefined();
    const next = await sessions.refresh(old.refreshToken ?? '', old.session.device);
    const answered = reach.routeCredential(next?.session as typeof old.session);
    await clock.advanceAsync(2_900);
    expect(await answered).toBeDefined();
    await clock.advanceAsync(1_000);
    expect(requests('revoke')).toEqual([]);
    await clock.advanceAsync(200);
    const credential_id = credentialIdOf(old.session.tokenHash);
    expect(requests('revoke')).toEqual([{ type: 'revoke', credential_kind: 'route', credential_id }]);
    broker.last.acknowledge(requests('revoke')[0] as HostMessage);
    await sessions.refresh(next?.refreshToken ?? '', old.session.device);
    await reach.stop();
    await settled();
    expect(clock.pending).toBe(0);
    // The next process does it.
    const key = next?.session.tokenHash.slice(0, 32) ?? '';
    expect(await store.getItem(key)).toMatchObject({ revoke: { broker_url: 'wss://reach.example' } });
  });

  it('are revoked when their session expires, or gets another token', async () => {
    const { reach, pair, sessions, requests, clock } = await setUp();
    const short = await pair({ id: 'a' }, { ttlSeconds: 3600 });
    const refreshed = await pair({ id: 'b' });
    for (const { session } of [short, refreshed]) await reach.routeCredential(session);
    const next = await sessions.refresh(refreshed.refreshToken ?? '', refreshed.session.device);
    await clock.advanceAsync(3_600_000);
    sessions.sweep();
    await settled();
    expect(requests('revoke').map((one) => 'credential_id' in one && one.credential_id)).toEqual([
      credentialIdOf(refreshed.session.tokenHash),
      credentialIdOf(short.session.tokenHash),
    ]);
    const route = next && (await reach.routeCredential(next.session));
    expect(route?.credential_id).toBe(credentialIdOf(next?.session.tokenHash ?? ''));
  });

  it('are published again when their session is shortened, and end with one that is about to', async () => {
    const { reach, pair, sessions, requests, clock } = await setUp();
    const { session } = await pair({}, { ttlSeconds: 5 * DAY });
    const route = await reach.routeCredential(session);
    await sessions.reduce(session, { ttlSeconds: 3600 });
    await settled();
    const end = Math.floor(clock.now() / 1000 + 3600);
    expect(requests('publish_route').at(-1)).toMatchObject({
      expires_at: end,
      token_sha256: digestOf(route?.token ?? ''),
    });
    expect(await reach.routeCredential(session)).toMatchObject({ token: route?.token, expires_at: end });
    await sessions.reduce(session, { ttlSeconds: 30 });
    await settled();
    expect(requests('revoke')).toHaveLength(1);
    expect(await reach.routeCredential(session)).toBeUndefined();
  });

  it('are shortened and revoked at the next connection when there is none now, also after a restart', async () => {
    const first = await setUp();
    const [kept, gone] = [await first.pair({ id: 'a' }, { ttlSeconds: 5 * DAY }), await first.pair({ id: 'b' })];
    for (const { session } of [kept, gone]) await first.reach.routeCredential(session);
    first.broker.refuse('host not found');
    first.broker.last.close();
    await first.sessions.reduce(kept.session, { ttlSeconds: 3600 });
    await first.sessions.revoke(gone.session);
    expect(first.requests('revoke')).toEqual([]);
    const second = await first.restart();
    await settled();
    expect(second.broker.last.requests).toMatchObject([
      { type: 'revoke', credential_id: credentialIdOf(gone.session.tokenHash) },
      { type: 'publish_route', expires_at: Math.floor(second.clock.now() / 1000 + 3600) },
    ]);
    expect(await second.store.getKeys()).toEqual([kept.session.tokenHash.slice(0, 32)]);
  });

  it('are revoked when their session ended just before the relay was killed', async () => {
    const first = await setUp();
    const { session } = await first.pair();
    await first.reach.routeCredential(session);
    // The record of the session is gone, that of the route is still there.
    await first.home.sessions.removeItem(session.family);
    const second = await first.restart();
    await settled();
    expect(second.broker.last.requests).toMatchObject([{ type: 'revoke' }]);
  });

  it('queue 1024 revocations at most', async () => {
    const home = await createHome();
    for (let at = 0; at < 1100; at++) {
      const revoke = { broker_url: 'wss://reach.example', host_id: 'A'.repeat(22) };
      await home.reach.setItem(at.toString(16).padStart(32, '0'), { revoke });
    }
    const { log, store } = await setUp({ home, unavailable: true });
    await settled();
    expect((await store.getKeys()).length).toBe(1024);
    expect(log.lines.some((line) => line.includes('forgetting the oldest'))).toBe(true);
  });

  it('ignore damaged records', async () => {
    const home = await createHome();
    const key = 'a'.repeat(32);
    await home.reach.setItem(key, { route: { family: 1 } } as never);
    await home.reach.setItem('nonsense', { revoke: { broker_url: 'x', host_id: 'A'.repeat(22) } });
    const { store, reach } = await setUp({ home });
    expect(await store.getKeys()).toEqual([]);
    expect(reach.health(true).state).toBe('connected');
  });

  it('of another broker or host id are not handed out', async () => {
    const first = await setUp();
    const { session } = await first.pair();
    const route = await first.reach.routeCredential(session);
    const second = await first.restart({ env: { ...READY, RELAY_SECURE_LINK_BROKER_URL: 'wss://other.example' } });
    expect(second.requests('publish_route')).toEqual([]);
    const [again] = second.sessions.list();
    const other = await second.reach.routeCredential(again as typeof session);
    expect(other?.broker_url).toBe('wss://other.example/v1/connect');
    expect(other?.token).not.toBe(route?.token);
    await writeFile(join(first.path), `${'A'.repeat(22)}\n`);
    const third = await second.restart();
    expect(await third.reach.routeCredential(third.sessions.list()[0] as typeof session)).toMatchObject({
      host_id: 'A'.repeat(22),
    });
  });
});

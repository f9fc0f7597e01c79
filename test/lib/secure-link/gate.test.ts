import { expect, it } from 'vitest';
import type { Upstream } from '../../../lib/host/upstream.ts';
import { createGate } from '../../../lib/secure-link/gate.ts';
import { createTestClock } from '../../support/clock.ts';

interface Answer {
  status: number;
  body: string;
}
const ON: Answer = { status: 200, body: '{"auth_required":true}' };

/** A gate whose upstreams give these answers; null never answers. */
function start(answers: { api: Answer | null; dashboard: Answer | null }) {
  const clock = createTestClock();
  const asked: string[] = [];
  let hold: Promise<void> = Promise.resolve();
  const upstream: Upstream = async ({ url, signal }) => {
    asked.push(url);
    await hold;
    const answer = url.includes(':9119') ? answers.dashboard : answers.api;
    if (!answer)
      return new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error('aborted'))));
    const { status, body } = answer;
    return {
      status,
      headers: {},
      body: (async function* () {
        yield Buffer.from(body);
      })(),
    };
  };
  const gate = createGate({
    api: new URL('http://127.0.0.1:8642'),
    dashboard: new URL('http://[::1]:9119/d/'),
    upstream,
    clock,
  });
  return {
    clock,
    asked,
    gate,
    answers,
    hold: (until: Promise<void>) => {
      hold = until;
    },
  };
}

it('probes both servers once for any number of callers (contract 08 §3)', async () => {
  const { gate, asked } = start({ api: { status: 204, body: '' }, dashboard: ON });
  const all = await Promise.all(Array.from({ length: 50 }, () => gate.check()));
  expect(new Set(all.map((each) => JSON.stringify(each)))).toEqual(new Set(['{"api":true,"dashboard":true}']));
  expect(asked).toEqual(['http://127.0.0.1:8642/health', 'http://[::1]:9119/d/api/health']);
});

it('asks again after 15 s although the wall clock was set back', async () => {
  const { gate, clock, answers } = start({ api: ON, dashboard: ON });
  await gate.check();
  const { now } = clock;
  clock.now = () => now() - 3_600_000;
  answers.dashboard = { status: 200, body: '{"auth_required":false}' };
  clock.advance(15_000);
  expect(gate.known()).toBeNull();
  expect(await gate.check()).toEqual({ api: true, dashboard: false });
});

it.each<[string, Answer | null]>([
  ['without sign-in', { status: 200, body: '{"auth_required":false}' }],
  ['that does not tell', { status: 200, body: '{}' }],
  ['with a truthy value', { status: 200, body: '{"auth_required":"true"}' }],
  ['with another status', { status: 201, body: ON.body }],
  ['without JSON', { status: 200, body: 'auth_required' }],
  ['with too long an answer', { status: 200, body: `{"auth_required":true,"x":"${'x'.repeat(70_000)}"}` }],
])('stays shut for a dashboard %s', async (_, dashboard) => {
  const { gate } = start({ api: { status: 500, body: '' }, dashboard });
  expect(await gate.check()).toEqual({ api: false, dashboard: false });
});

it('gives up on a silent server after 3 s', async () => {
  const { gate, clock } = start({ api: null, dashboard: ON });
  const checked = gate.check();
  await clock.advanceAsync(3_000);
  expect(await checked).toEqual({ api: false, dashboard: true });
});

it('asks again after 15 s, and serves the others from before meanwhile, up to 30 s', async () => {
  const { gate, clock, asked, answers, hold } = start({ api: ON, dashboard: ON });
  await gate.check();
  await clock.advanceAsync(14_999);
  expect(gate.known()?.dashboard).toBe(true);
  await gate.check();
  expect(asked).toHaveLength(2);
  await clock.advanceAsync(1);
  expect(gate.known()).toBeNull();
  answers.dashboard = { status: 200, body: '{"auth_required":false}' };
  let release = () => {};
  hold(
    new Promise((resolve) => {
      release = resolve;
    }),
  );
  const first = gate.check();
  expect(await gate.check()).toEqual({ api: true, dashboard: true });
  release();
  expect((await first).dashboard).toBe(false);
  expect(gate.known()?.dashboard).toBe(false);
  expect(asked).toHaveLength(4);

  answers.dashboard = ON;
  await clock.advanceAsync(15_000);
  await gate.check();
  await clock.advanceAsync(30_000);
  hold(
    new Promise((resolve) => {
      release = resolve;
    }),
  );
  answers.dashboard = null;
  const [starter, other] = [gate.check(), gate.check()];
  release();
  await clock.advanceAsync(3_000);
  expect([(await starter).dashboard, (await other).dashboard]).toEqual([false, false]);
});

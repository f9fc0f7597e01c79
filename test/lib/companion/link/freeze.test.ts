import { expect, it } from 'vitest';
import { createFreezeSwitch } from '../../../../lib/companion/link/freeze.ts';
import type { RelayCall } from '../../../../lib/host/dial.ts';
import { utf8ToBytes } from '../../../../lib/kit/bytes.ts';
import { readFreeze } from '../../../../lib/operations/freeze-state.ts';
import { createTestClock } from '../../../support/clock.ts';
import { createFakeStore } from './support.ts';

const FROZEN = { frozen: true, since: 5, by: 'Pixel 9', reason: null };
const STATE = { since: 5, by: 'Pixel 9', reason: null };
const frozen = (payload: Record<string, unknown>) =>
  ({ channel: 'system', type: 'frozen', id: 'x', payload, badPayload: false }) as const;

function setup(answer: { status: number; body: unknown } = { status: 200, body: FROZEN }, pairing?: null) {
  const calls: RelayCall[] = [];
  const changes: unknown[] = [];
  const clock = createTestClock();
  const freeze = createFreezeSwitch({
    async callRelay(call) {
      calls.push(call);
      return { status: answer.status, headers: {}, bytes: utf8ToBytes(JSON.stringify(answer.body)) };
    },
    store: createFakeStore(pairing).store,
    clock,
    onChange: (state) => changes.push(state),
  });
  return { freeze, calls, changes, clock };
}

it('09 §3: follows `system/frozen`, and reports each change once', () => {
  const { freeze, changes, clock } = setup();
  freeze.channel.message(frozen(FROZEN));
  freeze.channel.message(frozen(FROZEN));
  expect([freeze.state(), changes]).toEqual([STATE, [STATE]]);
  freeze.channel.message({ ...frozen({ message: 'no' }), type: 'error' });
  freeze.channel.message(frozen({ frozen: false }));
  expect([freeze.state(), changes.at(-1)]).toEqual([null, null]);
  freeze.channel.message(frozen(FROZEN));
  // A relay that is still frozen says so after `auth.ok`: then nothing has changed.
  const before = changes.length;
  freeze.channel.online(() => {});
  freeze.channel.message(frozen(FROZEN));
  clock.advance(60_000);
  expect([freeze.state(), changes.length]).toEqual([STATE, before]);
  freeze.channel.online(() => {})();
  clock.advance(60_000);
  expect(freeze.state()).toEqual(STATE);
  freeze.channel.online(() => {});
  clock.advance(1_000);
  expect([freeze.state(), changes.at(-1)]).toEqual([null, null]);
});

it('takes a time that no date can hold for an unknown one', () => {
  for (const since of [1e13, -1e13, 1e300]) expect(readFreeze({ frozen: true, since, by: 'x' })?.since).toBe(0);
});

it('09 §3: freezes and ends it with the bearer of the pairing', async () => {
  const { freeze, calls } = setup();
  await freeze.freeze();
  expect(freeze.state()).toEqual(STATE);
  await freeze.end();
  expect(calls.map(({ method, path, headers }) => [method, path, headers.authorization])).toEqual([
    ['POST', '/relay/freeze', 'Bearer token-1'],
    ['DELETE', '/relay/freeze', 'Bearer token-1'],
  ]);
});

it("passes on the relay's reason when it refuses, and changes nothing", async () => {
  const { freeze, changes } = setup({ status: 403, body: { error: 'the bridge grant is needed' } });
  await expect(freeze.end()).rejects.toThrow('the bridge grant is needed');
  await expect(setup({ status: 500, body: null }).freeze.freeze()).rejects.toThrow('the relay answered 500');
  await expect(setup(undefined, null).freeze.freeze()).rejects.toThrow('not paired');
  expect(changes).toEqual([]);
});

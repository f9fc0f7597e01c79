import * as v from 'valibot';
import { describe, expect, it } from 'vitest';
import { RelayError } from '../../../lib/errors.ts';
import { createLog } from '../../../lib/log.ts';
import type { Actor } from '../../../lib/operations/actor.ts';
import { type CallDeps, createCaller } from '../../../lib/operations/call.ts';
import { openGate } from '../../../lib/operations/gate.ts';
import { input, requiredText } from '../../../lib/operations/input.ts';
import type { Operation } from '../../../lib/operations/operation.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import { createStores } from '../../../storage/index.ts';
import { createTestClock } from '../../support/clock.ts';

async function setup(more: Partial<Operation> = {}, homeRefusal?: CallDeps['homeRefusal']) {
  const clock = createTestClock();
  const gate = await openGate({ store: createStores('node').open('freeze'), clock, log: createLog('ERROR', () => {}) });
  const seen: unknown[] = [];
  const operation: Operation = {
    name: 'paint',
    title: 'Paint',
    description: 'Paints.',
    grant: 'bridge',
    effect: 'act',
    input: input({ colour: requiredText('colour', 'which'), coats: v.optional(v.number(), 1) }),
    async run(given) {
      seen.push(given);
      return { json: '{}' };
    },
    ...more,
  };
  const until = clock.now() / 1000 + 60;
  const session = { grants: { bridge: until }, prefix: 'abcd1234', device: { name: 'Agent' } } as unknown as Session;
  const actor: Actor = { kind: 'mcp', session };
  const caller = createCaller({ gate, clock, homeRefusal });
  const call = (raw: unknown, as: Actor = actor) => caller(operation, raw, as, new AbortController().signal);
  return { clock, gate, session, seen, call };
}

describe('the way to an operation (contract 09 §9)', () => {
  it('parses the input by the schema: null counts as absent, and the field is named', async () => {
    const { call, seen } = await setup();
    await call({ colour: 'red', coats: null, other: 1 });
    expect(seen).toEqual([{ colour: 'red', coats: 1 }]);
    for (const raw of [{}, { colour: ' ' }, { colour: 1 }, 'red', null, []]) {
      await expect(call(raw), JSON.stringify(raw)).rejects.toMatchObject({ kind: 'invalid' });
    }
    await expect(call({ colour: 'red', coats: 'two' })).rejects.toThrow(/coats/);
    expect(seen).toHaveLength(1);
  });

  it('needs the grant at the time of the call, and a session that has not ended; the operator needs neither', async () => {
    const { call, clock, session } = await setup();
    await call({ colour: 'red' });
    clock.advance(61_000);
    await expect(call({ colour: 'red' })).rejects.toMatchObject({ kind: 'forbidden' });
    await call({ colour: 'red' }, { kind: 'operator' });
    session.ended = 'revoked';
    await expect(call({ colour: 'red' })).rejects.toMatchObject({ kind: 'unauthorized' });
  });

  it.each([
    ['bridge', false],
    ['desktop', false],
    ['phone', true],
    [null, true],
  ])('at the edge of a home, what needs the grant %s is served there: %s (12 §2)', async (grant, isServed) => {
    const refusal = new RelayError('unavailable', 'home is off');
    const { call, session } = await setup({ grant }, (of) => (of === session ? refusal : undefined));
    Object.assign(session.grants, { desktop: null, phone: null });
    if (isServed) await call({ colour: 'red' });
    else await expect(call({ colour: 'red' })).rejects.toBe(refusal);
    await call({ colour: 'red' }, { kind: 'operator' });
  });

  it('a freeze refuses what acts and ends what is under way with its reason', async () => {
    const { call, gate } = await setup({
      run: (_given, { signal }) =>
        new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(new Error('aborted')))),
    });
    const pending = call({ colour: 'red' });
    const ended = expect(pending).rejects.toMatchObject({ kind: 'locked', message: 'frozen by operator: stop' });
    await Promise.resolve();
    await gate.freeze('operator', 'stop');
    await ended;
    await expect(call({ colour: 'red' })).rejects.toMatchObject({ kind: 'locked' });
    for (const more of [{ ignoresFreeze: true }, { isGated: true }] as const) {
      const other = await setup(more);
      await other.gate.freeze('operator', '');
      await other.call({ colour: 'red' });
      expect(other.seen).toHaveLength(1);
    }
  });
});

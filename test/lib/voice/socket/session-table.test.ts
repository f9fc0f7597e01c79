import { expect, it } from 'vitest';
import type { VoicePrincipal } from '../../../../lib/voice/principal.ts';
import { type LimitedSession, type SessionLimits, SessionTable } from '../../../../lib/voice/socket/session-table.ts';
import { createTestClock } from '../../../support/clock.ts';

const caller = (key: string): VoicePrincipal => ({ kind: 'api', key });

const LIMITS: SessionLimits = { perPrincipal: 16, total: 128, evicts: 'idle', error: 'rate-limited' };

function setUp(limits = LIMITS) {
  const clock = createTestClock();
  const table = new SessionTable<TestSession>(clock, limits);
  class TestSession implements LimitedSession {
    readonly id: string;
    readonly principal: VoicePrincipal;
    isOver = false;
    isAttached = false;
    isBusy = false;
    end: unknown[] = [];

    constructor(id: string, key: string, state: { isAttached?: boolean; isBusy?: boolean } = {}) {
      this.id = id;
      this.principal = caller(key);
      Object.assign(this, state);
    }

    close(...end: unknown[]): void {
      this.isOver = true;
      this.end = end;
      table.ended(this);
    }
  }
  const add = (...parts: ConstructorParameters<typeof TestSession>) => {
    const session = new TestSession(...parts);
    table.add(session);
    return session;
  };
  return { clock, table, add };
}

it('finds a session for its principal only', () => {
  const { table, add } = setUp();
  const session = add('one', 'a');
  expect(table.find('one', caller('a'))).toBe(session);
  expect(() => table.find('one', caller('b'))).toThrow(expect.objectContaining({ kind: 'forbidden' }));
  expect(() => table.find('two', caller('a'))).toThrow(expect.objectContaining({ kind: 'not-found' }));
});

it('remembers closed sessions for ten minutes, the last 1024 of them', () => {
  const { clock, table, add } = setUp();
  const gone = expect.objectContaining({ kind: 'gone' });
  const unknown = expect.objectContaining({ kind: 'not-found' });
  add('one', 'a').close();
  clock.advance(600_000 - 1);
  expect(() => table.find('one', caller('a'))).toThrow(gone);
  clock.advance(1);
  expect(() => table.find('one', caller('a'))).toThrow(unknown);
  for (let count = 0; count < 1025; count++) add(`s${count}`, 'a').close();
  expect(() => table.find('s0', caller('a'))).toThrow(unknown);
  expect(() => table.find('s1', caller('a'))).toThrow(gone);
  expect(table.size).toBe(0);
});

it('closes the oldest idle session of a principal that has 16: first one without a socket', () => {
  const { table, add } = setUp();
  const busy = add('busy', 'a', { isBusy: true });
  const attached = add('attached', 'a', { isAttached: true });
  const idle = Array.from({ length: 14 }, (_, at) => add(`idle${at}`, 'a'));
  add('other', 'b');
  add('next', 'a');
  expect(idle.map(({ isOver }) => isOver)).toEqual([true, ...Array(13).fill(false)]);
  expect(idle[0]?.end).toEqual([1013, 'too many voice sessions', 'evicted']);
  for (const session of idle.slice(1)) session.isBusy = true;
  table.find('next', caller('a')).isBusy = true;
  add('more', 'a', { isBusy: true });
  expect([attached.isOver, busy.isOver]).toEqual([true, false]);
  expect(() => add('too many', 'a')).toThrow(expect.objectContaining({ kind: 'rate-limited', retryAfter: 5 }));
  expect(table.size).toBe(17);
});

it('holds 128 sessions in all', () => {
  const { table, add } = setUp();
  for (let count = 0; count < 130; count++) add(`s${count}`, `caller ${count >> 3}`);
  expect(table.size).toBe(128);
  expect(() => table.find('s1', caller('caller 0'))).toThrow(expect.objectContaining({ kind: 'gone' }));
  table.closeAll(1001, 'server shutting down', 'shutdown');
  expect(table.size).toBe(0);
});

it('spares sessions with a socket where the limits say so (contract 06 §3.3)', () => {
  const { add } = setUp({ perPrincipal: 3, total: 4, evicts: 'unattached', error: 'unavailable' });
  const busy = add('busy', 'a', { isBusy: true });
  const attached = add('attached', 'a', { isAttached: true });
  const idle = add('idle', 'a');
  add('one more', 'a', { isAttached: true });
  expect([idle.isOver, busy.isOver, attached.isOver]).toEqual([true, false, false]);
  add('two more', 'a', { isAttached: true });
  expect([busy.isOver, attached.isOver]).toEqual([true, false]);
  const refused = expect.objectContaining({ kind: 'unavailable', message: 'too many voice sessions' });
  expect(() => add('three more', 'a')).toThrow(refused);
  add('of another', 'b', { isAttached: true });
  expect(() => add('the fifth', 'c')).toThrow(refused);
});

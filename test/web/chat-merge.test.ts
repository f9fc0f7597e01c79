import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { applySnapshot, mergeTurns, rowOf, withHistory } from '../../handlers/web/app/chat/merge.ts';
import { advance, agentTurn, personTurn, type Turn } from '../../handlers/web/app/chat/turns.ts';
import type { HistoryItem } from '../../lib/chat/history-items.ts';
import { runs } from '../support/runs.ts';

const exchange = (request: string, question: string, answer: Partial<Turn> = {}, at = 1000): Turn[] => [
  personTurn(request, question, at),
  { ...agentTurn(request, at), ...answer },
];
const item = (id: string, role: HistoryItem['role'], text: string, ts: number | null = 1): HistoryItem => ({
  id,
  role,
  text,
  ts,
});
const said = (turns: readonly Turn[]) => turns.map(({ from, text }) => `${from}: ${text}`);

it('issue 25: the later writer erases nothing of the other tab', () => {
  const one = exchange('a', 'A?', { text: 'A', state: 'done' }, 1);
  const two = exchange('b', 'B?', { text: 'B', state: 'done' }, 2);
  expect(said(mergeTurns(one, two))).toEqual(said([...one, ...two]));
  expect(said(mergeTurns(two, one))).toEqual(said([...one, ...two]));
});

it('contract 10 §3: of two views of an answer, the one that knows more stays', () => {
  const early = exchange('a', 'A?', { text: 'long but old', seq: 3 });
  const late = exchange('a', 'A?', { text: 'new', seq: 4, state: 'done' });
  for (const merged of [mergeTurns(early, late), mergeTurns(late, early)]) expect(merged).toEqual(late);
  const untyped = exchange('a', 'A?', { text: 'abc', state: 'stopped' });
  expect(mergeTurns(untyped, exchange('a', 'A?', { text: 'abcdef' }))).toEqual(untyped);
});

it('contract 10 §1: events that were seen change nothing', () => {
  const event = (seq: number, delta: string) => ({
    type: 'stream.event',
    payload: { turn_id: 't', seq, event: 'assistant.delta', payload: { delta } },
  });
  const turn = [event(1, 'a'), event(2, 'b'), event(2, 'b'), event(1, 'a'), event(3, 'c')].reduce(
    advance,
    agentTurn('r', 1),
  );
  expect(turn).toMatchObject({ text: 'abc', seq: 3, turnId: 't' });
  expect(event(1, 'x') && advance(agentTurn('r', 1), { ...event(1, 'x'), type: 'chat.delta' }).turnId).toBe('t');
});

it('contract 10 §1: a snapshot replaces what was known, with the question of another device', () => {
  const snapshot = {
    turn_id: 't',
    state: 'interrupted',
    question: 'Q?',
    text: 'half',
    tools: [{ id: 'c', name: 'ls', state: 'done', preview: 'a b' }],
    seq: 7,
  };
  expect(applySnapshot([], 'r', snapshot, 5)).toMatchObject([
    { from: 'person', text: 'Q?' },
    {
      from: 'agent',
      text: 'half',
      seq: 7,
      turnId: 't',
      state: 'broken',
      error: 'The relay ended while the agent answered.',
      tools: [{ name: 'ls', state: 'done', result: 'a b' }],
    },
  ]);
  const newer = exchange('r', 'Q?', { text: 'half and more', seq: 9 });
  expect(applySnapshot(newer, 'r', snapshot, 5)).toEqual(newer);
});

it('reads rows of turns, and no others', () => {
  expect(rowOf({ turn_id: 't', client_turn_id: null, state: 'cancelled', seq: 4 })).toEqual({
    turnId: 't',
    request: 't',
    sessionId: null,
    state: 'stopped',
    seq: 4,
  });
  expect(rowOf({ turn_id: 't', state: 'done', started_at: 1.5 })).toMatchObject({ at: 1500 });
  for (const value of [null, {}, { turn_id: 't' }, { turn_id: 't', state: 'odd' }])
    expect(rowOf(value)).toBeUndefined();
});

it('contract 10 §2: history and what this browser knows become one conversation', () => {
  const items = [
    item('1', 'user', 'first'),
    item('2', 'assistant', 'one'),
    item('3', 'user', 'again'),
    item('4', 'tool', 'out'),
    item('5', 'assistant', 'two'),
  ];
  expect(said(withHistory(items, []))).toEqual(['person: first', 'agent: one', 'person: again', 'agent: two']);
  const own = exchange('r', 'again', { text: 'two', state: 'done', reasoning: 'thought' });
  const next = exchange('s', 'third', { text: 'thr' }, 2000);
  const all = withHistory(items, [...own, ...next]);
  expect(said(all)).toEqual([
    'person: first',
    'agent: one',
    'person: again',
    'agent: two',
    'person: third',
    'agent: thr',
  ]);
  expect(all[3]?.reasoning).toBe('thought');
  const broken = exchange('r', 'again', { text: 'tw', state: 'broken' });
  expect(withHistory(items, broken)[3]).toMatchObject({ text: 'two', state: 'done' });
});

it('issue 25.2: shows no exchange twice, in whatever order and at whatever time snapshots and storage come', () => {
  const names = ['a', 'b', 'c', 'd'];
  const items = names.flatMap((name, at) => [
    item(`${at}q`, 'user', `${name}?`, 100 + at),
    item(`${at}a`, 'assistant', name, 100 + at),
  ]);
  const snapshot = (name: string) => ({ turn_id: `t${name}`, state: 'done', question: `${name}?`, text: name, seq: 3 });
  const began = (name: string) => (100 + names.indexOf(name)) * 1000;
  const stored = names.flatMap((name) =>
    exchange(name, `${name}?`, { text: name, state: 'done', seq: 3 }, began(name)),
  );
  const order = fc.shuffledSubarray(names, { minLength: 4 });
  // A device that does not know when a turn began has the time at which it heard of it.
  const heard = fc.array(fc.integer({ min: -60_000, max: 60_000 }), { minLength: 4, maxLength: 4 });
  fc.assert(
    fc.property(order, heard, fc.boolean(), fc.integer({ min: 1, max: 4 }), (snapshots, late, isStored, known) => {
      let own = isStored ? stored.slice(0, 2 * known) : [];
      for (const [at, name] of snapshots.entries())
        own = applySnapshot(own, name, snapshot(name), 110_000 + (late[at] ?? 0));
      expect(said(withHistory(items, own))).toEqual(names.flatMap((name) => [`person: ${name}?`, `agent: ${name}`]));
      expect(said(mergeTurns(own, stored))).toEqual(said(mergeTurns(stored, own)));
    }),
    { numRuns: runs(100) },
  );
  const all = ['c', 'a', 'd', 'b'].reduce<Turn[]>(
    (own, name) => applySnapshot(own, name, snapshot(name), began(name)),
    [],
  );
  expect(said(all)).toEqual(names.flatMap((name) => [`person: ${name}?`, `agent: ${name}`]));
});

it('contract 10 §3: merging is the same in any order, and loses no exchange', () => {
  const turn = fc.record({ request: fc.constantFrom('a', 'b', 'c', 'd'), seq: fc.nat(5), isDone: fc.boolean() });
  const turns = fc.array(turn, { maxLength: 6 }).map((all) =>
    mergeTurns(
      [],
      all.flatMap(({ request, seq, isDone }) =>
        exchange(
          request,
          `${request}?`,
          { seq, text: `${request}${seq}`, state: isDone ? 'done' : 'streaming' },
          request.charCodeAt(0),
        ),
      ),
    ),
  );
  fc.assert(
    fc.property(turns, turns, turns, (a, b, c) => {
      const merged = mergeTurns(mergeTurns(a, b), c);
      expect(mergeTurns(a, mergeTurns(b, c))).toEqual(merged);
      expect(mergeTurns(c, mergeTurns(b, a))).toEqual(merged);
      expect(mergeTurns(merged, a)).toEqual(merged);
      const names = (all: readonly Turn[]) => [...new Set(all.map(({ request }) => request))].toSorted();
      expect(names(merged)).toEqual(names([...a, ...b, ...c]));
    }),
    { numRuns: runs(100) },
  );
});

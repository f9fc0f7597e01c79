import fc from 'fast-check';
import { createStorage } from 'unstorage';
import { expect, it } from 'vitest';
import { type MessageState, openHistory } from '../../../lib/phone/history.ts';
import type { PhoneHistoryItem, PhoneMessage, Reply } from '../../../storage/schema.ts';
import { createTestLog } from '../../support/log.ts';

const message = (id: string, text = 'x'): PhoneMessage => ({
  message_id: id,
  chat_id: null,
  title: null,
  text,
  surfacing: null,
  reply_to: null,
  metadata: {},
  sent_at: 1,
});

const reply = (id: string, text: string, replyTo: string | null = null): Reply => ({
  text,
  chat_id: null,
  reply_to: replyTo,
  message_id: id,
  metadata: {},
  ts: 1,
});

const open = (store = createStorage<PhoneHistoryItem>()) => openHistory({ store, log: createTestLog() });
const ALL = { since: 0, limit: 200 };
const states = ({ items }: { items: PhoneHistoryItem[] }) => items.map(({ message_id: id, state }) => [id, state]);

it('gives numbers after a restore that no device knows yet', async () => {
  const store = createStorage<PhoneHistoryItem>();
  const before = await open(store);
  before.message(message('a'));
  await before.save();
  const restored = createStorage<{ at: number }>();
  await restored.setItem('restored', { at: 1_790_000_000 });
  const history = await openHistory({ store, restored, log: createTestLog() });
  expect(history.page(ALL)).toMatchObject({ items: [{ seq: 1 }], latest: 1 });
  history.message(message('b'));
  expect(history.page(ALL)).toMatchObject({ items: [{ seq: 1 }, { seq: 1_790_000_001 }], latest: 1_790_000_001 });
  // A number of the past holds nothing back.
  await history.save();
  await restored.setItem('restored', { at: 5 });
  const later = await openHistory({ store, restored, log: createTestLog() });
  expect(later.page(ALL).latest).toBe(1_790_000_001);
  later.message(message('c'));
  expect(later.page(ALL).latest).toBe(1_790_000_002);
  // Nor does a damaged record of the restore.
  await later.save();
  await restored.setItem('restored', 'damaged' as never);
  const last = await openHistory({ store, restored, log: createTestLog() });
  last.message(message('d'));
  expect(last.page(ALL).latest).toBe(1_790_000_003);
});

it('writes what could not be written with the next change', async () => {
  const store = createStorage<PhoneHistoryItem>();
  const history = await open(store);
  for (const id of ['a', 'b']) history.message(message(id));
  await history.save();
  const { setItem } = store;
  store.setItem = () => Promise.reject(new Error('disk full'));
  history.reply(reply('r', 'x', 'a'));
  await history.save();
  store.setItem = setItem;
  history.became('b', 'sent');
  await history.save();
  expect(states((await open(store)).page(ALL))).toEqual([
    ['a', 'answered'],
    ['b', 'sent'],
    ['r', 'waiting'],
  ]);
});

it('§1: a message goes forward through its states, and a reply answers it', async () => {
  const history = await open();
  history.message(message('a'));
  expect(states(history.page(ALL))).toEqual([['a', 'queued']]);
  history.became('a', 'sent');
  history.became('a', 'cancelled');
  expect(states(history.page(ALL))).toEqual([['a', 'sent']]);
  history.became('a', 'shown');
  history.became('a', 'sent');
  history.became('unknown', 'shown');
  expect(states(history.page(ALL))).toEqual([['a', 'shown']]);
  history.reply(reply('r', 'yes', 'a'));
  history.became('a', 'shown');
  history.taken('r');
  expect(states(history.page(ALL))).toEqual([
    ['a', 'answered'],
    ['r', 'taken'],
  ]);
});

it('§1: a device that gets copies shows a message that still waits, which is then shown whatever its target does', async () => {
  const history = await open();
  history.message(message('a'));
  history.became('a', 'shown');
  for (const late of ['sent', 'cancelled', 'expired', 'dropped'] as const) history.became('a', late);
  expect(states(history.page(ALL))).toEqual([['a', 'shown']]);
});

it('§1: a message that replaces a queued one takes its item; after it was sent, the same id is a new item', async () => {
  const history = await open();
  history.message(message('a', 'old'));
  history.message(message('a', 'new'));
  history.became('a', 'sent');
  history.message(message('a', 'again'));
  expect(history.page(ALL).items.map(({ seq, text, state }) => [seq, text, state])).toEqual([
    [1, 'new', 'sent'],
    [2, 'again', 'queued'],
  ]);
});

it('§1: keeps the last 500 items, and 8 million characters', async () => {
  const store = createStorage<PhoneHistoryItem>();
  const history = await open(store);
  for (let n = 1; n <= 700; n++) history.message(message(`m${n}`));
  await history.save();
  expect(history.page({ since: 0, limit: 1 }).items[0]?.message_id).toBe('m201');
  expect(await store.getKeys()).toHaveLength(500);
  const long = 'y'.repeat(1024 * 1024);
  for (let n = 1; n <= 10; n++) history.reply(reply(`r${n}`, long));
  expect(states(history.page(ALL)).map(([id]) => id)).toEqual(['r3', 'r4', 'r5', 'r6', 'r7', 'r8', 'r9', 'r10']);
  await history.save();
  expect(await store.getKeys()).toHaveLength(8);
});

it('12 §4: counts what is sealed, with its keys', async () => {
  const history = await open();
  const keys = Object.fromEntries(Array.from({ length: 10 }, (_, n) => [`k${n}`, 'k'.repeat(1000)]));
  const sealed = { by: 'b', content: 'c'.repeat(1024 * 1024 - 10_001), keys };
  for (let n = 1; n <= 10; n++) history.reply({ ...reply(`r${n}`, 'x'), sealed });
  expect(states(history.page(ALL)).map(([id]) => id)).toEqual(['r3', 'r4', 'r5', 'r6', 'r7', 'r8', 'r9', 'r10']);
  expect(history.page(ALL).items[0]).toMatchObject({ sealed });
});

const id = fc.constantFrom('a', 'b', 'c', 'd');
const action = fc.oneof(
  fc.record({ do: fc.constant('message' as const), id }),
  fc.record({ do: fc.constant('reply' as const), id }),
  fc.record({ do: fc.constant('taken' as const), id }),
  fc.record({
    do: fc.constant('became' as const),
    id,
    state: fc.constantFrom<Exclude<MessageState, 'queued'>[]>('sent', 'shown', 'answered', 'expired', 'dropped'),
  }),
  fc.record({ do: fc.constant('restart' as const) }),
);

it('§1: a restart shows the same items, numbers never repeat, and pages join without a gap', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 40 }), async (actions) => {
      const store = createStorage<PhoneHistoryItem>();
      let history = await open(store);
      for (const step of actions) {
        const before = history.page(ALL);
        if (step.do === 'message') history.message(message(step.id));
        else if (step.do === 'reply') history.reply(reply(`r-${step.id}`, 'x', step.id));
        else if (step.do === 'taken') history.taken(`r-${step.id}`);
        else if (step.do === 'became') history.became(step.id, step.state);
        else {
          await history.save();
          history = await open(store);
          expect(history.page(ALL)).toEqual(before);
        }
        expect(history.page(ALL).latest).toBeGreaterThanOrEqual(before.latest);
      }
      const whole = history.page(ALL);
      expect(whole.items.map(({ seq }) => seq)).toEqual(whole.items.map((_, at) => at + 1));
      const joined: PhoneHistoryItem[] = [];
      for (let page = history.page({ since: 0, limit: 3 }); page.items.length > 0; ) {
        joined.push(...page.items);
        page = history.page({ since: page.items.at(-1)?.seq ?? 0, limit: 3 });
      }
      expect(joined).toEqual(whole.items);
    }),
    { numRuns: 100 },
  );
});

it('§1: after a crash, a message that waits no longer counts as sent', async () => {
  const store = createStorage<PhoneHistoryItem>();
  const history = await open(store);
  for (const id of ['a', 'b']) history.message(message(id));
  await history.save();
  const again = await open(store);
  again.delivered(new Set(['b']));
  expect(states(again.page(ALL))).toEqual([
    ['a', 'sent'],
    ['b', 'queued'],
  ]);
});

it('12 §4: what came to the edge without a seal under the id of home changes nothing of that, whichever came first', async () => {
  const foreign = { ...message('a', 'Lunch?'), metadata: { sealed: false } };
  const store = createStorage<PhoneHistoryItem>();
  const history = await open(store);
  history.message(message('a', 'Delete it?'));
  history.message({ ...foreign, sent_at: 2 });
  const { metadata: _, surfacing: __, sent_at: ___, ...words } = foreign;
  const first = { isAgain: false, wasDelivered: false };
  const repeat = { isAgain: false, wasDelivered: true };
  const given = { ...words, ts: 3, unsealed: true } as const;
  const seq = history.adopt(given, 'shown', repeat);
  expect([seq, history.adopt(given, 'answered', { ...repeat, isAgain: true })]).toEqual([3, 3]);
  history.became('a', 'shown');
  await history.save();
  for (const each of [history, await open(store)]) {
    expect(each.page(ALL).items.map(({ text, state }) => [text, state])).toEqual([
      ['Delete it?', 'shown'],
      ['Lunch?', 'queued'],
      ['Lunch?', 'shown'],
    ]);
    expect(each.findMessage('a')?.text).toBe('Delete it?');
    expect(each.page(ALL).items.flatMap((item) => Object.keys(item))).not.toContain('unsealed');
  }
  const later = await open();
  later.adopt({ ...given, message_id: 'b' }, 'sent', first);
  later.message(message('b', 'Delete it?'));
  expect(later.findMessage('b')?.text).toBe('Delete it?');
  // Without one of home's, it is a message like any other.
  later.adopt({ ...given, message_id: 'c' }, 'queued', first);
  later.adopt({ ...given, message_id: 'c', text: 'Dinner?', ts: 4 }, 'queued', first);
  expect(later.findMessage('c')?.text).toBe('Dinner?');
  // Its sender has repeated home's own at the edge: nobody needs to forge the same words.
  for (const where of [first, repeat]) {
    const repeated = await open();
    repeated.message(message('a', 'Delete it?'));
    expect(repeated.adopt({ ...given, text: 'Delete it?' }, 'shown', where)).toBe(1);
    expect(repeated.page(ALL).items.map(({ text, state }) => [text, state])).toEqual([['Delete it?', 'shown']]);
  }
});

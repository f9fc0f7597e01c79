import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MAX_BYTES, openTurnStore, RETENTION } from '../../../lib/chat/turn-store.ts';
import { type Answer, emptyAnswer, newHead } from '../../../lib/chat/turns.ts';
import type { ChatTool, ChatTurnHead } from '../../../storage/schema.ts';
import { runs } from '../../support/runs.ts';
import { memoryStores, noLog } from '../../support/states.ts';

const MiB = 1024 * 1024;
const T0 = 1_790_000_000;

async function setUp(stores = memoryStores()) {
  const store = stores.open('chat-turns');
  const turns = await openTurnStore({ store, log: noLog });
  let at = T0;
  return {
    store,
    turns,
    reopen: () => setUp(stores),
    /** Stores a turn that runs. */
    async start(family = 'f', clientTurnId?: string, question = 'why?'): Promise<ChatTurnHead> {
      const head = newHead(family, { message: question, sessionId: 's' }, clientTurnId, ++at);
      await turns.create(head, question);
      return head;
    },
    /** Ends one with a text. */
    async end(head: ChatTurnHead, text = ''): Promise<void> {
      await turns.save({ ...head, state: 'done', ended_at: ++at }, { ...emptyAnswer(), text });
    },
  };
}

const idsOf = (heads: ChatTurnHead[]) => heads.map(({ id }) => id);

describe('stored turns (contract 10 §1)', () => {
  it('are the same after any writes of a growing answer, and write only what has changed', async () => {
    const tool = fc.record({
      id: fc.string(),
      name: fc.string(),
      state: fc.constantFrom('running', 'done', 'failed'),
      preview: fc.string(),
    }) as fc.Arbitrary<ChatTool>;
    const growth = fc.record({
      // Up to three blocks, cut anywhere, in the middle of characters too.
      text: fc.tuple(fc.string({ unit: 'binary', minLength: 1, maxLength: 9 }), fc.nat(4000)),
      tools: fc.array(tool, { minLength: 1, maxLength: 20 }),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(growth, { maxLength: 6 }), fc.nat(30_000), async (steps, questionLength) => {
        const { start, turns, reopen } = await setUp();
        const question = 'ä😀'.repeat(questionLength);
        const head = await start('f', undefined, question);
        let answer: Answer = emptyAnswer();
        for (const { text, tools } of steps) {
          answer = {
            ...answer,
            text: answer.text + text[0].repeat(text[1]),
            tools: [...answer.tools.slice(0, -1), ...tools],
          };
          await turns.save({ ...head, seq: answer.text.length }, answer);
        }
        const expected = { question, text: answer.text, tools: answer.tools };
        expect(await turns.read(head.id)).toEqual(expected);
        const later = await reopen();
        expect(await later.turns.read(head.id)).toEqual(expected);
        expect(later.turns.find(head.id)).toEqual(turns.find(head.id));
      }),
      { numRuns: runs(50) },
    );
  });

  it('write the last block of a text only, and a replaced text anew', async () => {
    const { start, turns, store } = await setUp();
    const head = await start();
    const written: string[] = [];
    const setItem = store.setItem.bind(store);
    store.setItem = (key: string, value: never) => {
      written.push(key.replace(head.id, ''));
      return setItem(key, value);
    };
    await turns.save(head, { ...emptyAnswer(), text: 'x'.repeat(70_000) });
    expect(written.splice(0)).toEqual(['text::0', 'text::1', 'text::2', 'turn:']);
    await turns.save(head, { ...emptyAnswer(), text: 'x'.repeat(70_001) });
    expect(written.splice(0)).toEqual(['text::2', 'turn:']);
    await turns.save(head, { ...emptyAnswer(), text: 'x'.repeat(70_001) });
    expect(written.splice(0)).toEqual(['turn:']);
    await turns.save(head, { ...emptyAnswer(), text: 'short' }, true);
    expect((await turns.read(head.id))?.text).toBe('short');
    expect((await store.getKeys()).sort()).toEqual(
      ['question', 'text', 'turn'].map((kind) => expect.stringMatching(kind)),
    );
  });

  it('are at most a hundred of a family: the one that ended first goes first, one that runs never', async () => {
    const { start, end, turns, store, reopen } = await setUp();
    const running = await start('f', 'first');
    const ended: ChatTurnHead[] = [];
    for (let at = 0; at < 99; at++) ended.push(await start('f', `c${at}`));
    for (const head of ended.toReversed()) await end(head);
    const stranger = await start('g', 'c0');
    const late = await start('f', 'late');
    expect(turns.ofFamily('f')).toHaveLength(100);
    expect(turns.find(ended.at(-1)?.id ?? '')).toBeUndefined();
    expect([turns.byClientId('f', 'c98'), turns.byClientId('f', 'first')?.id]).toEqual([undefined, running.id]);
    expect(turns.byClientId('g', 'c0')?.id).toBe(stranger.id);
    await start('f');
    const later = await reopen();
    expect(idsOf(later.turns.ofFamily('f'))).toEqual(idsOf(turns.ofFamily('f')));
    expect(later.turns.byClientId('f', 'late')?.id).toBe(late.id);
    later.turns.removeFamily('f');
    expect(idsOf(later.turns.all())).toEqual([stranger.id]);
    await expect.poll(() => store.getKeys()).toHaveLength(2);
  });

  it('take 32 MiB in all: what ended first gives way, and a text that runs stops growing', async () => {
    const { start, end, turns, store } = await setUp();
    const bytes = () => turns.all().reduce((sum, head) => sum + head.bytes, 0);
    const ids: string[] = [];
    for (let at = 0; at < 40; at++) {
      const head = await start(`f${at}`);
      ids.push(head.id);
      await end(head, 'ä'.repeat(MiB / 2));
      expect(bytes()).toBeLessThanOrEqual(MAX_BYTES);
    }
    expect(idsOf(turns.all())).toEqual(ids.slice(-31));
    expect(turns.isFull()).toBe(false);
    const running = await Promise.all(
      Array.from({ length: 31 }, (_, at) => start(`g${at}`, undefined, 'x'.repeat(MiB))),
    );
    expect(turns.all().filter(({ ended_at }) => ended_at !== null)).toEqual([]);
    expect(bytes()).toBeLessThanOrEqual(MAX_BYTES);
    await expect(start('h', undefined, 'x'.repeat(MiB))).rejects.toThrow('there is no room for another turn');
    for (const head of running) await turns.save(head, { ...emptyAnswer(), text: 'x'.repeat(64 * 1024) });
    expect(turns.isFull()).toBe(true);
    await expect.poll(() => store.getKeys()).toHaveLength(31 * (1 + 32 + 2));
  });

  it('go a week after their end, not before', async () => {
    const { start, end, turns, reopen } = await setUp();
    const [first, second] = [await start(), await start()];
    await end(second);
    const endedAt = turns.find(second.id)?.ended_at ?? 0;
    expect(turns.sweep(endedAt + RETENTION - 1)).toBe(endedAt + RETENTION);
    expect(turns.find(second.id)).toBeDefined();
    expect(turns.sweep(endedAt + RETENTION)).toBeUndefined();
    expect(idsOf((await reopen()).turns.all())).toEqual([first.id]);
  });

  it('are forgotten when they cannot be stored, and written again when a write failed', async () => {
    const { start, turns, store } = await setUp();
    const head = await start();
    const setItem = store.setItem.bind(store);
    store.setItem = () => Promise.reject(new Error('EIO'));
    await expect(start('f', 'again')).rejects.toMatchObject({ kind: 'unavailable' });
    expect(turns.byClientId('f', 'again')).toBeUndefined();
    const answer = { ...emptyAnswer(), text: 'x'.repeat(40_000) };
    expect(await turns.save(head, answer)).toBe(false);
    store.setItem = setItem;
    expect(await turns.save(head, answer)).toBe(true);
    expect((await turns.read(head.id))?.text).toBe(answer.text);
  });

  it('count a text once, however often its write fails', async () => {
    const { start, end, turns, store } = await setUp();
    const done = await start();
    await end(done, 'kept');
    const head = await start();
    const setItem = store.setItem.bind(store);
    const answer = { ...emptyAnswer(), text: 'x'.repeat(MiB) };
    await turns.save(head, { ...answer, text: 'x'.repeat(10) });
    store.setItem = () => Promise.reject(new Error('ENOSPC'));
    for (let tries = 0; tries < 40; tries++) expect(await turns.save(head, answer)).toBe(false);
    store.setItem = setItem;
    await turns.save(head, answer);
    expect(turns.find(head.id)?.bytes).toBe(MiB + 1024 + 'why?'.length);
    expect(turns.find(done.id)).toBeDefined();
    expect(turns.isFull()).toBe(false);
  });

  it('skip records that cannot be read, and remove what is left of them', async () => {
    const { start, store, reopen } = await setUp();
    const good = await start();
    const bad = await start();
    await store.setItem(`turn:${bad.id}`, { turn: { id: bad.id, texts: 1e9 } } as never);
    await store.setItem('text:orphan:0', { text: 'x' });
    await store.setItem('followers', { sockets: ['a'] });
    const later = await reopen();
    expect(idsOf(later.turns.all())).toEqual([good.id]);
    expect([...(await later.turns.followers())]).toEqual(['a']);
    await expect.poll(() => store.getKeys()).toHaveLength(3);
  });
});

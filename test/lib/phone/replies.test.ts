import fc from 'fast-check';
import { createStorage, type Storage } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import { expect, it } from 'vitest';
import { openHistory } from '../../../lib/phone/history.ts';
import { createReplies } from '../../../lib/phone/replies.ts';
import { readStoredReply } from '../../../lib/phone/reply.ts';
import { openRows } from '../../../lib/phone/rows.ts';
import type { PhoneHistoryItem, Reply, StoredReply } from '../../../storage/schema.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

async function open(store: Storage<StoredReply>, clock: TestClock) {
  const log = createTestLog();
  const history = await openHistory({ store: createStorage<PhoneHistoryItem>(), log });
  return createReplies({ rows: await openRows({ store, log, read: readStoredReply }), clock, log, history });
}

const CHATS = ['a', 'b', 'c'];
const chat = fc.constantFrom(...CHATS);
const action = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('reply' as const), chat }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('again' as const), number: fc.nat({ max: 40 }) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('poll' as const), chat: fc.option(chat), wait: fc.boolean() }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('hang-up' as const), number: fc.nat({ max: 20 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('time' as const), seconds: fc.nat({ max: 20 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
);

it('every reply is read exactly once, by a reader that waits for it (contract 04 §5.5)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 60 }), async (actions) => {
      const store = createStorage<StoredReply>({ driver: memoryDriver() });
      const clock = createTestClock();
      let replies = await open(store, clock);
      /** In order of arrival. */
      const added: string[] = [];
      const taken: string[] = [];
      const polls: { abort: AbortController; hungUp: boolean; result: Promise<Reply[]> }[] = [];
      const seen = (wanted: string | null, poll: { hungUp: boolean }) => (got: Reply[]) => {
        if (poll.hungUp) expect(got).toEqual([]);
        if (wanted !== null) expect(got.every(({ chat_id: id }) => id === wanted)).toBe(true);
        const order = got.map(({ message_id: id }) => added.indexOf(id));
        expect(order).toEqual([...order].sort((a, b) => a - b));
        taken.push(...got.map(({ message_id: id }) => id));
        return got;
      };
      for (const step of actions) {
        if (step.do === 'reply') {
          const id = `r${added.length}`;
          added.push(id);
          await replies.add({ text: 'x', message_id: id, chat_id: step.chat });
        } else if (step.do === 'again') {
          // A duplicate is recognised only until the reply is read.
          const id = added[step.number];
          if (id !== undefined && !taken.includes(id)) await replies.add({ text: 'x', message_id: id });
        } else if (step.do === 'poll') {
          const abort = new AbortController();
          const poll = { abort, hungUp: false, result: Promise.resolve<Reply[]>([]) };
          const wanted = step.chat === null ? undefined : { chatId: step.chat };
          poll.result = replies
            .poll({ timeout: step.wait ? 10_000 : 0, signal: abort.signal, wanted })
            .then(seen(step.chat, poll));
          polls.push(poll);
          if (!step.wait) await poll.result;
        } else if (step.do === 'hang-up') {
          const poll = polls[step.number];
          if (poll) {
            // A poll that was already answered keeps its answer.
            const answered = await Promise.race([poll.result.then(() => true), Promise.resolve(false)]);
            poll.hungUp = !answered;
            poll.abort.abort();
          }
        } else if (step.do === 'time') await clock.advanceAsync(step.seconds * 1000);
        else {
          await replies.stop();
          await Promise.all(polls.map(({ result }) => result));
          replies = await open(store, clock);
        }
        await Promise.resolve();
      }
      await replies.stop();
      await Promise.all(polls.map(({ result }) => result));
      const left = (await (await open(store, clock)).poll({ timeout: 0 })).map(({ message_id: id }) => id);
      expect(new Set(taken).size).toBe(taken.length);
      expect(left).toEqual(added.filter((id) => !taken.includes(id)));
    }),
    { numRuns: 200 },
  );
});

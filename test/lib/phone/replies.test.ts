import fc from 'fast-check';
import { createStorage, type Storage } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import { expect, it } from 'vitest';
import { openHistory } from '../../../lib/phone/history.ts';
import { createReplies, type Handout } from '../../../lib/phone/replies.ts';
import { readReply, readStoredReply } from '../../../lib/phone/reply.ts';
import { openRows } from '../../../lib/phone/rows.ts';
import type { PhoneHistoryItem, Reply, StoredReply } from '../../../storage/schema.ts';
import { createTestClock, type TestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { runs } from '../../support/runs.ts';

async function open(store: Storage<StoredReply>, clock: TestClock) {
  const log = createTestLog();
  const history = await openHistory({ store: createStorage<PhoneHistoryItem>(), log });
  return createReplies({ rows: await openRows({ store, log, read: readStoredReply }), clock, log, history });
}

const reply = (members: object): Reply => readReply({ text: 'x', ...members }, 0) as Reply;

const CHATS = ['a', 'b', 'c'];
const chat = fc.constantFrom(...CHATS);
const action = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constant('reply' as const), chat }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('again' as const), number: fc.nat({ max: 40 }) }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('poll' as const),
      chat: fc.option(chat),
      wait: fc.boolean(),
      lease: fc.option(fc.integer({ min: 1, max: 15 })),
      isLost: fc.integer({ max: 3, min: 0 }).map((one) => one === 0),
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('acknowledge' as const), number: fc.nat({ max: 10 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('hang-up' as const), number: fc.nat({ max: 20 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('time' as const), seconds: fc.nat({ max: 20 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
);

it('every reply has one reader at a time, until it is taken (contract 04 §5.4a, 5.5)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 60 }), async (actions) => {
      const store = createStorage<StoredReply>({ driver: memoryDriver() });
      const clock = createTestClock();
      let replies = await open(store, clock);
      /** In order of arrival. */
      const added: string[] = [];
      const taken: string[] = [];
      /** The lease of a reply, and its end. */
      const leased = new Map<string, { id: string; until: number }>();
      const leases: string[] = [];
      const polls: { abort: AbortController; hungUp: boolean; result: Promise<Handout> }[] = [];
      const seen =
        (
          { chat: wanted, lease, isLost }: { chat: string | null; lease: number | null; isLost: boolean },
          poll: { hungUp: boolean },
        ) =>
        (handout: Handout) => {
          const got = handout.replies;
          if (wanted !== null) expect(got.every(({ chat_id: id }) => id === wanted)).toBe(true);
          const all = got.map(({ message_id: id }) => id);
          const order = all.map((id) => added.indexOf(id));
          expect(order).toEqual([...order].sort((a, b) => a - b));
          expect(all.filter((id) => taken.includes(id) || (leased.get(id)?.until ?? 0) > clock.now())).toEqual([]);
          const { leaseId } = handout;
          expect(leaseId !== undefined).toBe(lease !== null && all.length > 0);
          const isWhole = !poll.hungUp && !isLost;
          // The reader before may still acknowledge what a reader without a lease did not get as a whole.
          if (isWhole || leaseId !== undefined) for (const id of all) leased.delete(id);
          if (isWhole && leaseId !== undefined && lease !== null) {
            leases.push(leaseId);
            for (const id of all) leased.set(id, { id: leaseId, until: clock.now() + lease * 1000 });
          } else if (isWhole) taken.push(...all);
          handout.sent(isWhole);
          return handout;
        };
      for (const step of actions) {
        if (step.do === 'reply') {
          const id = `r${added.length}`;
          added.push(id);
          await replies.add(reply({ message_id: id, chat_id: step.chat }));
        } else if (step.do === 'again') {
          // A duplicate is recognised only until the reply is read.
          const id = added[step.number];
          if (id !== undefined && !taken.includes(id)) await replies.add(reply({ message_id: id }));
        } else if (step.do === 'poll') {
          const abort = new AbortController();
          const poll = { abort, hungUp: false, result: Promise.resolve<Handout>({ replies: [], sent() {} }) };
          const wanted = step.chat === null ? undefined : { chatId: step.chat };
          poll.result = replies
            .poll({
              timeout: step.wait ? 10_000 : 0,
              signal: abort.signal,
              wanted,
              lease: step.lease === null ? undefined : step.lease * 1000,
            })
            .then(seen(step, poll));
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
        } else if (step.do === 'acknowledge') {
          const lease = leases[step.number];
          if (lease === undefined) continue;
          // Replies whose lease has ended may be on their way to another reader, of which the model learns when they arrive.
          await clock.advanceAsync(0);
          const ended = [...leased].filter(([, { id }]) => id === lease).map(([id]) => id);
          for (const id of ended) leased.delete(id);
          taken.push(...ended);
          expect(await replies.acknowledge(lease)).toBe(ended.length);
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
      clock.advance(15_000);
      const rest = await (await open(store, clock)).poll({ timeout: 0 });
      const left = rest.replies.map(({ message_id: id }) => id);
      expect(new Set(taken).size).toBe(taken.length);
      expect(left).toEqual(added.filter((id) => !taken.includes(id)));
    }),
    { numRuns: runs(200) },
  );
});

it('04 §5.4a: a timer that fires early does not make a poll miss the end of a lease', async () => {
  const clock = createTestClock();
  // Reads the time a moment before the end of the lease first, and the end itself next.
  const times: number[] = [];
  const unsteady = { ...clock, now: () => times.shift() ?? clock.now(), advance: clock.advance };
  const replies = await open(createStorage<StoredReply>({ driver: memoryDriver() }), unsteady as TestClock);
  await replies.add(reply({ message_id: 'r' }));
  const lent = await replies.poll({ timeout: 0, lease: 1000 });
  lent.sent(true);
  const waiting = replies.poll({ timeout: 10_000 });
  times.push(clock.now() + 999, clock.now() + 999, clock.now() + 1000);
  clock.advance(1000);
  times.length = 0;
  clock.advance(1);
  expect((await waiting).replies).toHaveLength(1);
});

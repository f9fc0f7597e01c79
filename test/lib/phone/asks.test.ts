import { createStorage } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import { expect, it } from 'vitest';
import { deferred } from '../../../lib/kit/deferred.ts';
import type { Ask, AskProgress } from '../../../lib/phone/asks.ts';
import { openPhoneMessaging, type PhoneLink } from '../../../lib/phone/phone.ts';
import { hashOfShown, noticeOf } from '../../../lib/phone/shown.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import type { PhoneHistoryItem, QueuedMessage, StoredReply } from '../../../storage/schema.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

interface Sent {
  type: string;
  payload: Record<string, unknown>;
}

/** The socket of a device, with what it was sent. */
class FakeLink implements PhoneLink {
  readonly session: Session;
  readonly isWritable = true;
  readonly sent: Sent[] = [];
  readonly id: string;

  constructor(name: string) {
    this.id = name;
    this.session = { prefix: 'p', grants: { phone: null }, device: { name } } as unknown as Session;
  }

  probe(): void {}

  send(_channel: string, type: string, payload: Record<string, unknown>): void {
    this.sent.push({ type, payload });
  }

  of = (type: string) => this.sent.filter((one) => one.type === type).map(({ payload }) => payload);
  /** The newest question. */
  get question(): Record<string, unknown> {
    return this.of('phone.message').at(-1) ?? {};
  }
  get cancelled() {
    return this.of('phone.message.cancelled');
  }
  get acknowledged() {
    return this.of('proactive.reply.ack').map(({ client_msg_id: id, late }) => [id, late]);
  }
}

const stores = () => ({
  queue: createStorage<QueuedMessage>({ driver: memoryDriver() }),
  replies: createStorage<StoredReply>({ driver: memoryDriver() }),
  history: createStorage<PhoneHistoryItem>({ driver: memoryDriver() }),
  delivered: createStorage<{ seq: number; id: string }>({ driver: memoryDriver() }),
});

async function setup(kept = stores(), clock = createTestClock()) {
  const phone = await openPhoneMessaging({ ...kept, sessions: { isAlive: () => true }, clock, log: createTestLog() });
  const connect = (name: string) => {
    const link = new FakeLink(name);
    phone.subscribe(link, 's');
    return link;
  };
  const mirror = (name: string) => {
    const link = new FakeLink(name);
    phone.mirror(link, 's');
    return link;
  };
  const ask = (change: Partial<Ask> = {}) =>
    phone.ask({ text: 'Deploy now?', answers: ['yes', 'no'], timeoutMs: 60_000, ...change });
  const states = () =>
    phone.history({ since: 0, limit: 200 }).items.map(({ kind, text, state }) => [kind, text, state]);
  const unread = async () => {
    const { replies, sent } = await phone.poll({ timeout: 0 });
    sent(true);
    return replies.map(({ text, answer_index: index }) => [text, index]);
  };
  return { phone, clock, kept, connect, mirror, ask, states, unread, restart: () => setup(kept, clock) };
}

/** Lets what was begun reach its next wait. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

const NO_ANSWER = { answer: null, no_answer: true };

it('09 §7, §10: a tap is the answer, with its index, the device and the time; no reader gets it as well', async () => {
  const { phone, clock, connect, ask, states, unread } = await setup();
  const pixel = connect('Pixel 9');
  const seen: AskProgress[] = [];
  const result = ask({ title: 'Release', chat_id: 'c', onProgress: (state) => seen.push(state) });
  await settled();
  expect(pixel.question).toMatchObject({ text: 'Deploy now?', title: 'Release', chat_id: 'c', surfacing: null });
  expect(pixel.question.metadata).toEqual({ question: true, answers: ['yes', 'no'] });
  const id = pixel.question.message_id as string;
  phone.shown(pixel, id);
  clock.advance(4_200);
  await phone.reply(pixel, { text: 'no', reply_to: id, answer_index: 1, message_id: 'r1' }, 'e');
  expect(await result).toEqual({ answer: 'no', answer_index: 1, by: 'Pixel 9', after_s: 4.2 });
  expect(seen).toEqual(['sent', 'shown']);
  expect(pixel.acknowledged).toEqual([['r1', undefined]]);
  expect(pixel.cancelled).toEqual([]);
  expect(await unread()).toEqual([]);
  expect(states()).toEqual([
    ['message', 'Deploy now?', 'answered'],
    ['reply', 'no', 'taken'],
  ]);
  // The acknowledgement was lost: the same reply comes again.
  await phone.reply(pixel, { text: 'no', reply_to: id, answer_index: 1, message_id: 'r1' }, 'e');
  expect(pixel.acknowledged).toEqual([
    ['r1', undefined],
    ['r1', undefined],
  ]);
  expect(states()).toHaveLength(2);
});

it('09 §10: free text is an answer without an index, and so is a tap that does not fit', async () => {
  const { phone, connect, ask } = await setup();
  const pixel = connect('Pixel 9');
  for (const reply of [{ text: 'later' }, { text: 'yes', answer_index: 1 }, { text: 'yes', answer_index: 2 }]) {
    const result = ask();
    await settled();
    await phone.reply(pixel, { ...reply, reply_to: pixel.question.message_id }, 'e');
    expect(await result).toEqual({ answer: reply.text, by: 'Pixel 9', after_s: 0 });
  }
});

it('12 §4: a device that has shown other words under the id answers nothing; its reply is read as what it is', async () => {
  const { phone, connect, ask } = await setup();
  const pixel = connect('Pixel 9');
  const question = { title: 'Release', text: 'Deploy now?', answers: ['yes', 'no'] };
  const result = ask({ title: question.title });
  await settled();
  const reply = { text: 'yes', reply_to: pixel.question.message_id, answer_index: 0, chat_id: 'c' };
  const others = [hashOfShown({ ...question, text: 'Lunch now?' }), hashOfShown({ ...question, title: null }), ''];
  for (const [at, shown] of others.entries()) await phone.reply(pixel, { ...reply, shown, message_id: `r${at}` }, 'e');
  // It sends the first one again.
  await phone.reply(pixel, { ...reply, shown: others[0], message_id: 'r0' }, 'e');
  const { replies } = await phone.poll({ timeout: 0 });
  expect(replies.map(({ message_id }) => message_id)).toEqual(['r0', 'r1', 'r2']);
  for (const { text, ...rest } of replies) {
    expect(text).toMatch(/showed other words\. It said: yes$/);
    expect(rest).toMatchObject({ reply_to: null, chat_id: null, metadata: { other_words: true } });
    expect(rest).not.toHaveProperty('answer_index');
  }
  expect(pixel.acknowledged.map(([id]) => id)).toEqual(['r0', 'r1', 'r2', 'r0']);
  expect(phone.history({ since: 0, limit: 10 }).items[0]?.state).not.toBe('answered');

  await phone.reply(pixel, { ...reply, shown: hashOfShown(question), message_id: 'r3' }, 'e');
  expect(await result).toMatchObject({ answer: 'yes', answer_index: 0 });
  expect(replies.concat((await phone.poll({ timeout: 0 })).replies)).toSatisfy((all: object[]) =>
    all.every((one) => !('shown' in one)),
  );
});

it('12 §4: a question is answered from its notification, and one that the history has forgotten still knows its words', async () => {
  const { phone, connect, ask } = await setup();
  const pixel = connect('Pixel 9');
  const text = `Deploy ${'all of it '.repeat(30)}now?`;
  const result = ask({ text });
  await settled();
  const { message_id: replyTo } = pixel.question;
  for (let n = 0; n < 501; n++) await phone.push({ text: 'news', message_id: `n${n}` });
  const question = { title: null, text, answers: ['yes', 'no'] };
  const reply = { text: 'yes', reply_to: replyTo };
  await phone.reply(pixel, { ...reply, shown: hashOfShown({ ...question, text: 'Lunch?' }), message_id: 'r1' }, 'e');
  await phone.reply(pixel, { ...reply, shown: hashOfShown(noticeOf(question)), message_id: 'r2' }, 'e');
  await phone.reply(pixel, { text: 'fine', reply_to: 'unknown', shown: hashOfShown(question), message_id: 'r3' }, 'e');
  expect(await result).toMatchObject({ answer: 'yes' });
  const { replies } = await phone.poll({ timeout: 0 });
  expect(replies.map(({ message_id, reply_to }) => [message_id, reply_to])).toEqual([
    ['r1', null],
    ['r3', 'unknown'],
  ]);
});

it('09 §7: a phone that numbers its replies from 1 again answers the next question, too', async () => {
  const { phone, connect, ask } = await setup();
  const link = connect('Pixel');
  for (let question = 1; question <= 2; question++) {
    const answered = ask();
    const { message_id: replyTo } = link.question;
    await phone.reply(link, { text: 'yes', message_id: 1, reply_to: replyTo, answer_index: 0 }, 'r');
    expect(phone.listening()).toBe(1);
    expect(await answered).toMatchObject({ answer: 'yes', answer_index: 0 });
  }
});

it('09 §7: nothing stays of many questions, answered or left by their phone', async () => {
  const { phone, clock, connect, ask } = await setup();
  const link = connect('Pixel');
  for (let question = 1; question <= 500; question++) {
    const answered = ask();
    const { message_id: replyTo } = link.question;
    await phone.reply(link, { text: 'yes', message_id: `r${question}`, reply_to: replyTo, answer_index: 0 }, 'r');
    expect((await answered).answer).toBe('yes');
  }
  const open = Array.from({ length: 256 }, () => ask());
  await expect(ask()).rejects.toMatchObject({ kind: 'rate-limited' });
  phone.ended(link);
  await clock.advanceAsync(60_000);
  expect(new Set((await Promise.all(open)).map((result) => 'reason' in result && result.reason))).toEqual(
    new Set(['timeout']),
  );
  expect(phone.queued()).toEqual([]);
});

it('09 §7: other replies are nobody else’s answer', async () => {
  const { phone, clock, connect, ask, unread } = await setup();
  const pixel = connect('Pixel 9');
  const [first, second] = [ask({ text: 'One?' }), ask({ text: 'Two?' })];
  await settled();
  const [one] = pixel.of('phone.message');
  await phone.reply(pixel, { text: 'yes', answer_index: 0, reply_to: 'unknown' }, 'e');
  await phone.reply(pixel, { text: 'hello', chat_id: 'c' }, 'e');
  await phone.reply(pixel, { text: 'yes', answer_index: 0, reply_to: one?.message_id }, 'e');
  expect(await first).toMatchObject({ answer: 'yes', answer_index: 0 });
  await clock.advanceAsync(60_000);
  expect(await second).toMatchObject(NO_ANSWER);
  expect(await unread()).toEqual([
    ['yes', undefined],
    ['hello', undefined],
  ]);
});

it('09 §7: of two devices the first one answers, and the second is told that it comes too late', async () => {
  const { phone, connect, mirror, ask, unread } = await setup();
  const [browser, pixel] = [mirror('Firefox'), connect('Pixel 9')];
  const result = ask();
  await settled();
  const id = pixel.question.message_id;
  expect(browser.question).toMatchObject({ message_id: id, mirrored: true });
  const answers = [
    phone.reply(browser, { text: 'yes', answer_index: 0, reply_to: id, message_id: 'r1' }, 'e'),
    phone.reply(pixel, { text: 'no', answer_index: 1, reply_to: id, message_id: 'r2' }, 'e'),
  ];
  await Promise.all(answers);
  await phone.reply(pixel, { text: 'I said no', reply_to: id, message_id: 'r3' }, 'e');
  expect(await result).toMatchObject({ answer: 'yes', by: 'Firefox' });
  expect(browser.acknowledged).toEqual([['r1', undefined]]);
  expect(pixel.acknowledged).toEqual([
    ['r2', 'answered'],
    ['r3', 'answered'],
  ]);
  expect(phone.history({ since: 0, limit: 9 }).items.map((item) => ('late' in item ? item.late : undefined))).toEqual([
    undefined,
    undefined,
    'answered',
    'answered',
  ]);
  // A tap that comes too late reaches nobody; what the owner wrote is the agent's to read.
  expect(await unread()).toEqual([['I said no', undefined]]);
});

it.each<
  [
    'timeout' | 'aborted' | 'gone',
    (parts: Awaited<ReturnType<typeof setup>>, abort: AbortController, id: string) => unknown,
  ]
>([
  ['timeout', ({ clock }) => clock.advanceAsync(60_000)],
  ['aborted', (_, abort) => abort.abort()],
  ['gone', ({ phone }, _, id) => phone.withdraw(id)],
  ['gone', ({ phone }) => phone.stop()],
])('09 §7: without an answer (%s) the question is withdrawn from every device', async (reason, end) => {
  const parts = await setup();
  const { phone, connect, mirror, ask, states, unread } = parts;
  const [browser, pixel] = [mirror('Firefox'), connect('Pixel 9')];
  const abort = new AbortController();
  const result = ask({ signal: abort.signal });
  await settled();
  const id = pixel.question.message_id as string;
  phone.shown(pixel, id);
  await end(parts, abort, id);
  expect(await result).toEqual({ ...NO_ANSWER, reason });
  const notice = { message_id: id, reason: 'withdrawn' };
  expect([pixel.cancelled, browser.cancelled]).toEqual([[notice], [notice]]);
  expect(states()).toEqual([['message', 'Deploy now?', 'cancelled']]);
  await phone.reply(pixel, { text: 'yes', answer_index: 0, reply_to: id, message_id: 'r' }, 'e');
  expect(pixel.acknowledged).toEqual([['r', 'withdrawn']]);
  expect(await unread()).toEqual([]);
  if (reason !== 'gone') {
    // A phone that was away still shows it.
    expect(connect('Pixel 9').cancelled).toEqual([notice]);
  }
});

it('09 §7: a question that no phone got leaves the queue when it is withdrawn, and when a copy of it is answered', async () => {
  const { phone, clock, connect, mirror, ask, states } = await setup();
  const seen: AskProgress[] = [];
  const first = ask({ text: 'One?', onProgress: (state) => seen.push(state) });
  await settled();
  expect(phone.listening()).toBe(0);
  expect(phone.queued()).toHaveLength(1);
  await clock.advanceAsync(60_000);
  expect(await first).toEqual({ ...NO_ANSWER, reason: 'timeout' });
  expect(seen).toEqual(['queued']);
  const browser = mirror('Firefox');
  const second = ask({ text: 'Two?' });
  await settled();
  await phone.reply(browser, { text: 'yes', answer_index: 0, reply_to: browser.question.message_id }, 'e');
  expect(await second).toMatchObject({ answer: 'yes', by: 'Firefox' });
  expect(phone.queued()).toEqual([]);
  expect(states().slice(0, 2)).toEqual([
    ['message', 'One?', 'cancelled'],
    ['message', 'Two?', 'answered'],
  ]);
  expect(connect('Pixel 9').of('phone.message')).toEqual([]);
});

it('09 §7: a question that a crash left open is withdrawn by the next process', async () => {
  const { phone, connect, ask, restart } = await setup();
  const pixel = connect('Pixel 9');
  void ask();
  await settled();
  phone.shown(pixel, pixel.question.message_id);
  await phone.push({ text: 'Plain?', message_id: 'plain' });
  await settled();
  const after = await restart();
  await settled();
  expect(after.states().slice(0, 2)).toEqual([
    ['message', 'Deploy now?', 'cancelled'],
    ['message', 'Plain?', 'queued'],
  ]);
  const again = after.connect('Pixel 9');
  expect(again.cancelled).toEqual([
    {
      message_id: pixel.question.message_id === 'plain' ? expect.any(String) : pixel.question.message_id,
      reason: 'withdrawn',
    },
  ]);
});

it('09 §7: a queued question that expires is closed in time on devices that show a copy', async () => {
  const { phone, clock, mirror } = await setup();
  const browser = mirror('Firefox');
  await phone.push({ text: 'Still there?', message_id: 'q' });
  await phone.push({ text: 'No question.', message_id: 'm' });
  await clock.advanceAsync(86_400_000);
  expect(browser.cancelled).toEqual([]);
  await clock.advanceAsync(2);
  expect(browser.cancelled).toEqual([{ message_id: 'q', reason: 'expired' }]);
});

it('04 §5.6: only a question can be withdrawn once it is delivered', async () => {
  const { phone, connect } = await setup();
  const pixel = connect('Pixel 9');
  await phone.push({ text: 'Dinner.', message_id: 'm' });
  await phone.push({ text: 'Coming?', message_id: 'q' });
  expect(await phone.withdraw('m')).toBe(0);
  expect(await phone.cancel('q')).toBe(0);
  expect(await phone.withdraw('q')).toBe(1);
  expect(await phone.withdraw('q')).toBe(0);
  expect(await phone.withdraw('unknown')).toBe(0);
  expect(pixel.cancelled).toEqual([{ message_id: 'q', reason: 'withdrawn' }]);
});

it('09 §10: to a question that nobody waits with, further words are conversation, and a second tap is late', async () => {
  const { phone, connect, unread } = await setup();
  const pixel = connect('Pixel 9');
  await phone.push({ text: 'Coming?', message_id: 'q' });
  const reply = (id: string, members: object) => phone.reply(pixel, { reply_to: 'q', message_id: id, ...members }, 'e');
  await reply('r1', { text: 'Yes', answer_index: 0 });
  await reply('r2', { text: 'At eight' });
  await reply('r3', { text: 'No', answer_index: 1 });
  expect(pixel.acknowledged).toEqual([
    ['r1', undefined],
    ['r2', undefined],
    ['r3', 'answered'],
  ]);
  expect(await unread()).toEqual([
    ['Yes', 0],
    ['At eight', undefined],
    ['No', 1],
  ]);
});

it('09 §7: bad questions are refused, and so are too many; one that is aborted before is never sent', async () => {
  const { phone, connect, ask } = await setup();
  const pixel = connect('Pixel 9');
  for (const bad of [
    { text: ' ' },
    { answers: [] },
    { answers: ['a', 'a'] },
    { timeoutMs: 0 },
    { timeoutMs: Number.NaN },
  ]) {
    await expect(ask(bad)).rejects.toMatchObject({ kind: 'invalid' });
  }
  expect(await ask({ signal: AbortSignal.abort() })).toEqual({ ...NO_ANSWER, reason: 'aborted' });
  expect(pixel.of('phone.message')).toEqual([]);
  const many = Array.from({ length: 256 }, (_, at) => ask({ text: `${at}?` }));
  await expect(ask()).rejects.toMatchObject({ kind: 'rate-limited' });
  await phone.stop();
  expect((await Promise.all(many)).every(({ answer }) => answer === null)).toBe(true);
  expect(await ask()).toEqual({ ...NO_ANSWER, reason: 'gone' });
});

it.each(['answer', 'timeout'])(
  'an answer that cannot be stored is neither passed on nor acknowledged; then comes the %s',
  async (next) => {
    const kept = stores();
    const { phone, clock, connect, ask, states } = await setup(kept);
    const pixel = connect('Pixel 9');
    const result = ask();
    await settled();
    const reply = { text: 'no', reply_to: pixel.question.message_id, answer_index: 1, message_id: 'r1' };
    const { setItem } = kept.history;
    let fail = () => {};
    const full = () => new Promise((_, reject) => (fail = () => reject(new Error('disk full'))));
    Object.assign(kept.history, { setItem: full });
    const refused = expect(phone.reply(pixel, reply, 'e')).rejects.toMatchObject({ kind: 'unavailable' });
    if (next === 'timeout') clock.advance(60_000);
    Object.assign(kept.history, { setItem });
    fail();
    await refused;
    expect(pixel.acknowledged).toEqual([]);
    if (next === 'timeout') {
      expect(await result).toEqual({ ...NO_ANSWER, reason: 'timeout' });
      return;
    }
    expect(states()).toEqual([['message', 'Deploy now?', 'shown']]);
    await phone.reply(pixel, reply, 'e');
    expect(await result).toMatchObject({ answer: 'no', by: 'Pixel 9' });
    expect(pixel.acknowledged).toEqual([['r1', undefined]]);
  },
);

it('an answer that comes again while it is being stored is acknowledged no earlier, and not at all if that fails', async () => {
  const kept = stores();
  const { phone, connect, ask, states } = await setup(kept);
  const pixel = connect('Pixel 9');
  const result = ask();
  await settled();
  const reply = { text: 'no', reply_to: pixel.question.message_id, answer_index: 1, message_id: 'r1' };
  const { setItem } = kept.history;
  const disk = deferred();
  Object.assign(kept.history, { setItem: () => disk.promise });
  const again = connect('Pixel 9');
  const replied = Promise.allSettled([pixel, again].map((link) => phone.reply(link, reply, 'e')));
  await settled();
  expect([...pixel.acknowledged, ...again.acknowledged]).toEqual([]);
  Object.assign(kept.history, { setItem });
  disk.reject(new Error('disk full'));
  const refused = { status: 'rejected', reason: { kind: 'unavailable' } };
  expect(await replied).toMatchObject([refused, refused]);
  expect([...pixel.acknowledged, ...again.acknowledged]).toEqual([]);
  expect(states()).toEqual([['message', 'Deploy now?', 'shown']]);
  await phone.reply(again, reply, 'e');
  expect(await result).toMatchObject({ answer: 'no', by: 'Pixel 9' });
  expect(again.acknowledged).toEqual([['r1', undefined]]);
});

import fc from 'fast-check';
import { createStorage } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import { describe, expect, it, vi } from 'vitest';
import { openPhoneMessaging, type PhoneLink, type PhoneMessaging } from '../../../lib/phone/phone.ts';
import type { Poll } from '../../../lib/phone/replies.ts';
import type { SeenChat } from '../../../lib/phone/threads.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import type { PhoneHistoryItem, QueuedMessage, Reply, StoredReply } from '../../../storage/schema.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { runs } from '../../support/runs.ts';

/** The message id, or the count of a backlog. */
type Seen = [type: string, detail: unknown];

/** A phone's socket that records its messages and can be made to break. */
class FakeLink implements PhoneLink {
  readonly session = { prefix: 'p', alive: true, grants: { phone: null }, device: {} } as unknown as Session;
  isWritable = true;
  /** Messages that are still written; the next one breaks the socket. */
  writesLeft = Number.POSITIVE_INFINITY;
  seen: Seen[] = [];
  onBroken: () => void = () => {};
  readonly id: string;
  #answered: (() => void) | undefined;

  constructor(id: string) {
    this.id = id;
  }

  probe(answered: () => void): void {
    this.#answered = answered;
  }

  get isProbed(): boolean {
    return this.#answered !== undefined;
  }

  /** Proves that everything before the last probe has arrived. */
  prove(): void {
    const answered = this.#answered;
    this.#answered = undefined;
    answered?.();
  }

  send(_channel: string, type: string, payload: Record<string, unknown>): void {
    if (type === 'phone.message') {
      if (this.writesLeft-- <= 0) {
        this.isWritable = false;
        // Like a real socket, it reports its end during the write.
        this.onBroken();
        return;
      }
      this.seen.push([payload.queued_delivery === true ? 'queued' : 'live', payload.message_id]);
    } else this.seen.push([type.replace('proactive.', ''), payload.count ?? null]);
  }
}

function stores() {
  return {
    queue: createStorage<QueuedMessage>({ driver: memoryDriver() }),
    replies: createStorage<StoredReply>({ driver: memoryDriver() }),
    history: createStorage<PhoneHistoryItem>({ driver: memoryDriver() }),
    delivered: createStorage<{ seq: number; id: string }>({ driver: memoryDriver() }),
  };
}

async function setup(kept = stores(), clock = createTestClock()) {
  const log = createTestLog();
  const chats: SeenChat[] = [];
  const alive = (session: Session) => (session as unknown as { alive: boolean }).alive;
  const sessions = { isAlive: alive };
  const phone = await openPhoneMessaging({ ...kept, sessions, clock, log, seen: (chat) => chats.push(chat) });
  return { phone, clock, log, chats, kept, restart: () => setup(kept, clock) };
}

/** Polls for replies, and takes them. */
async function read(phone: PhoneMessaging, poll: Poll): Promise<Reply[]> {
  const { replies, sent } = await phone.poll(poll);
  sent(true);
  return replies;
}

/** The error of a change that is in effect, but not stored (contract 01 §6.7). */
const NOT_STORED = { kind: 'unavailable', extra: { applied: true, stored: false } };

/** Lets what was begun reach its next wait. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

const ids = (messages: { message_id: string }[]) => messages.map(({ message_id: id }) => id);

describe('message delivery (contract 04 §5.4)', () => {
  it('a failed write during a flush returns the rest to the front of the queue, unmarked', async () => {
    const { phone } = await setup();
    for (const id of ['a', 'b', 'c', 'd']) await phone.push({ text: 'x', message_id: id });
    const link = new FakeLink('one');
    link.onBroken = () => phone.ended(link);
    link.writesLeft = 2;
    phone.subscribe(link, 's');
    expect(link.seen).toEqual([
      ['subscribed', null],
      ['queued', 'a'],
      ['queued', 'b'],
    ]);
    expect(ids(phone.queued()), '§5.4a: nothing that was written is known to have arrived').toEqual([
      'a',
      'b',
      'c',
      'd',
    ]);
    expect(phone.queued()[0]).not.toHaveProperty('queued_delivery');
    await phone.push({ text: 'x', message_id: 'e' });
    const next = new FakeLink('two');
    phone.subscribe(next, 's');
    expect(next.seen).toEqual([
      ['subscribed', null],
      ['queued', 'a'],
      ['queued', 'b'],
      ['queued', 'c'],
      ['queued', 'd'],
      ['queued', 'e'],
      ['backlog.complete', 5],
    ]);
  });

  it('after a failed live write the earlier phone gets the message live; without one it is queued', async () => {
    const { phone } = await setup();
    const [one, two] = [new FakeLink('one'), new FakeLink('two')];
    phone.subscribe(one, 's');
    phone.subscribe(two, 's');
    two.writesLeft = 0;
    expect(await phone.push({ text: 'x', message_id: 'a' })).toEqual({ messageId: 'a', delivered: true });
    expect([one.seen.at(-1), two.seen.at(-1)]).toEqual([
      ['live', 'a'],
      ['subscribed', null],
    ]);
    one.writesLeft = 0;
    one.prove();
    expect(await phone.push({ text: 'x', message_id: 'b' })).toEqual({
      messageId: 'b',
      delivered: false,
      buffered: 1,
    });
  });

  it('the rest of a broken flush is the backlog of the next phone, with its own count', async () => {
    const { phone } = await setup();
    const [one, two] = [new FakeLink('one'), new FakeLink('two')];
    for (const id of ['a', 'b', 'c']) await phone.push({ text: 'x', message_id: id });
    two.writesLeft = 1;
    phone.subscribe(two, 's');
    phone.subscribe(one, 's');
    expect(two.seen).toEqual([
      ['subscribed', null],
      ['queued', 'a'],
    ]);
    expect(one.seen).toEqual([
      ['subscribed', null],
      ['queued', 'a'],
      ['queued', 'b'],
      ['queued', 'c'],
      ['backlog.complete', 3],
    ]);
  });

  it('§1.1 the session is checked before every push', async () => {
    const { phone } = await setup();
    const [one, two] = [new FakeLink('one'), new FakeLink('two')];
    phone.subscribe(one, 's');
    phone.subscribe(two, 's');
    (two.session as unknown as { alive: boolean }).alive = false;
    await phone.push({ text: 'x', message_id: 'a' });
    (one.session as unknown as { alive: boolean }).alive = false;
    expect(await phone.push({ text: 'x', message_id: 'b' })).toMatchObject({ delivered: false });
    expect([one.seen.at(-1), two.seen.at(-1)]).toEqual([
      ['live', 'a'],
      ['subscribed', null],
    ]);
  });

  it('messages and replies expire after 24 hours, in the store too', async () => {
    const { phone, clock, kept } = await setup();
    await phone.push({ text: 'x', message_id: 'old' });
    await phone.reply(new FakeLink('one'), { text: 'old', message_id: 'r' }, 'q');
    clock.advance(86_400_000);
    await phone.push({ text: 'x', message_id: 'new' });
    expect(ids(phone.queued())).toEqual(['old', 'new']);
    clock.advance(1);
    expect(ids(phone.queued())).toEqual(['new']);
    expect(await phone.push({ text: 'x', message_id: 'newer' })).toMatchObject({ buffered: 2 });
    expect(await kept.queue.getKeys()).toHaveLength(2);
    expect(await read(phone, { timeout: 0 })).toEqual([]);
  });

  it('writes once per change, even for the 51st message, a replacement and a full flush', async () => {
    const kept = stores();
    const writes: string[] = [];
    for (const method of ['setItem', 'removeItem', 'clear'] as const) {
      const real = kept.queue[method].bind(kept.queue) as (...args: unknown[]) => Promise<void>;
      Object.assign(kept.queue, {
        [method]: (...args: unknown[]) => {
          writes.push(method);
          return real(...args);
        },
      });
    }
    const { phone } = await setup(kept);
    for (let n = 1; n <= 51; n++) await phone.push({ text: 'x', message_id: `m${n}` });
    expect(writes.splice(0)).toEqual(Array(51).fill('setItem'));
    await phone.push({ text: 'y', message_id: 'm20' });
    expect(writes.splice(0)).toEqual(['setItem']);
    await phone.cancel('m30');
    expect(writes.splice(0)).toEqual(['removeItem']);
    await phone.cancel('unknown');
    expect(writes.splice(0)).toEqual([]);
    const link = new FakeLink('one');
    phone.subscribe(link, 's');
    expect(writes.splice(0), '§5.4a: they are kept until they have arrived').toEqual([]);
    link.prove();
    expect(writes.splice(0)).toEqual(['clear']);
    await phone.push({ text: 'live', message_id: 'l' });
    expect(writes.splice(0)).toEqual(['setItem']);
    link.prove();
    expect(writes.splice(0)).toEqual(['clear']);
    expect(await kept.queue.getKeys()).toEqual([]);
  });

  it('a message that cannot be stored is not queued, a reply not acknowledged', async () => {
    const kept = stores();
    const full = () => Promise.reject(new Error('disk full'));
    const { phone, log } = await setup({
      ...kept,
      queue: Object.assign(kept.queue, { setItem: full }),
      replies: Object.assign(kept.replies, { setItem: full }),
      history: Object.assign(kept.history, { setItem: full }),
    });
    await expect(phone.push({ text: 'secret', message_id: 'a' })).rejects.toMatchObject({ kind: 'unavailable' });
    expect(phone.queued()).toEqual([]);
    const link = new FakeLink('one');
    await expect(phone.reply(link, { text: 'secret' }, 'q')).rejects.toThrow('disk full');
    expect(link.seen).toEqual([]);
    expect(await read(phone, { timeout: 0 })).toEqual([]);
    // With a phone connected, nothing needs to be stored.
    phone.subscribe(link, 's');
    expect(await phone.push({ text: 'secret', message_id: 'b' })).toMatchObject({ delivered: true });
    expect(log.lines.join('\n')).not.toContain('secret');
  });

  it('a message that cannot be stored displaces none from a full queue', async () => {
    const kept = stores();
    const { phone, clock, restart } = await setup(kept);
    const states: string[] = [];
    const watch = new FakeLink('mirror');
    watch.send = (_channel, type, { message_id, state }: Record<string, unknown>) => {
      if (type === 'proactive.history') states.push(`${message_id} ${state}`);
    };
    phone.mirror(watch, 's');
    const asked = phone.ask({ text: 'Deploy?', timeoutMs: 60_000 });
    let answer: unknown;
    void asked.then((result) => {
      answer = result;
    });
    await settled();
    const all = [...ids(phone.queued()), ...Array.from({ length: 49 }, (_, at) => `m${at}`)];
    for (const message_id of all.slice(1)) await phone.push({ text: 'x', message_id });
    expect(ids(phone.queued())).toEqual(all);
    const { setItem } = kept.queue;
    states.length = 0;
    Object.assign(kept.queue, { setItem: () => Promise.reject(new Error('disk full')) });
    const unavailable = { kind: 'unavailable' };
    await Promise.all(
      ['n1', 'n2'].map((message_id) =>
        expect(phone.push({ text: 'x', message_id })).rejects.toMatchObject(unavailable),
      ),
    );
    expect(ids(phone.queued())).toEqual(all);
    expect([answer, states.filter((state) => state.endsWith('dropped'))]).toEqual([undefined, []]);
    Object.assign(kept.queue, { setItem });
    const after = await restart();
    // The caller of the question ended with the process.
    expect(ids(after.phone.queued())).toEqual(all.slice(1));
    clock.advance(1);
    expect(await phone.push({ text: 'x', message_id: 'n3' })).toMatchObject({ buffered: 50 });
    await settled();
    expect(ids(phone.queued())).toEqual([...all.slice(1), 'n3']);
    expect(ids((await restart()).phone.queued())).toEqual([...all.slice(1), 'n3']);
    expect(states).toContain(`${all[0]} dropped`);
    expect(await asked).toMatchObject({ reason: 'gone' });
  });

  it('a message that cannot be stored does not replace the one that waits under its id', async () => {
    const kept = stores();
    const { phone, restart } = await setup(kept);
    for (const id of ['a', 'b', 'c']) await phone.push({ text: `first ${id}`, message_id: id });
    const seen = ({ phone }: { phone: PhoneMessaging }) => [
      phone.queued().map(({ text }) => text),
      phone.history({ since: 0, limit: 9 }).items.map((item) => [item.seq, item.text, item.state]),
    ];
    const before = seen({ phone });
    const { setItem } = kept.queue;
    Object.assign(kept.queue, { setItem: () => Promise.reject(new Error('disk full')) });
    const again = { text: 'second', message_id: 'b', metadata: { question: true } };
    await expect(phone.push(again)).rejects.toMatchObject({ kind: 'unavailable' });
    expect(seen({ phone })).toEqual(before);
    await settled();
    Object.assign(kept.queue, { setItem });
    expect(seen(await restart())).toEqual(before);
    await phone.push(again);
    expect(seen(await restart())[0]).toEqual(['first a', 'second', 'first c']);
  });

  it('a question stays open when its answer cannot be stored', async () => {
    const kept = stores();
    const { phone } = await setup(kept);
    const link = new FakeLink('one');
    phone.subscribe(link, 's');
    await phone.push({ text: '?', message_id: 'a', metadata: { question: true } });
    const { setItem } = kept.replies;
    Object.assign(kept.replies, { setItem: () => Promise.reject(new Error('disk full')) });
    await expect(phone.reply(link, { text: 'x', reply_to: 'a', message_id: 'r' }, 'q')).rejects.toThrow('disk full');
    Object.assign(kept.replies, { setItem });
    expect(phone.history({ since: 0, limit: 9 }).items).toMatchObject([{ message_id: 'a', state: 'shown' }]);
    expect(await phone.withdraw('a')).toBe(1);
  });

  it.each(['a', undefined])('what was cancelled (%s) while the disk was full stays cancelled', async (which) => {
    const kept = stores();
    const { phone, restart } = await setup(kept);
    for (const id of which ? ['a', 'b'] : ['a', 'b', 'c']) await phone.push({ text: 'x', message_id: id });
    const [removeItem, clear] = [kept.queue.removeItem, kept.queue.clear];
    const full = () => Promise.reject(new Error('disk full'));
    Object.assign(kept.queue, { removeItem: full, clear: full });
    await expect(phone.cancel(which)).rejects.toMatchObject(NOT_STORED);
    Object.assign(kept.queue, { removeItem, clear });
    await phone.push({ text: 'x', message_id: 'later' });
    const after = await restart();
    expect(ids(after.phone.queued())).toEqual([...(which ? ['b'] : []), 'later']);
  });

  it.each(['cancel', 'withdraw'] as const)('a %s that cannot be stored fails, and is stored later', async (how) => {
    const kept = stores();
    const { phone, clock, restart } = await setup(kept);
    for (const id of ['a', 'b']) await phone.push({ text: 'x', message_id: id });
    const { removeItem } = kept.queue;
    Object.assign(kept.queue, { removeItem: () => Promise.reject(new Error('disk full')) });
    await expect(phone[how]('a')).rejects.toMatchObject(NOT_STORED);
    expect(ids(phone.queued())).toEqual(['b']);
    expect(ids((await restart()).phone.queued()), 'a kill -9 brings it back').toEqual(['a', 'b']);
    clock.advance(5_000);
    await settled();
    Object.assign(kept.queue, { removeItem });
    clock.advance(5_000);
    await settled();
    expect(ids((await restart()).phone.queued())).toEqual(['b']);
    const writes = vi.spyOn(kept.queue, 'removeItem');
    clock.advance(60_000);
    await settled();
    expect(writes).not.toHaveBeenCalled();
    expect(await phone[how]('b')).toBe(1);
  });

  it('a withdrawal of a question that a phone shows fails if it cannot be stored', async () => {
    const kept = stores();
    const { phone, clock, restart } = await setup(kept);
    phone.subscribe(new FakeLink('one'), 's');
    await phone.push({ text: '?', message_id: 'q', metadata: { question: true } });
    const state = async () => (await restart()).phone.history({ since: 0, limit: 9 }).items[0]?.state;
    const { setItem } = kept.history;
    Object.assign(kept.history, { setItem: () => Promise.reject(new Error('disk full')) });
    await expect(phone.withdraw('q')).rejects.toMatchObject(NOT_STORED);
    Object.assign(kept.history, { setItem });
    expect(await state()).not.toBe('cancelled');
    clock.advance(5_000);
    await settled();
    expect(await state()).toBe('cancelled');
  });

  it('a reply whose acknowledgement could not be stored has no reader after a restart either', async () => {
    const kept = stores();
    const { phone, restart } = await setup(kept);
    await phone.reply(new FakeLink('one'), { text: 'x', message_id: 'r' }, 'q');
    const { leaseId = '' } = await phone.poll({ timeout: 0, lease: 1_000 });
    const { clear } = kept.replies;
    Object.assign(kept.replies, { clear: () => Promise.reject(new Error('disk full')) });
    await expect(phone.acknowledge(leaseId)).rejects.toMatchObject(NOT_STORED);
    Object.assign(kept.replies, { clear });
    await phone.acknowledge(leaseId);
    const after = await restart();
    after.clock.advance(2_000);
    expect(await read(after.phone, { timeout: 0 })).toEqual([]);
  });

  it('an acknowledgement that could not be stored is stored later by itself', async () => {
    const kept = stores();
    const { phone, clock, restart } = await setup(kept);
    await phone.reply(new FakeLink('one'), { text: 'x', message_id: 'r' }, 'q');
    const { leaseId = '' } = await phone.poll({ timeout: 0, lease: 1_000 });
    const { clear } = kept.replies;
    Object.assign(kept.replies, { clear: () => Promise.reject(new Error('disk full')) });
    await expect(phone.acknowledge(leaseId)).rejects.toMatchObject(NOT_STORED);
    clock.advance(5_000);
    expect(await read(phone, { timeout: 0 })).toEqual([]);
    await settled();
    Object.assign(kept.replies, { clear });
    clock.advance(5_000);
    await settled();
    expect(await read((await restart()).phone, { timeout: 0 })).toEqual([]);
  });

  it('a malformed stored record is skipped with a warning', async () => {
    const kept = stores();
    await kept.queue.setItem('0', { seq: 1 } as QueuedMessage);
    await kept.queue.setItem('1', { seq: 2, message: { text: 5 } } as unknown as QueuedMessage);
    await kept.replies.setItem('0', { reply: { text: 'x' } } as unknown as StoredReply);
    const { phone, log } = await setup(kept);
    expect(phone.queued()).toEqual([]);
    expect(log.lines.filter((line) => line.includes('cannot be read'))).toHaveLength(3);
  });

  it('reports the chat of every message and reply', async () => {
    const { phone, chats, clock } = await setup();
    await phone.push({ text: 'x', message_id: 'a', title: 'T' });
    await phone.push({ text: 'x', message_id: 'b', chat_id: 'c' });
    await phone.reply(new FakeLink('one'), { text: 'x', chat_id: 't-new', message_id: 'r' }, 'q');
    const at = clock.now();
    expect(chats).toEqual([
      { chatId: null, title: 'T', messageId: 'a', at },
      { chatId: 'c', title: null, messageId: 'b', at },
      { chatId: 't-new', title: null, messageId: 'r', at },
    ]);
  });

  it('an aborted poll takes nothing, and a shutdown answers the waiting ones', async () => {
    const { phone, clock } = await setup();
    const gone = new AbortController();
    const first = read(phone, { timeout: 5000, signal: gone.signal });
    const second = read(phone, { timeout: 5000 });
    gone.abort();
    await phone.reply(new FakeLink('one'), { text: 'a', message_id: 'r' }, 'q');
    expect(await first).toEqual([]);
    expect(await second).toMatchObject([{ text: 'a' }]);
    await phone.reply(new FakeLink('one'), { text: 'b', message_id: 's' }, 'q');
    expect(await read(phone, { timeout: 0, signal: gone.signal })).toEqual([]);
    expect(await read(phone, { timeout: 0 })).toMatchObject([{ text: 'b' }]);
    const third = read(phone, { timeout: 5000 });
    const fourth = read(phone, { timeout: 4000 });
    clock.advance(4000);
    expect(await fourth).toEqual([]);
    await phone.stop();
    expect(await third).toEqual([]);
    expect(await read(phone, { timeout: 5000 })).toEqual([]);
    expect(phone.replies.waiting()).toBe(0);
    clock.advance(10);
    expect(clock.pending).toBe(0);
  });

  it('beyond 64 polls the oldest is answered empty', async () => {
    const { phone } = await setup();
    const polls = Array.from({ length: 65 }, () => read(phone, { timeout: 5000 }));
    expect(await polls[0]).toEqual([]);
    expect(phone.replies.waiting()).toBe(64);
    await phone.stop();
  });
});

/** A simple sequential model: a queue, a stack of phones, what each must have received and what may not have arrived. */
class Model {
  queue: { id: string; at: number; seq: number }[] = [];
  custody: { id: string; at: number; seq: number; link: number; isCovered: boolean }[] = [];
  probed = new Set<number>();
  phones: { link: number; left: number }[] = [];
  seen = new Map<number, Seen[]>();
  /** Ids that have arrived, the last 1,000. */
  delivered = new Set<string>();

  arrived(id: string) {
    this.delivered.add(id);
    if (this.delivered.size > 1000) this.delivered.delete([...this.delivered][0] as string);
  }

  tell = (link: number, ...message: Seen) => {
    const seen = this.seen.get(link) ?? [];
    this.seen.set(link, seen);
    seen.push(message);
  };

  prune(now: number) {
    this.queue = this.queue.filter(({ at }) => now - at <= 86_400_000);
  }

  /** A socket has ended: what it may not have got goes back to its place. */
  end(link: number, now: number) {
    this.phones = this.phones.filter((phone) => phone.link !== link);
    this.queue = [...this.queue, ...this.custody.filter((held) => held.link === link)].sort((a, b) => a.seq - b.seq);
    this.custody = this.custody.filter((held) => held.link !== link);
    this.probed.delete(link);
    this.prune(now);
  }

  /** Asks every phone that has not been asked. */
  probe() {
    for (const { link } of this.custody) {
      if (this.probed.has(link)) continue;
      this.probed.add(link);
      for (const held of this.custody) if (held.link === link) held.isCovered = true;
    }
  }

  /** Delivers the queue. `live` is the id of a message that was not queued before. */
  deliver(now: number, live?: string) {
    let flushed = 0;
    for (;;) {
      const phone = this.phones.at(-1);
      const head = this.queue[0];
      if (!phone || !head) {
        if (phone && flushed > 0) this.tell(phone.link, 'backlog.complete', flushed);
        this.queue = this.queue.slice(-50);
        return;
      }
      if (phone.left <= 0) {
        this.end(phone.link, now);
        flushed = 0;
        continue;
      }
      phone.left--;
      this.queue.shift();
      this.custody = [...this.custody, { ...head, link: phone.link, isCovered: false }];
      for (const { id } of this.custody.splice(0, this.custody.length - 50)) this.arrived(id);
      this.tell(phone.link, head.id === live ? 'live' : 'queued', head.id);
      if (head.id !== live) flushed++;
    }
  }
}

const action = fc.oneof(
  { weight: 6, arbitrary: fc.record({ do: fc.constant('push' as const), id: fc.nat({ max: 70 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('flood' as const), count: fc.integer({ min: 1, max: 60 }) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('subscribe' as const), link: fc.nat({ max: 3 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('leave' as const), link: fc.nat({ max: 3 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('end' as const), link: fc.nat({ max: 3 }) }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('prove' as const), link: fc.nat({ max: 3 }) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('break' as const),
      link: fc.nat({ max: 3 }),
      after: fc.nat({ max: 4 }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('cancel' as const), id: fc.nat({ max: 70 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('clear' as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('wait' as const), hours: fc.nat({ max: 14 }) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('restart' as const) }) },
);

it('behaves like a simple sequential model, over restarts', { timeout: 60_000 }, async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(action, { maxLength: 60 }), async (actions) => {
      let real = await setup();
      const model = new Model();
      /** The current sockets. A broken one is replaced by a new one of the same phone. */
      let links = new Map<number, FakeLink>();
      const all: [number, FakeLink][] = [];
      const linkOf = (number: number) => {
        const known = links.get(number);
        if (known?.isWritable) return known;
        const link = new FakeLink(`${number}-${all.length}`);
        link.onBroken = () => real.phone.ended(link);
        links.set(number, link);
        all.push([number, link]);
        return link;
      };
      let flood = 1000;
      let seq = 0;
      const push = async (id: string) => {
        const now = real.clock.now();
        model.prune(now);
        const same = model.queue.find((entry) => entry.id === id);
        if (model.delivered.has(id) || model.custody.some((held) => held.id === id)) {
          const duplicate = { messageId: id, delivered: true, isDuplicate: true };
          expect(await real.phone.push({ text: 'x', message_id: id })).toEqual(duplicate);
          return;
        }
        seq++;
        if (same) same.at = now;
        else model.queue.push({ id, at: now, seq });
        model.deliver(now, same || model.queue.length > 1 ? undefined : id);
        model.probe();
        const delivered = !model.queue.some((entry) => entry.id === id);
        const expected = { messageId: id, delivered, ...(delivered ? {} : { buffered: model.queue.length }) };
        expect(await real.phone.push({ text: 'x', message_id: id })).toEqual(expected);
      };
      for (const step of actions) {
        model.prune(real.clock.now());
        if (step.do === 'push') await push(`m${step.id}`);
        else if (step.do === 'flood') for (let n = 0; n < step.count; n++) await push(`f${flood++}`);
        else if (step.do === 'subscribe') {
          const link = linkOf(step.link);
          model.phones = model.phones.filter((phone) => phone.link !== step.link);
          model.phones.push({ link: step.link, left: link.writesLeft });
          model.tell(step.link, 'subscribed', null);
          model.deliver(real.clock.now());
          real.phone.subscribe(link, 's');
        } else if (step.do === 'leave') {
          model.phones = model.phones.filter((phone) => phone.link !== step.link);
          model.deliver(real.clock.now());
          const link = links.get(step.link);
          if (link) real.phone.leave(link);
        } else if (step.do === 'end') {
          model.end(step.link, real.clock.now());
          model.deliver(real.clock.now());
          const link = links.get(step.link);
          if (link) real.phone.ended(link);
          links.delete(step.link);
        } else if (step.do === 'prove') {
          const link = links.get(step.link);
          expect(link?.isWritable === true && link.isProbed).toBe(model.probed.has(step.link));
          if (!model.probed.delete(step.link)) continue;
          for (const { id } of model.custody.filter((held) => held.link === step.link && held.isCovered)) {
            model.arrived(id);
          }
          model.custody = model.custody.filter((held) => held.link !== step.link || !held.isCovered);
          link?.prove();
        } else if (step.do === 'break') {
          linkOf(step.link).writesLeft = step.after;
          const phone = model.phones.find(({ link }) => link === step.link);
          if (phone) phone.left = step.after;
        } else if (step.do === 'cancel' || step.do === 'clear') {
          const id = step.do === 'cancel' ? `m${step.id}` : undefined;
          const before = model.queue.length;
          model.queue = id === undefined ? [] : model.queue.filter((entry) => entry.id !== id);
          expect(await real.phone.cancel(id)).toBe(before - model.queue.length);
        } else if (step.do === 'wait') real.clock.advance(step.hours * 3_600_000);
        else {
          // The queue survives the process, the sockets do not.
          real = await real.restart();
          for (const { link } of [...model.custody]) model.end(link, real.clock.now());
          model.phones = [];
          model.probed.clear();
          model.queue = model.queue.slice(-50);
          links = new Map();
        }
        model.probe();
        model.prune(real.clock.now());
        expect(ids(real.phone.queued())).toEqual(model.queue.map(({ id }) => id));
      }
      const stored = await (await real.restart()).phone.queued();
      for (const { link } of [...model.custody]) model.end(link, real.clock.now());
      model.queue = model.queue.slice(-50);
      expect(ids(stored)).toEqual(model.queue.map(({ id }) => id));
      for (const [number, seen] of model.seen) {
        expect(all.filter(([link]) => link === number).flatMap(([, link]) => link.seen)).toEqual(seen);
      }
    }),
    { numRuns: runs(150) },
  );
});

import { describe, expect, it } from 'vitest';
import { createMessages } from '../../../lib/companion/messages.ts';
import { hashOfShown } from '../../../lib/phone/shown.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { DEEP } from './link/support.ts';

type Sent = [type: string, payload: Record<string, unknown>];

function setup({ enabled = true, isSeen = false } = {}) {
  const listeners = new Set<(settings: { messagesEnabled: boolean }) => void>();
  const told: unknown[][] = [];
  let settings = { messagesEnabled: enabled };
  const messages = createMessages({
    settings: {
      get: () => settings,
      onChange(listener: (settings: never) => void) {
        listeners.add(listener as never);
        return () => void listeners.delete(listener as never);
      },
    } as never,
    clock: createTestClock(),
    log: createTestLog(),
    onMessage({ messageId }, surface) {
      told.push([messageId, surface]);
      return isSeen;
    },
    onBacklog: (count) => told.push(['backlog', count]),
    onAcknowledged: ({ message_id: id }, late) => told.push(['acknowledged', id, ...(late === null ? [] : [late])]),
    onClosed: ({ messageId }, reason) => told.push(['closed', messageId, reason]),
    onSubscribed: (isSubscribed) => told.push(['subscribed', isSubscribed]),
  });
  const sent: Sent[] = [];
  return {
    messages,
    told,
    sent,
    listeners,
    online: () => messages.channel.online((type, payload) => sent.push([type, payload])),
    gets: (type: string, payload: Record<string, unknown>) =>
      messages.channel.message({ channel: 'proactive', type, id: 'x', payload, badPayload: false }),
    toggle(messagesEnabled: boolean) {
      settings = { messagesEnabled };
      for (const listener of listeners) listener(settings);
    },
  };
}

const message = (id: string, more: Record<string, unknown> = {}) => ({ message_id: id, text: 'hello', ...more });

describe('messages on the companion (contract 04 §5)', () => {
  it('subscribes after each auth.ok while the toggle is on, and when it is switched', () => {
    const phone = setup({ enabled: false });
    const end = phone.online();
    expect(phone.sent).toEqual([]);
    phone.toggle(true);
    phone.toggle(true);
    phone.gets('proactive.subscribed', { ts: 1 });
    end();
    phone.online();
    phone.toggle(false);
    phone.gets('proactive.subscribed', { ts: 1 });
    expect(phone.sent.map(([type]) => type)).toEqual([
      'proactive.subscribe',
      'proactive.subscribe',
      'proactive.unsubscribe',
    ]);
    expect(phone.told).toEqual([
      ['subscribed', true],
      ['subscribed', false],
    ]);
    phone.messages.close();
    expect(phone.listeners.size).toBe(0);
  });

  it('says what its owner has seen, again when the message comes again, and nothing else (contract 09 §1)', () => {
    const phone = setup({ isSeen: true });
    const end = phone.online();
    phone.gets('phone.message', message('m1'));
    phone.gets('phone.message', { message_id: '', text: 'malformed' });
    end();
    phone.gets('phone.message', message('m2'));
    phone.online();
    phone.gets('phone.message', message('m2'));
    expect(phone.sent.filter(([type]) => type === 'proactive.shown')).toEqual([
      ['proactive.shown', { message_id: 'm1' }],
      ['proactive.shown', { message_id: 'm2' }],
    ]);
    expect(phone.told).toEqual([
      ['m1', 'notification'],
      ['m2', 'notification'],
    ]);
    const unseen = setup();
    unseen.online();
    unseen.gets('phone.message', message('m1'));
    expect(unseen.sent.map(([type]) => type)).toEqual(['proactive.subscribe']);
  });

  it.each([
    [null, false, 'notification'],
    ['default', true, 'notification'],
    ['notification', true, 'notification'],
    ['something new', true, 'notification'],
    ['inbox', true, 'silent'],
    ['inbox', false, 'silent'],
    ['session', false, 'notification'],
    ['session', true, 'open'],
  ])('§5.3 surfacing %j with a thread open (%s): %s', (surfacing, isOpen, surface) => {
    const phone = setup();
    phone.messages.setThreadOpen(isOpen);
    phone.gets('phone.message', message('a', { surfacing }));
    expect(phone.told).toEqual([['a', surface]]);
    // It is kept in any case.
    expect(phone.messages.list()).toMatchObject([{ messageId: 'a' }]);
  });

  it('§5.3 keeps the 100 newest, without duplicates', () => {
    const phone = setup();
    for (let n = 1; n <= 103; n++) {
      phone.gets('phone.message', message(`m${n}`));
      phone.gets('phone.message', message(`m${n}`, { queued_delivery: true }));
    }
    expect(phone.told).toHaveLength(103);
    const kept = phone.messages.list();
    expect([kept.length, kept[0]?.messageId, kept.at(-1)?.messageId]).toEqual([100, 'm103', 'm4']);
  });

  it('§5.4a knows the last 1,000 ids, and shows each message once', () => {
    const phone = setup();
    for (let n = 1; n <= 1001; n++) phone.gets('phone.message', message(`m${n}`));
    for (let n = 1001; n >= 1; n--) phone.gets('phone.message', message(`m${n}`, { queued_delivery: true }));
    expect(phone.told.slice(1001)).toEqual([['m1', 'notification']]);
    expect(phone.messages.list()).toHaveLength(100);
  });

  it('ignores malformed messages', () => {
    const phone = setup();
    for (const bad of [{}, { message_id: 5, text: 'x' }, message('a', { title: {} }), message('b', { chat_id: [] })]) {
      phone.gets('phone.message', bad);
    }
    expect([phone.told, phone.messages.list()]).toEqual([[], []]);
    phone.gets('proactive.backlog.complete', { count: 2, ts: 1 });
    expect(phone.told).toEqual([['backlog', 2]]);
  });

  it('sends a reply again, under the same id, until it is acknowledged', () => {
    const phone = setup();
    expect(() => phone.messages.reply({ text: 'x' })).toThrow(/no message/);
    phone.gets('phone.message', message('m1', { chat_id: 'c1' }));
    const first = phone.messages.reply({ text: 'one' });
    expect(first).toMatchObject({ text: 'one', chat_id: 'c1', reply_to: 'm1' });
    expect(first.shown).toBe(hashOfShown({ title: null, text: 'hello', answers: [] }));
    const end = phone.online();
    const second = phone.messages.reply({ text: 'two', chatId: 't-new' });
    expect(second).toMatchObject({ chat_id: 't-new', reply_to: null });
    expect(second).not.toHaveProperty('shown');
    end();
    phone.online();
    const replies = () => phone.sent.filter(([type]) => type === 'proactive.reply').map(([, { message_id: id }]) => id);
    const [a, b] = [first.message_id, second.message_id];
    expect(replies()).toEqual([a, b, a, b]);
    phone.gets('proactive.reply.ack', { client_msg_id: a, status: 'received', ts: 1 });
    phone.gets('proactive.reply.ack', { client_msg_id: a, status: 'received', ts: 1 });
    phone.gets('proactive.reply.ack', { client_msg_id: 5 });
    phone.online();
    expect(replies()).toEqual([a, b, a, b, b]);
    expect(phone.told.filter(([what]) => what === 'acknowledged')).toEqual([['acknowledged', a]]);
    expect(() => phone.messages.reply({ text: ' ' })).toThrow(/empty/);
    for (let n = 1; n < 100; n++) phone.messages.reply({ text: 'x' });
    expect(() => phone.messages.reply({ text: 'x' })).toThrow(/too many/);
  });

  it('09 §10: the newest open question is offered until it is answered, closed or put aside', () => {
    const phone = setup();
    phone.online();
    const ask = (id: string, answers: unknown) => phone.gets('phone.message', message(id, { metadata: { answers } }));
    const question = () => phone.messages.question()?.messageId;
    ask('m', undefined);
    ask('bad', ['a', 'a']);
    expect(question()).toBeUndefined();
    for (const id of ['q1', 'q2', 'q3', 'q4']) ask(id, ['yes', 'no']);
    expect(question()).toBe('q4');
    expect(phone.messages.reply({ replyTo: 'q4', answerIndex: 1 })).toMatchObject({
      text: 'no',
      reply_to: 'q4',
      answer_index: 1,
    });
    expect(() => phone.messages.reply({ replyTo: 'q3', answerIndex: 2 })).toThrow(/does not offer/);
    expect(() => phone.messages.reply({ replyTo: 'q3' })).toThrow(/empty/);
    phone.messages.putAside('q3');
    phone.gets('phone.message.cancelled', { message_id: 'q2', reason: 'withdrawn' });
    phone.gets('phone.message.cancelled', { message_id: 'q2', reason: 'withdrawn' });
    phone.gets('phone.message.cancelled', { message_id: 5 });
    ask('q0', ['yes', 'no']);
    phone.gets('phone.message.cancelled', { message_id: 'q0', reason: JSON.parse(DEEP) });
    expect(question()).toBe('q1');
    expect(phone.told.filter(([what]) => what === 'closed')).toEqual([
      ['closed', 'q2', 'withdrawn'],
      ['closed', 'q0', 'withdrawn'],
    ]);
    const { message_id: id } = phone.messages.reply({ replyTo: 'q1', text: 'later' });
    expect(question()).toBeUndefined();
    phone.gets('proactive.reply.ack', { client_msg_id: id, late: 'answered' });
    expect(phone.told.at(-1)).toEqual(['acknowledged', id, 'answered']);
  });
});

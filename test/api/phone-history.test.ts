import { expect, it } from 'vitest';
import { bearer, describeMatrix, pair, post, type Target } from '../support/relay.ts';

const asTool = { headers: { 'x-svc-operator': '1' } };
const say = async (target: Target, text: string, id: string) => {
  const response = await target.operator('/phone/message', { ...post({ text, message_id: id }), ...asTool });
  expect(response.status).toBe(200);
};
const historyOf = async (target: Target, query = '') =>
  (await (await target.operator(`/phone/history${query}`, asTool)).json()) as {
    items: { seq: number; kind: string; message_id: string; state: string; text: string }[];
    latest: number;
  };
const states = async (target: Target) =>
  (await historyOf(target)).items.map(({ seq, kind, message_id: id, state }) => [seq, kind, id, state]);

describeMatrix('history of messages (contract 09 §1)', (start) => {
  it('§1: shows what became of messages and replies', async () => {
    const target = await start();
    await say(target, 'one', 'm1');
    await say(target, 'two', 'm2');
    await target.operator('/phone/outbound?message_id=m2', { method: 'DELETE', ...asTool });
    const phone = await pair(target);
    phone.client.send('proactive', 'proactive.subscribe');
    await phone.client.next({ type: 'proactive.backlog.complete' });
    phone.client.send('proactive', 'proactive.shown', { message_id: 'm1' });
    await say(target, 'three', 'm3');
    await phone.client.next({ id: 'm3' });
    phone.client.send('proactive', 'proactive.reply', { text: 'yes', reply_to: 'm3', message_id: 'r1' }, 'r1');
    await phone.client.next({ id: 'r1' });
    expect(await states(target)).toEqual([
      [1, 'message', 'm1', 'shown'],
      [2, 'message', 'm2', 'cancelled'],
      [3, 'message', 'm3', 'answered'],
      [4, 'reply', 'r1', 'waiting'],
    ]);
    await target.operator('/phone/replies?timeout=0');
    const page = await historyOf(target, '?since=2&limit=1');
    expect(page).toMatchObject({ items: [{ seq: 3, text: 'three', state: 'answered' }], latest: 4 });
    expect((await states(target)).at(-1)).toEqual([4, 'reply', 'r1', 'taken']);

    for (const query of ['?limit=0', '?limit=201', '?limit=x', '?since=-1', '?since=', '?limit=1.5']) {
      expect((await target.operator(`/phone/history${query}`, asTool)).status, query).toBe(400);
    }
    expect((await target.fetch('/phone/history', { headers: bearer(phone.token) })).status).toBe(200);
    expect((await target.fetch('/phone/history', { headers: bearer('wrong') })).status).toBe(401);
  });

  it('§1: a mirror gets a copy of every message, takes none away, and answers like any phone', async () => {
    const target = await start();
    await say(target, 'before', 'm0');
    const web = await pair(target);
    web.client.send('proactive', 'proactive.subscribe', { mirror: true }, 'mine');
    await web.client.next({ type: 'proactive.subscribed', id: 'mine' });
    await say(target, 'queued', 'm1');
    expect((await web.client.next({ id: 'm1' })).payload).toMatchObject({ text: 'queued', mirrored: true });

    const phone = await pair(target);
    phone.client.send('proactive', 'proactive.subscribe');
    await phone.client.next({ type: 'proactive.backlog.complete' });
    await say(target, 'live', 'm2');
    const { payload } = await phone.client.next({ id: 'm2' });
    expect(payload).not.toHaveProperty('mirrored');
    expect((await web.client.next({ id: 'm2' })).payload).toMatchObject({ text: 'live', mirrored: true });

    web.client.send('proactive', 'proactive.reply', { text: 'me too', reply_to: 'm2', message_id: 'r1' }, 'r1');
    await web.client.next({ id: 'r1' });
    // No flush: the copies are all that it ever got.
    expect(web.client.frames.filter(({ type }) => type === 'phone.message')).toEqual([]);
    // The target leaves: the mirror does not take its place.
    phone.client.send('proactive', 'proactive.unsubscribe');
    phone.client.send('system', 'ping', {}, 'p');
    await phone.client.next({ id: 'p' });
    const answer = await target.operator('/phone/message', { ...post({ text: 'none' }), ...asTool });
    expect(await answer.json()).toMatchObject({ delivered: false, queued: true });
    // It becomes a target when it asks to.
    web.client.send('proactive', 'proactive.subscribe');
    await web.client.next({ type: 'proactive.backlog.complete' });
  });
});

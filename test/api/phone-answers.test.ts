import { expect, it } from 'vitest';
import { describeMatrix, type Paired, pair, post, type Target } from '../support/relay.ts';

const asTool = { headers: { 'x-svc-operator': '1' } };
const say = (target: Target, body: Record<string, unknown>, path = '/phone/message') =>
  target.operator(path, { ...post(body), headers: { ...post(body).headers, ...asTool.headers } });
const read = async (target: Target, query = 'timeout=0') =>
  ((await (await target.operator(`/phone/replies?${query}`)).json()) as { replies: Record<string, unknown>[] }).replies;
const withdraw = async (target: Target, id: string) =>
  (await target.operator(`/phone/outbound?message_id=${id}`, { method: 'DELETE', ...asTool })).json();
const historyOf = async (target: Target) =>
  ((await (await target.operator('/phone/history', asTool)).json()) as { items: Record<string, unknown>[] }).items;
async function listen(target: Target, payload = {}): Promise<Paired> {
  const device = await pair(target);
  device.client.send('proactive', 'proactive.subscribe', payload);
  await device.client.next({ type: 'proactive.subscribed' });
  return device;
}
async function reply({ client }: Paired, id: string, payload: Record<string, unknown>) {
  client.send('proactive', 'proactive.reply', { message_id: id, ...payload }, id);
  return (await client.next({ type: 'proactive.reply.ack', id })).payload;
}

describeMatrix('answers to a question (contract 09 §10)', (start) => {
  it('§10: go to the phone in the metadata, given or from the text; bad ones are refused', async () => {
    const target = await start();
    const phone = await listen(target);
    const cases: [Record<string, unknown>, unknown][] = [
      [
        { text: 'Deploy?', answers: ['yes', 'no', 'later'] },
        { question: true, answers: ['yes', 'no', 'later'] },
      ],
      [
        { text: 'Go.', answers: ['ok'], metadata: { a: 1 } },
        { a: 1, question: true, answers: ['ok'] },
      ],
      [{ text: 'Deploy?' }, { question: true, answers: ['Yes', 'No'] }],
      [{ text: 'Which? 1. red 2. blue' }, { question: true, answers: ['red', 'blue'] }],
      [{ text: 'Deployed.' }, {}],
    ];
    for (const path of ['/phone/message', '/phone/outbound']) {
      for (const [at, [body, metadata]] of cases.entries()) {
        const id = `${path.slice(7)}-${at}`;
        expect((await say(target, { ...body, message_id: id }, path)).status).toBe(200);
        expect((await phone.client.next({ id })).payload.metadata).toEqual(metadata);
      }
      for (const answers of [[], ['a', 'b', 'c', 'd', 'e'], 'yes', [1], [''], ['x'.repeat(41)], ['a\n'], ['a', 'a']]) {
        const response = await say(target, { text: 'Deploy?', answers }, path);
        expect([response.status, await response.json()]).toEqual([
          400,
          { ok: false, error: expect.stringContaining('answers') },
        ]);
      }
    }
    const [item] = await historyOf(target);
    expect(item).toMatchObject({ message_id: 'message-0', question: true, answers: ['yes', 'no', 'later'] });
  });

  it('§10, §1: a tap keeps its index, with and without a lease; one that does not fit loses it', async () => {
    const target = await start();
    const phone = await listen(target);
    await say(target, { text: 'Deploy?', answers: ['yes', 'no'], message_id: 'q' });
    await phone.client.next({ id: 'q' });
    const taps = [
      { text: 'no', answer_index: 1, reply_to: 'q' },
      { text: 'no', answer_index: 0, reply_to: 'q' },
      { text: 'no', answer_index: 2, reply_to: 'q' },
      { text: 'no', answer_index: -1, reply_to: 'q' },
      { text: 'no', answer_index: '1', reply_to: 'q' },
      { text: 'no', answer_index: 1, reply_to: 'other' },
      { text: 'no', answer_index: 1 },
      { text: 'something else', reply_to: 'q' },
    ];
    for (const [at, tap] of taps.entries()) await reply(phone, `r${at}`, tap);
    const leased = await read(target, 'timeout=0&lease=1');
    expect(leased.map((one) => one.answer_index)).toEqual([1, ...Array(7).fill(undefined)]);
    expect(leased[1]).not.toHaveProperty('answer_index');
    await target.restart();
    const [first] = await read(target, 'timeout=5&lease=1');
    expect(first).toMatchObject({ text: 'no', reply_to: 'q', answer_index: 1 });
    const items = await historyOf(target);
    expect(items.find(({ message_id: id }) => id === 'r0')).toMatchObject({ answer_index: 1 });
    // A reader that waits gets it live.
    const again = await listen(target);
    await say(target, { text: 'Again?', message_id: 'q2' });
    const waiting = read(target, 'timeout=20&reply_to=q2');
    await reply(again, 'late', { text: 'Yes', answer_index: 0, reply_to: 'q2' });
    expect(await waiting).toMatchObject([{ text: 'Yes', answer_index: 0 }]);
  });

  it('§7: a question that is withdrawn is closed on phones and mirrors, and an answer comes too late', async () => {
    const target = await start();
    const [mirror, phone] = [await listen(target, { mirror: true }), await listen(target)];
    await say(target, { text: 'Deploy?', message_id: 'q' });
    await say(target, { text: 'Dinner.', message_id: 'm' });
    await phone.client.next({ id: 'm' });
    expect(await withdraw(target, 'm'), '04 §5.6: what is no question stays').toEqual({ cancelled: 0 });
    expect(await withdraw(target, 'q')).toEqual({ cancelled: 1 });
    expect(await withdraw(target, 'q')).toEqual({ cancelled: 0 });
    for (const { client } of [mirror, phone]) {
      const { payload } = await client.next({ type: 'phone.message.cancelled' });
      expect(payload).toEqual({ message_id: 'q', reason: 'withdrawn' });
    }
    expect(await reply(phone, 'r1', { text: 'Yes', answer_index: 0, reply_to: 'q' })).toMatchObject({
      status: 'received',
      late: 'withdrawn',
    });
    expect(await reply(phone, 'r2', { text: 'Why not?', reply_to: 'q' })).toMatchObject({ late: 'withdrawn' });
    expect(await read(target)).toMatchObject([{ text: 'Why not?' }]);
    const items = await historyOf(target);
    expect(items.map(({ message_id: id, state, late }) => [id, state, late])).toEqual([
      ['q', 'cancelled', undefined],
      ['m', 'sent', undefined],
      ['r1', 'taken', 'withdrawn'],
      ['r2', 'taken', 'withdrawn'],
    ]);
    phone.client.close();
    // A phone that was away is told when it is back, also after a restart.
    await target.restart();
    const back = await pair(target);
    back.client.send('proactive', 'proactive.subscribe');
    expect((await back.client.next({ type: 'phone.message.cancelled' })).payload.message_id).toBe('q');
  });

  it('§7: a question that still waits is withdrawn with its copies; of two taps the second is late', async () => {
    const target = await start();
    const mirror = await listen(target, { mirror: true });
    await say(target, { text: 'One?', message_id: 'q1' });
    expect(await withdraw(target, 'q1')).toEqual({ cancelled: 1 });
    const { payload } = await mirror.client.next({ type: 'phone.message.cancelled' });
    expect(payload).toEqual({ message_id: 'q1', reason: 'withdrawn' });
    const phone = await listen(target);
    await say(target, { text: 'Two?', message_id: 'q2' });
    await phone.client.next({ id: 'q2' });
    expect(await reply(mirror, 'r1', { text: 'Yes', answer_index: 0, reply_to: 'q2' })).not.toHaveProperty('late');
    expect(await reply(phone, 'r2', { text: 'No', answer_index: 1, reply_to: 'q2' })).toMatchObject({
      late: 'answered',
    });
    expect(await withdraw(target, 'q2')).toEqual({ cancelled: 0 });
  });
});

import { expect, it } from 'vitest';
import { replies } from '../support/phone-api.ts';
import { describeMatrix, pair } from '../support/relay.ts';

describeMatrix('messages to the phone (contract 04 §5)', (start) => {
  it('§5.5: keeps a hundred replies, texts of at most 1 MiB each, and 16 MiB in total', async () => {
    const target = await start();
    const phone = await pair(target);
    for (let n = 1; n <= 102; n++) {
      phone.client.send('proactive', 'proactive.reply', { text: `t${n}`, message_id: `r${n}` }, `q${n}`);
    }
    await phone.client.next({ id: 'q102' });
    const kept = await replies(target);
    expect([kept.length, kept[0].message_id, kept.at(-1).message_id]).toEqual([100, 'r3', 'r102']);
    phone.client.send('proactive', 'proactive.reply', { text: `x${'ü'.repeat(600_000)}`, message_id: 'long' }, 'q');
    await phone.client.next({ id: 'q' });
    const [long] = await replies(target);
    expect(new TextEncoder().encode(long.text)).toHaveLength(1024 * 1024 - 1);
    for (let n = 1; n <= 17; n++) {
      phone.client.send('proactive', 'proactive.reply', { text: 'x'.repeat(1_040_000), message_id: `b${n}` }, `z${n}`);
      await phone.client.next({ id: `z${n}` });
    }
    expect((await replies(target)).map(({ message_id: id }) => id)).toEqual(
      Array.from({ length: 16 }, (_, at) => `b${at + 2}`),
    );
  });

  it('§5.5: a reply and its history outlast a restart however long their JSON is', async () => {
    const target = await start();
    const phone = await pair(target);
    // 4 MB in JSON: twice what SQLite of the edge takes into a row.
    const text = `x${'\u0001'.repeat(600_000)}${'x'.repeat(400_000)}`;
    phone.client.send('proactive', 'proactive.reply', { text, message_id: 'escaped' }, 'q');
    expect((await phone.client.next({ id: 'q' })).type).toBe('proactive.reply.ack');
    await target.restart();
    const { items } = await (await target.operator('/phone/history', { headers: { 'x-svc-operator': '1' } })).json();
    expect(items.map((item: { message_id: string; text: string }) => [item.message_id, item.text === text])).toEqual([
      ['escaped', true],
    ]);
    const [kept] = await replies(target);
    expect([kept.message_id, kept.text === text]).toEqual(['escaped', true]);
  });
});

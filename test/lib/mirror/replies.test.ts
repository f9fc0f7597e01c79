import { describe, expect, it } from 'vitest';
import { Device, openWithDevice, readReplies } from './device.ts';

const settled = () => new Promise<void>((resolve) => setTimeout(resolve, 0));

describe('replies and notifications that come to the edge are home’s (12 §2)', () => {
  it('end the poll that waits at home, and are read once', async () => {
    const { world, device } = await openWithDevice();
    device.connect('edge');
    const polled = world.home.phone.poll({ timeout: 25_000 });
    await device.reply('r1', 'hello');
    await world.settle();
    const { replies, sent } = await polled;
    sent(true);
    expect(replies).toMatchObject([{ message_id: 'r1', text: 'hello' }]);
    expect([await readReplies(world, 'home'), await readReplies(world, 'edge')]).toEqual([[], []]);
  });

  it('wait for home while it is off, and come once after each side was killed at any frame', async () => {
    for (let frames = 0; frames < 6; frames++) {
      for (const crash of ['crashHome', 'crashEdge'] as const) {
        const { world, device } = await openWithDevice();
        await world.cut();
        device.connect('edge');
        await device.reply('r1', 'hello');
        device.receiveAll();
        expect(device.acknowledged).toEqual(['r1']);
        await world.heal();
        for (let n = 0; n < frames; n++) {
          await world.deliver('toEdge');
          await world.deliver('toHome');
        }
        if (crash === 'crashEdge') device.lost('edge');
        await world[crash]();
        world.edge.phone.restored();
        await world.settle();
        expect([frames, crash, await readReplies(world, 'home'), await readReplies(world, 'edge')]).toEqual([
          frames,
          crash,
          [['r1', 'hello']],
          [],
        ]);
      }
    }
  });

  it('answer the question that a caller waits with at home', async () => {
    const { world, device } = await openWithDevice();
    device.connect('edge');
    const asked = world.home.phone.ask({ text: 'Now?', answers: ['yes', 'no'], timeoutMs: 60_000 });
    await settled();
    await world.settle();
    device.receiveAll();
    await device.reply('r1', 'yes', { reply_to: device.shown[0], answer_index: 0 });
    await world.settle();
    expect(await asked).toMatchObject({ answer: 'yes', answer_index: 0, by: 'phone' });
    const states = (side: 'home' | 'edge') =>
      world[side].phone.history({ since: 0, limit: 9 }).items.map(({ kind, state }) => [kind, state]);
    expect(states('home')).toEqual([
      ['message', 'answered'],
      ['reply', 'taken'],
    ]);
    expect(states('edge')).toEqual(states('home'));
  });

  it('taken by a reader at the edge while home is off, a reply is in the history of home and read no more', async () => {
    const { world, device } = await openWithDevice();
    await world.cut();
    device.connect('edge');
    await device.reply('r1', 'hello');
    expect(await readReplies(world, 'edge')).toEqual([['r1', 'hello']]);
    await world.settle();
    expect(await readReplies(world, 'home')).toEqual([]);
    expect(world.home.phone.history({ since: 0, limit: 9 }).items).toMatchObject([
      { message_id: 'r1', state: 'taken' },
    ]);
  });

  it('stay as they are when another device replies under their id', async () => {
    const { world, device } = await openWithDevice();
    await world.cut();
    await world.edge.phone.push({
      message_id: 'q',
      text: 'Now?',
      metadata: { question: true, answers: ['yes', 'no'] },
    });
    await world.edge.phone.withdraw('q');
    device.connect('edge');
    await device.reply('r1', 'yes');
    const other = new Device(world);
    other.connect('edge');
    await other.reply('r1', 'no');
    // A tap on a closed question, which no reader gets.
    await other.reply('r1', 'no', { reply_to: 'q', answer_index: 1 });
    other.receiveAll();
    expect(other.acknowledged).toEqual(['r1', 'r1']);
    await world.settle();
    expect([await readReplies(world, 'home'), await readReplies(world, 'edge')]).toEqual([[['r1', 'yes']], []]);
  });

  it('keep others under their id waiting until home has them, even if a reader at the edge took them', async () => {
    const { world, device } = await openWithDevice();
    await world.cut();
    device.connect('edge');
    await device.reply('r1', 'yes');
    expect(await readReplies(world, 'edge')).toEqual([['r1', 'yes']]);
    const other = new Device(world);
    other.connect('edge');
    await expect(other.reply('r1', 'no')).rejects.toMatchObject({ kind: 'unavailable' });
    await world.settle();
    await other.reply('r1', 'no');
    await world.settle();
    expect(await readReplies(world, 'home')).toEqual([['r1', 'no']]);
    expect(world.home.phone.history({ since: 0, limit: 9 }).items).toMatchObject([
      { message_id: 'r1', text: 'yes', state: 'taken' },
      { message_id: 'r1', text: 'no', state: 'taken' },
    ]);
  });

  it('notifications come to home in their order', async () => {
    const { world } = await openWithDevice();
    await world.cut();
    for (const title of ['a', 'b']) world.edge.notifications.post({ title });
    await world.settle();
    expect(world.home.notifications.recent(10)).toEqual([{ title: 'b' }, { title: 'a' }]);
    for (let n = 0; n < 150; n++) world.edge.notifications.post({ title: String(n) });
    await world.settle();
    expect(world.home.notifications.recent(1)).toEqual([{ title: '149' }]);
  });
});

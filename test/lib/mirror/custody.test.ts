import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { runs } from '../../support/runs.ts';
import { Device, readReplies } from './device.ts';
import { World } from './world.ts';

type Side = 'home' | 'edge';

async function open() {
  const world = await World.open();
  const device = new Device(world);
  await world.settle();
  return { world, device };
}

const idsIn = async (world: World, side: Side): Promise<string[]> => {
  const store = world.stores[side].open('phone');
  const rows = await Promise.all((await store.getKeys()).map((key) => store.getItem(key)));
  return rows.flatMap((row) => row?.message.message_id ?? []);
};
const delivered = async (world: World, side: Side): Promise<string[]> => {
  const store = world.stores[side].open('phone-delivered');
  const rows = await Promise.all((await store.getKeys()).map((key) => store.getItem(key)));
  return rows.flatMap((row) => row?.id ?? []);
};
const statesOf = (world: World, side: Side) =>
  Object.fromEntries(
    world[side].phone
      .history({ since: 0, limit: 500 })
      .items.flatMap((item) => (item.kind === 'message' ? [[item.message_id, item.state]] : [])),
  );

describe('messages to the phone have one custodian (12 §2)', () => {
  it('wait at the edge, come back when a phone comes to home, and are shown once', async () => {
    const { world, device } = await open();
    expect(await world.home.phone.push({ text: 'a', message_id: 'm1' })).toMatchObject({ delivered: false });
    await world.settle();
    expect([await idsIn(world, 'home'), await idsIn(world, 'edge')]).toEqual([[], ['m1']]);
    expect(statesOf(world, 'home')).toEqual({ m1: 'queued' });
    // The history shows nothing of the mirror.
    expect(Object.keys(world.home.phone.history({ since: 0, limit: 1 }).items[0] ?? {})).not.toContain('away');
    device.connect('home');
    await world.settle();
    device.receiveAll();
    await world.settle();
    expect([await idsIn(world, 'home'), await idsIn(world, 'edge')]).toEqual([[], []]);
    expect(device.shown).toEqual(['m1']);
    expect([statesOf(world, 'home'), statesOf(world, 'edge')]).toEqual([{ m1: 'sent' }, { m1: 'sent' }]);
  });

  it('are brought home before the mirror ends, and go back when it does not', async () => {
    const { world } = await open();
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    await world.settle();
    expect([await idsIn(world, 'home'), world.edge.mirror.status().messages]).toEqual([[], 1]);
    await world.home.mirror.recall(true);
    await world.settle();
    await world.home.phone.push({ text: 'b', message_id: 'm2' });
    await world.settle();
    expect([await idsIn(world, 'home'), await idsIn(world, 'edge')]).toEqual([['m1', 'm2'], []]);
    await world.home.mirror.recall(false);
    await world.settle();
    expect([await idsIn(world, 'home'), await idsIn(world, 'edge')]).toEqual([[], ['m1', 'm2']]);
    // Whoever began it may have been killed.
    await world.home.mirror.recall(true);
    await world.settle();
    expect((await idsIn(world, 'home')).sort()).toEqual(['m1', 'm2']);
    world.clock.advance(14_000);
    await world.home.mirror.recall(true);
    world.clock.advance(14_000);
    await world.settle();
    expect((await idsIn(world, 'home')).sort()).toEqual(['m1', 'm2']);
    world.clock.advance(1_000);
    await world.settle();
    expect([await idsIn(world, 'home'), (await idsIn(world, 'edge')).sort()]).toEqual([[], ['m1', 'm2']]);
    await world.home.mirror.recall(true);
    await world.settle();
    expect((await world.home.mirror.disable()).came_home).toEqual({ messages: 2, replies: 0, uploads: 0 });
    await world.home.mirror.enable('https://edge.example');
    await world.settle();
    await world.cut();
    await expect(world.home.mirror.recall(true)).rejects.toMatchObject({ kind: 'conflict' });
  });

  it('expire at home, too, while they wait at the edge, unless a phone has answered there in time', async () => {
    const { world, device } = await open();
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    await world.settle();
    world.clock.advance(86_400_000);
    expect(world.home.phone.queued()).toMatchObject([{ message_id: 'm1' }]);
    world.clock.advance(1);
    expect(world.home.phone.queued()).toEqual([]);
    await world.crashHome();
    expect(statesOf(world, 'home')).toEqual({ m1: 'expired' });
    await world.settle();
    await world.home.phone.push({ text: 'b?', message_id: 'm2', answers: ['Yes', 'No'] });
    await world.settle();
    await world.cut();
    device.connect('edge');
    device.receiveAll();
    await device.reply('r1', 'Yes', { reply_to: 'm2', answer_index: 0 });
    device.disconnect();
    world.clock.advance(86_400_001);
    expect(statesOf(world, 'home')).toEqual({ m1: 'expired', m2: 'expired' });
    await world.settle();
    expect(statesOf(world, 'home')).toEqual({ m1: 'expired', m2: 'answered' });
    expect(await readReplies(world, 'home')).toEqual([['r1', 'Yes']]);
  });

  it('are given up when the mirror ends without them, and still arrive if it begins again', async () => {
    const { world, device } = await open();
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    await world.settle();
    await world.cut();
    await world.home.phone.push({ text: 'b', message_id: 'm2' });
    await world.home.mirror.disable();
    expect(world.home.phone.queued()).toMatchObject([{ message_id: 'm2' }]);
    await world.crashHome();
    expect(statesOf(world, 'home')).toEqual({ m1: 'dropped', m2: 'queued' });
    await world.home.mirror.enable('https://edge.example');
    await world.settle();
    device.connect('home');
    await world.settle();
    device.receiveAll();
    expect(device.shown.sort()).toEqual(['m1', 'm2']);
  });

  it('go to a phone that listens at the edge at once, and are not delivered again by either side', async () => {
    const { world, device } = await open();
    device.connect('edge');
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    await world.settle();
    device.receiveAll();
    device.connection && world.edge.phone.shown(device.connection.link, 'm1');
    await world.settle();
    expect(statesOf(world, 'home')).toEqual({ m1: 'shown' });
    expect(await world.home.phone.push({ text: 'a', message_id: 'm1' })).toMatchObject({ isDuplicate: true });
    await world.crashHome();
    expect(await world.home.phone.push({ text: 'a', message_id: 'm1' })).toMatchObject({ isDuplicate: true });
    await world.settle();
    device.receiveAll();
    expect([device.shown, device.repeated]).toEqual([['m1'], []]);
  });

  it('stay at home while the link is down, and at the edge while home is off', async () => {
    const { world, device } = await open();
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    await world.settle();
    await world.cut();
    await world.home.phone.push({ text: 'b', message_id: 'm2' });
    expect([await idsIn(world, 'home'), await idsIn(world, 'edge')]).toEqual([['m2'], ['m1']]);
    device.connect('edge');
    device.receiveAll();
    expect(device.shown).toEqual(['m1']);
    await world.settle();
    device.receiveAll();
    expect(device.shown).toEqual(['m1', 'm2']);
  });

  it('a question withdrawn at home closes on the phone at the edge; a message cancelled there goes', async () => {
    const { world, device } = await open();
    device.connect('edge');
    await world.home.phone.push({ text: 'now?', message_id: 'q1' });
    await world.settle();
    device.receiveAll();
    expect(await world.home.phone.withdraw('q1')).toBe(1);
    await world.settle();
    device.receiveAll();
    expect([device.shown, device.closed]).toEqual([['q1'], ['q1']]);
    device.disconnect();
    await world.home.phone.push({ text: 'later', message_id: 'm2' });
    await world.settle();
    expect(await world.home.phone.cancel('m2')).toBe(1);
    await world.settle();
    expect(await idsIn(world, 'edge')).toEqual([]);
    expect(statesOf(world, 'edge')).toEqual({ q1: 'cancelled', m2: 'cancelled' });
  });

  it('posted again under its id while it waits at the edge, a message is replaced there', async () => {
    const { world, device } = await open();
    await world.home.phone.push({ text: 'old', message_id: 'm1' });
    await world.settle();
    await world.clock.advanceAsync(10);
    await world.home.phone.push({ text: 'new', message_id: 'm1' });
    await world.settle();
    expect(world.edge.phone.queued().map(({ text }) => text)).toEqual(['new']);
    device.connect('home');
    await world.settle();
    device.receiveAll();
    expect(device.shown).toEqual(['m1']);
  });
});

type Step =
  | { do: 'post' | 'connect'; side: Side }
  | { do: 'toHome' | 'toEdge' | 'receive'; count: number }
  | { do: 'reply' | 'read' }
  | { do: 'cut' | 'heal' | 'crashHome' | 'crashEdge' | 'sleepEdge' | 'disconnect' | 'cancel' };

const side = fc.constantFrom<Side>('home', 'edge');
const count = fc.integer({ min: 1, max: 5 });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom('post', 'connect'), side }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constantFrom('toHome', 'toEdge', 'receive'), count }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom('reply', 'read') }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('cut', 'heal', 'crashHome', 'crashEdge', 'sleepEdge', 'disconnect', 'cancel'),
    }),
  },
) as fc.Arbitrary<Step>;

/** Runs steps, and checks after each that some side holds or has delivered every message that was accepted. */
async function play(steps: readonly Step[]): Promise<void> {
  const { world, device } = await open();
  const accepted = new Set<string>();
  const cancelled = new Set<string>();
  const replied = new Set<string>();
  const read: string[] = [];
  let posted = 0;
  /** A reader at home takes what is there, and has it with the response. */
  const readAll = async () => {
    const { replies, sent } = await world.home.phone.poll({ timeout: 0 });
    read.push(...replies.map(({ message_id }) => message_id));
    sent(true);
  };
  const check = async (where: string) => {
    const kept = new Set([
      ...(await idsIn(world, 'home')),
      ...(await idsIn(world, 'edge')),
      ...(await delivered(world, 'home')),
      ...(await delivered(world, 'edge')),
    ]);
    const lost = [...accepted].filter((id) => !kept.has(id) && !cancelled.has(id));
    expect([where, lost]).toEqual([where, []]);
  };
  for (const [n, one] of steps.entries()) {
    switch (one.do) {
      case 'post': {
        const id = `m${++posted}`;
        await world[one.side].phone.push({ text: id, message_id: id });
        accepted.add(id);
        break;
      }
      case 'cancel': {
        const id = `m${posted}`;
        if (accepted.has(id) && (await world.home.phone.cancel(id)) > 0) cancelled.add(id);
        break;
      }
      case 'reply': {
        const id = `r${n}`;
        await device.reply(id, id);
        if (device.connection) replied.add(id);
        break;
      }
      case 'read':
        await readAll();
        break;
      case 'connect':
        device.connect(one.side);
        break;
      case 'disconnect':
        device.disconnect();
        break;
      case 'receive':
        for (let left = one.count; left > 0; left--) device.receive();
        break;
      case 'toHome':
      case 'toEdge':
        for (let left = one.count; left > 0; left--) await world.deliver(one.do);
        break;
      case 'crashHome':
        device.lost('home');
        await world.crashHome();
        break;
      case 'crashEdge':
        device.lost('edge');
        await world.crashEdge();
        world.edge.phone.restored();
        break;
      case 'sleepEdge':
        await world.sleepEdge();
        device.restore();
        break;
      case 'cut':
        await world.cut();
        break;
      case 'heal':
        await world.heal();
    }
    await new Promise((resolve) => setTimeout(resolve, 0));
    await check(`${n}: ${one.do}`);
  }
  for (const last of ['home', 'edge'] as const) {
    device.connect(last);
    for (let rounds = 0; rounds < 3; rounds++) {
      await world.settle();
      device.receiveAll();
    }
  }
  await world.settle();
  await check('the end');
  await readAll();
  expect(read.sort()).toEqual([...replied].sort());
  // Every message was shown, once; one that was cancelled may have been.
  expect([...accepted].filter((id) => !device.shown.includes(id) && !cancelled.has(id))).toEqual([]);
  expect(new Set(device.shown).size).toBe(device.shown.length);
  expect([await idsIn(world, 'home'), await idsIn(world, 'edge')]).toEqual([[], []]);
  // Where both know a message, both say the same of it.
  const [home, edge] = [statesOf(world, 'home'), statesOf(world, 'edge')];
  for (const id of Object.keys(edge)) if (id in home) expect([id, edge[id]]).toEqual([id, home[id]]);
}

it('every accepted message is shown once and every reply read once, after any cuts, crashes and sleeps; custody is never with nobody', () =>
  fc.assert(fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), play), {
    numRuns: runs(20),
  }));

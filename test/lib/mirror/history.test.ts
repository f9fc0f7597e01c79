import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { HistoryRow } from '../../../lib/phone/history.ts';
import type { Stores } from '../../../storage/schema.ts';
import { POLL, TIMEOUT } from '../../support/limits.ts';
import { runs } from '../../support/runs.ts';
import { openWithDevice } from './device.ts';
import type { World } from './world.ts';

type Side = 'home' | 'edge';

const itemsOf = (world: World, side: Side) => world[side].phone.history({ since: 0, limit: 500 }).items;
const rowsOf = (world: World, side: Side) =>
  itemsOf(world, side).map(({ seq, message_id, state, origin }) => [
    seq,
    message_id,
    state,
    ...(origin ? [origin] : []),
  ]);
const keyOf = ({ kind, message_id }: HistoryRow) => `${kind} ${message_id}`;

/** A client that reads the history of a side onwards, as the inbox of the web app does. */
class Reader {
  readonly items = new Map<string, number>();
  known = 0;
  readonly world: World;
  readonly side: Side;

  constructor(world: World, side: Side) {
    this.world = world;
    this.side = side;
  }

  read(): void {
    for (let pages = 0; ; pages++) {
      if (pages > 500) throw new Error('the pages do not end');
      const { items, latest } = this.world[this.side].phone.history({ since: this.known, limit: 3 });
      if (latest < this.known) {
        this.known = 0;
        this.items.clear();
        continue;
      }
      expect(items.map(({ seq }) => seq)).toEqual(items.map(({ seq }) => seq).sort((a, b) => a - b));
      for (const item of items) this.items.set(keyOf(item), item.seq);
      this.known = items.at(-1)?.seq ?? Math.max(this.known, latest);
      if (items.length < 3) return;
    }
  }
}

describe('the history is home’s (12 §2)', () => {
  it('what comes to the edge while home is off has an origin, until home has given it a number', async () => {
    const { world, device } = await openWithDevice();
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    await world.settle();
    await world.cut();
    await world.home.phone.push({ text: 'b', message_id: 'm2' });
    await world.edge.phone.push({ text: 'c', message_id: 'm3', answers: ['yes', 'no'] });
    device.connect('edge');
    device.receiveAll();
    await device.reply('r1', 'yes', { reply_to: 'm3', answer_index: 0 });
    const before = rowsOf(world, 'edge');
    expect(before.map(([, ...rest]) => rest)).toEqual([
      ['m1', 'sent'],
      ['m3', 'answered', 'edge'],
      ['r1', 'waiting', 'edge'],
    ]);
    expect(before[0]?.[0]).toBe(1);
    expect(Number(before[1]?.[0])).toBeGreaterThan(1_000_000_000_000);

    await world.settle();
    device.receiveAll();
    await world.settle();
    expect(rowsOf(world, 'home')).toEqual([
      [1, 'm1', 'sent'],
      [2, 'm2', 'sent'],
      [3, 'm3', 'answered'],
      [4, 'r1', 'waiting'],
    ]);
    expect(rowsOf(world, 'edge')).toEqual([
      [1, 'm1', 'sent'],
      [2, 'm2', 'sent'],
      [3, 'm3', 'answered'],
      [4, 'r1', 'taken'],
    ]);
    const [, , question] = itemsOf(world, 'home');
    expect(question).toMatchObject({ kind: 'message', text: 'c', question: true, answers: ['yes', 'no'] });
    expect(Object.keys(itemsOf(world, 'edge')[0] ?? {})).not.toContain('home');
    // The edge knows the numbers after a restart, too.
    const after = rowsOf(world, 'edge');
    await world.crashEdge();
    expect(rowsOf(world, 'edge')).toEqual(after);
  });

  it('a cursor on an item that is numbered anew, or that a later one comes before, misses nothing', async () => {
    const { world, device } = await openWithDevice();
    const reader = new Reader(world, 'edge');
    device.connect('home');
    await world.settle();
    // This one stays at home for as long as its phone is silent, and comes to the edge behind those with higher numbers.
    await world.home.phone.push({ text: 'late', message_id: 'm1' });
    await world.edge.phone.push({ text: 'x', message_id: 'm2' });
    reader.read();
    await world.settle();
    reader.read();
    expect([...reader.items]).toEqual([['message m2', 2]]);
    device.disconnect();
    await world.settle();
    reader.read();
    expect([...reader.items].sort()).toEqual([
      ['message m1', 1],
      ['message m2', 2],
    ]);
  });

  it.each(['home', 'edge'] as const)(
    'a message that its sender gave to both sides is there once, with %s first',
    async (first) => {
      const { world, device } = await openWithDevice();
      await world.cut();
      const second: Side = first === 'home' ? 'edge' : 'home';
      for (const side of [first, second]) {
        // As if the answer of the first side had been lost.
        await world[side].phone.push({ text: 'a', message_id: 'm1' });
        await world.clock.advanceAsync(1_000);
        device.connect(side);
        device.receiveAll();
      }
      await world.settle();
      device.receiveAll();
      await world.settle();
      expect(rowsOf(world, 'home')).toEqual([[1, 'm1', 'sent']]);
      expect(rowsOf(world, 'edge')).toEqual([[1, 'm1', 'sent']]);
      expect([device.shown, device.repeated]).toEqual([['m1'], ['m1']]);
    },
  );

  it('home restored from a backup numbers anew what the edge has, also where the edge has given it nothing yet', async () => {
    const { world } = await openWithDevice();
    const backup = await world.backupHome();
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    await world.settle();
    await world.restoreHome(backup);
    await world.home.phone.push({ text: 'b', message_id: 'm2' });
    await world.settle();
    expect(rowsOf(world, 'home')).toEqual([
      [1, 'm2', 'queued'],
      [2, 'm1', 'queued'],
    ]);
    expect(rowsOf(world, 'edge')).toEqual(rowsOf(world, 'home'));
  });

  it('cursors of phone_inbox give each reply once over the change of numbers', async () => {
    const { world, device } = await openWithDevice();
    await world.cut();
    device.connect('edge');
    await device.reply('r1', 'one');
    const since = Number(world.edge.phone.historyEnd());
    await device.reply('r2', 'two');
    const read = () => world.edge.phone.history({ since, limit: 9 }).items.map(({ message_id }) => message_id);
    expect(read()).toEqual(['r2']);
    await world.settle();
    expect(read()).toEqual(['r2']);
    expect(world.edge.phone.history({ since: world.edge.phone.historyEnd(), limit: 9 }).items).toEqual([]);
  });

  it('an answer that a caller at the edge has waited for is read by nobody at home', async () => {
    const { world, device } = await openWithDevice();
    await world.cut();
    device.connect('edge');
    const asked = world.edge.phone.ask({ text: 'Now?', answers: ['yes', 'no'], timeoutMs: 60_000 });
    await new Promise((resolve) => setTimeout(resolve, 0));
    device.receiveAll();
    await device.reply('r1', 'no', { reply_to: device.shown[0], answer_index: 1 });
    expect(await asked).toMatchObject({ answer: 'no' });
    await world.settle();
    expect((await world.home.phone.poll({ timeout: 0 })).replies).toEqual([]);
    expect(itemsOf(world, 'home')).toMatchObject([{ state: 'answered' }, { message_id: 'r1', state: 'taken' }]);
  });

  it('a message that waits at the edge is listed and cancelled at home', async () => {
    const { world } = await openWithDevice();
    await world.edge.phone.push({ text: 'a', message_id: 'm1' });
    await world.settle();
    expect(world.home.phone.queued().map(({ message_id }) => message_id)).toEqual(['m1']);
    expect(await world.home.phone.cancel('m1')).toBe(1);
    await world.settle();
    expect([rowsOf(world, 'home'), rowsOf(world, 'edge')]).toEqual([
      [[1, 'm1', 'cancelled']],
      [[1, 'm1', 'cancelled']],
    ]);
    expect(world.edge.phone.queued()).toEqual([]);
  });

  it('a message that was handed to the edge and is replaced there still waits there', async () => {
    const { world } = await openWithDevice();
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    await world.settle();
    await world.clock.advanceAsync(1_000);
    await world.edge.phone.push({ text: 'b', message_id: 'm1' });
    await world.settle();
    // Whatever waits nowhere counts as sent after a restart.
    await world.crashHome();
    await world.settle();
    expect(world.home.phone.queued()).toMatchObject([{ message_id: 'm1', text: 'b' }]);
    expect(rowsOf(world, 'home')).toEqual([[1, 'm1', 'queued']]);
    expect(await world.home.phone.cancel('m1')).toBe(1);
    await world.settle();
    expect([world.edge.phone.queued(), rowsOf(world, 'edge')]).toEqual([[], [[1, 'm1', 'cancelled']]]);
  });

  it('a message that waits at home and is replaced at the edge is delivered with its new words only', async () => {
    const { world, device } = await openWithDevice();
    await world.cut();
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    await world.clock.advanceAsync(1_000);
    await world.edge.phone.push({ text: 'b', message_id: 'm1' });
    await world.heal();
    const textAfterFrame = async () => {
      await world.deliver('toEdge');
      await world.deliver('toHome');
      return itemsOf(world, 'home')[0]?.text;
    };
    await expect.poll(textAfterFrame, { timeout: TIMEOUT, interval: POLL }).toBe('b');
    expect(world.home.phone.queued()).toMatchObject([{ message_id: 'm1', text: 'b' }]);
    device.connect('home');
    const words = () => device.connection?.wire.map(({ payload }) => payload.text).filter(Boolean);
    expect(words()).toEqual([]);
    await world.settle();
    expect(words()).toEqual(['b']);
    device.receiveAll();
    await world.settle();
    expect([rowsOf(world, 'home'), rowsOf(world, 'edge')]).toEqual([[[1, 'm1', 'sent']], [[1, 'm1', 'sent']]]);
    expect([device.shown, device.repeated]).toEqual([['m1'], []]);
  });
});

type Step =
  | { do: 'post' | 'connect'; side: Side }
  | { do: 'toHome' | 'toEdge' | 'receive'; count: number }
  | { do: 'reply' | 'poll' | 'tick' }
  | { do: 'cut' | 'heal' | 'crashHome' | 'crashEdge' | 'sleepEdge' | 'disconnect' | 'backup' | 'restore' };

const side = fc.constantFrom<Side>('home', 'edge');
const count = fc.integer({ min: 1, max: 5 });
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom('post', 'connect'), side }) },
  { weight: 6, arbitrary: fc.record({ do: fc.constantFrom('toHome', 'toEdge', 'receive'), count }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constantFrom('reply', 'poll', 'tick') }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('cut', 'heal', 'crashHome', 'crashEdge', 'sleepEdge', 'disconnect', 'backup', 'restore'),
    }),
  },
) as fc.Arbitrary<Step>;

async function play(steps: readonly Step[]): Promise<void> {
  const { world, device } = await openWithDevice();
  /** Keys of the items that each side has accepted, in order; those of home as far as no restore has lost them. */
  const accepted: Record<Side, string[]> = { home: [], edge: [] };
  const atEdge = new Reader(world, 'edge');
  let backup: { copy: Stores; home: string[] } | undefined;
  let isRestored = false;
  for (const [n, one] of steps.entries()) {
    switch (one.do) {
      case 'post':
        await world[one.side].phone.push({ text: `m${n}`, message_id: `m${n}` });
        accepted[one.side].push(`message m${n}`);
        break;
      case 'reply': {
        const { connection } = device;
        await device.reply(`r${n}`, `r${n}`);
        if (connection) accepted[connection.side].push(`reply r${n}`);
        break;
      }
      case 'poll':
        atEdge.read();
        break;
      case 'tick':
        await world.clock.advanceAsync(1_000);
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
      case 'backup':
        backup = { copy: await world.backupHome(), home: [...accepted.home] };
        break;
      case 'restore':
        if (!backup) break;
        device.lost('home');
        await world.restoreHome(backup.copy);
        accepted.home = backup.home;
        isRestored = true;
        backup = undefined;
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
    const seqs = itemsOf(world, 'edge').map(({ seq }) => seq);
    expect(new Set(seqs).size).toBe(seqs.length);
  }
  await world.settle();
  await world.settle();
  const home = itemsOf(world, 'home');
  const keys = home.map(keyOf);
  expect(new Set(keys).size).toBe(keys.length);
  expect(new Set(home.map(({ seq }) => seq)).size).toBe(home.length);
  for (const origin of ['home', 'edge'] as const) {
    expect([origin, keys.filter((key) => accepted[origin].includes(key))]).toEqual([origin, accepted[origin]]);
  }
  // Every item of the edge has home's number, and a client that has read on since the beginning has all of them.
  const numbers = new Map(home.map((item) => [keyOf(item), item.seq]));
  const edge = itemsOf(world, 'edge');
  expect(edge.filter(({ origin }) => origin).map(keyOf)).toEqual([]);
  expect(edge.map((item) => [keyOf(item), item.seq])).toEqual(
    edge.map((item) => [keyOf(item), numbers.get(keyOf(item))]),
  );
  // A restored home gives numbers again that clients have read already.
  if (isRestored) return;
  atEdge.read();
  expect([...atEdge.items.keys()].sort()).toEqual(edge.map(keyOf).sort());
}

it('items that a restored home lacks come before a message that waited for it', () =>
  play([
    { do: 'connect', side: 'edge' },
    { do: 'reply' },
    { do: 'backup' },
    { do: 'post', side: 'edge' },
    { do: 'toHome', count: 1 },
    { do: 'connect', side: 'home' },
    { do: 'toEdge', count: 3 },
    { do: 'restore' },
    { do: 'cut' },
    { do: 'toHome', count: 1 },
    { do: 'cut' },
  ]));

it('every accepted item is once in home’s history, in the order of its side, after any cuts, crashes, sleeps and restores', () =>
  fc.assert(fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), play), { numRuns: runs(20) }));

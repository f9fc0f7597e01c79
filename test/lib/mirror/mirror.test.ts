import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readConfig } from '../../../lib/config.ts';
import { nextTurn } from '../../../lib/kit/clock.ts';
import { signChallenge } from '../../../lib/mirror/keys.ts';
import { HeldState } from '../../support/held-state.ts';
import { runs } from '../../support/runs.ts';
import { policies, World } from './world.ts';

const DAY = 86_400;

describe('sessions on both sides (12 §2)', () => {
  it('are at the edge as they are at home, with no token of home', async () => {
    const world = await World.open();
    const { family, token } = await world.pair('phone');
    await world.settle();
    expect(policies(world.edge.sessions)).toEqual(policies(world.home.sessions));
    const [own] = world.edge.sessions.list();
    expect(own).toMatchObject({ family, mirrored: true });
    expect(own?.refresh?.hash).not.toBe(world.home.sessions.byFamily(family)?.refresh?.hash);
    expect(world.edge.sessions.authenticate(token)).toBeUndefined();
    expect(own?.tokenHash).not.toBe(world.home.sessions.byFamily(family)?.tokenHash);
  });

  it('end at the edge when home ends them, and at home when the edge does', async () => {
    const world = await World.open();
    const [a, b] = [await world.pair('a'), await world.pair('b')];
    await world.settle();
    const [atHome, atEdge] = [world.home.sessions.byFamily(a.family), world.edge.sessions.byFamily(b.family)];
    if (!atHome || !atEdge) throw new Error('not paired');
    await world.home.sessions.revoke(atHome);
    await world.edge.sessions.revoke(atEdge);
    await world.settle();
    expect(world.home.sessions.list()).toEqual([]);
    expect(world.edge.sessions.list()).toEqual([]);
    expect(world.home.sessions.ended().map(({ device_name, reason }) => [device_name, reason])).toEqual([
      ['b', 'revoked by the edge'],
      ['a', 'revoked by operator'],
    ]);
    expect(atHome.ended && atEdge.ended).toBeTruthy();
  });

  it('are confirmed at the edge when it is linked, and pending when it is not', async () => {
    const world = await World.open();
    const { family } = await world.pair('a');
    await world.settle();
    const session = world.home.sessions.byFamily(family);
    if (!session) throw new Error('not paired');
    await world.home.sessions.reduce(session, { ttlSeconds: DAY });
    const confirmed = world.home.mirror.confirmed(family);
    await world.settle();
    expect(await confirmed).toBe('confirmed');
    await world.cut();
    await world.home.sessions.revoke(session);
    expect(await world.home.mirror.confirmed(family)).toBe('pending');
    await world.settle();
    expect(world.edge.sessions.list()).toEqual([]);
  });

  it('are not honoured when home has been silent for longer than the lease, and again when it speaks', async () => {
    const world = await World.open();
    const { family } = await world.pair('a', { ttlSeconds: 0 });
    await world.settle();
    await world.cut();
    world.clock.set(world.clock.now() + 7 * DAY * 1000 - 10_000);
    expect(world.edge.sessions.byFamily(family)).toBeDefined();
    world.clock.set(world.clock.now() + 120_000);
    expect(world.edge.sessions.byFamily(family)).toBeUndefined();
    await world.settle();
    expect(world.edge.sessions.byFamily(family)).toBeDefined();
    expect(readConfig({}, { home: '', agentHome: '' }).config.mirrorLease).toBe(7 * DAY);
  });

  it.each([60, 3600, 86_400])(
    'are honoured while home is linked and nothing happens, with a lease of %i s',
    async (lease) => {
      const world = await World.open({ lease });
      const { family } = await world.pair('a', { ttlSeconds: 0 });
      await world.settle();
      // A third of the lease at a time, with as much delay as is left for it.
      for (let third = 0; third < 9; third++) {
        await world.clock.advanceAsync((lease * 1000) / 3);
        await world.clock.advanceAsync((lease * 1000) / 2);
        expect(world.edge.sessions.byFamily(family), `after ${third} thirds`).toBeDefined();
        await world.settle();
      }
      await world.cut();
      await world.clock.advanceAsync((lease + 1) * 1000);
      expect(world.edge.sessions.byFamily(family)).toBeUndefined();
    },
  );

  it('strangers that prove nothing keep home out neither from its own address nor from many', async () => {
    const world = await World.open();
    await world.settle();
    await world.cut();
    const closed: string[] = [];
    const knock = (id: string, address: string) =>
      world.edge.mirror.open(
        {
          id,
          send: () => {},
          close: () => void closed.push(id),
          terminate: () => {},
          unsent: () => 0,
          pause: () => false,
          resume: () => {},
        },
        { host: 'edge.example', address },
      );
    for (let n = 0; n < 10; n++) knock(`near-${n}`, 'home');
    expect(closed).toEqual(['near-0', 'near-1', 'near-2', 'near-3', 'near-4', 'near-5']);
    await world.heal();
    for (let n = 0; n < 200; n++) knock(`far-${n}`, `address-${n}`);
    expect(closed.length).toBeGreaterThan(100);
    await world.settle();
    expect(world.edge.mirror.status().link).toBe('up');
    // Their timers are over with them.
    await world.clock.advanceAsync(10_000);
    expect(new Set(closed).size).toBe(210);
    expect(world.edge.mirror.status().link).toBe('up');
  });

  it('do not come back when home is restored from a backup that still has them', async () => {
    const world = await World.open();
    const { family } = await world.pair('a');
    await world.settle();
    const backup: [string, string, unknown][] = [];
    for (const store of ['sessions', 'mirror'] as const) {
      for (const key of await world.stores.home.open(store).getKeys()) {
        backup.push([store, key, structuredClone(await world.stores.home.open(store).getItem(key))]);
      }
    }
    const session = world.home.sessions.byFamily(family);
    if (!session) throw new Error('not paired');
    await world.home.sessions.revoke(session);
    await world.pair('b');
    await world.settle();
    world.home.mirror.stop();
    for (const store of ['sessions', 'mirror'] as const) {
      await world.stores.home.open(store).clear();
      for (const [, key, value] of backup.filter(([of]) => of === store)) {
        await world.stores.home.open(store).setItem(key, value as never);
      }
    }
    await world.crashHome();
    expect(world.home.sessions.byFamily(family)).toBeDefined();
    await world.settle();
    expect(world.home.sessions.list()).toEqual([]);
    // What home no longer knows ends at the edge.
    expect(world.edge.sessions.list()).toEqual([]);
  });

  it('home is linked once, whatever operators ask for at the same time', async () => {
    const world = await World.open();
    await world.settle();
    const [edge, { mirror }] = ['https://edge.example', world.home];
    await Promise.all([mirror.disable(), mirror.enable(edge), mirror.enable(edge)]);
    expect(world.wire?.id).toBe('wire-2');
    await world.settle();
    expect(await mirror.status()).toMatchObject({ enabled: true, link: 'up' });
  });

  it.each([
    ['checks the proof of home', 0],
    ['stores the link', 1],
  ])('a socket that closes while the edge %s is no link', async (_moment, held) => {
    const disks = { home: new HeldState(), edge: new HeldState() };
    const world = await World.open({ disks });
    await world.settle();
    await world.cut();
    await world.clock.advanceAsync(60_000);
    await world.heal();
    const { wire } = world;
    await world.deliver('toHome');
    while (wire?.toEdge.length === 0) await nextTurn();
    disks.edge.hold();
    wire?.edge?.message(String(wire.toEdge.shift()));
    while (disks.edge.held < held) await nextTurn();
    await world.cut();
    disks.edge.release();
    for (let n = 0; n < 20; n++) await nextTurn();
    expect(world.edge.mirror.status().link).toBe('down');
    expect(world.announced.at(-1)?.type).toBe('home.offline');
    await world.settle();
  });

  it('of two homes that are pinned at once, the second is refused', async () => {
    const [world, other] = [await World.open(), await World.open()];
    const [one, two] = [(await world.home.mirror.status()).key, (await other.home.mirror.status()).key];
    await world.edge.mirror.unpin();
    const { mirror } = world.edge;
    const pinned = await Promise.allSettled([mirror.pin(one), mirror.pin(two)]);
    expect(pinned.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
    await expect(mirror.pin(one)).resolves.toMatchObject({ enabled: true });
  });

  it('a home that is unpinned while the edge stores its link is no link', async () => {
    const { world, disks, prove } = await offEdge();
    disks.edge.hold();
    const { closes } = await prove();
    while (disks.edge.held === 0) await nextTurn();
    const unpinned = world.edge.mirror.unpin();
    disks.edge.release();
    await unpinned;
    for (let n = 0; n < 20; n++) await nextTurn();
    expect(world.edge.mirror.status()).toMatchObject({ enabled: false, link: 'down' });
    expect(closes).toEqual([1008]);
  });

  it('of two homes that prove one key at once, one is refused', async () => {
    const { world, disks, prove } = await offEdge();
    disks.edge.hold();
    const [first, second] = [await prove(), await prove()];
    const closes = () => first.closes.length + second.closes.length;
    while (disks.edge.held + closes() < 2) await nextTurn();
    disks.edge.release();
    for (let n = 0; n < 20; n++) await nextTurn();
    expect(world.edge.mirror.status().link).toBe('up');
    expect([...first.closes, ...second.closes]).toEqual([1013]);
  });

  it('a stranger, or the right key for another host, is not home', async () => {
    const world = await World.open();
    await world.settle();
    await world.edge.mirror.unpin();
    const other = await World.open();
    await world.edge.mirror.pin((await other.home.mirror.status()).key);
    await world.cut();
    await world.heal();
    const errorOf = async () => (await world.home.mirror.status()).error;
    const delivered = async () => {
      await world.deliver('toEdge');
      await world.deliver('toHome');
      return errorOf();
    };
    await expect.poll(delivered).toContain('1008: home is not known by this key');
    expect(world.edge.mirror.status().link).toBe('down');
  });
});

/** An edge whose home has been away for a while, and a function that opens a socket to it and proves home's key there. */
async function offEdge() {
  const disks = { home: new HeldState(), edge: new HeldState() };
  const world = await World.open({ disks });
  await world.settle();
  await world.cut();
  await world.clock.advanceAsync(60_000);
  const { private_key, public_key: key } = disks.home.durable('mirror').get('peer') as Record<string, string>;
  async function prove() {
    const closes: number[] = [];
    const sent: string[] = [];
    const transport = { send: (text: string) => sent.push(text), close: (code: number) => closes.push(code) };
    const events = world.edge.mirror.open(transport as never, { host: 'edge.example', address: 'home' });
    const { nonce } = JSON.parse(sent[0] ?? '');
    const sig = await signChallenge(private_key ?? '', nonce, 'edge.example');
    events.message(JSON.stringify({ type: 'hello', key, sig, epoch: 'e', applied: { epoch: '', oseq: 0 } }));
    return { closes };
  }
  return { world, disks, prove };
}

type Step =
  | { do: 'pair' | 'revokeHome' | 'revokeEdge' | 'extendHome'; device: number }
  | { do: 'reduceHome' | 'reduceEdge'; device: number; days: number; without: boolean }
  | { do: 'toHome' | 'toEdge'; count: number }
  | { do: 'cut' | 'heal' | 'crashHome' | 'crashEdge' | 'sleepEdge' };

const device = fc.integer({ min: 0, max: 2 });
const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constantFrom('pair', 'revokeHome', 'revokeEdge', 'extendHome'), device }),
  fc.record({
    do: fc.constantFrom('reduceHome', 'reduceEdge'),
    device,
    days: fc.integer({ min: 1, max: 29 }),
    without: fc.boolean(),
  }),
  fc.record({ do: fc.constantFrom('toHome', 'toEdge'), count: fc.integer({ min: 1, max: 5 }) }),
  fc.record({ do: fc.constantFrom('cut', 'heal', 'crashHome', 'crashEdge', 'sleepEdge') }),
) as fc.Arbitrary<Step>;

/** Runs steps and checks after each that nothing ended lives on at the side that ended it, and that nothing grew. */
async function play(steps: readonly Step[]): Promise<void> {
  const world = await World.open();
  const ofDevice = new Map<number, string>();
  const ended = { home: new Set<string>(), edge: new Set<string>() };
  /** Ends that the edge has set, until home has seen them and then given more. */
  const bounds = new Map<string, number>();
  const sessionsOf = { home: () => world.home.sessions, edge: () => world.edge.sessions };

  for (const one of steps) {
    const family = 'device' in one ? ofDevice.get(one.device) : undefined;
    const atHome = family === undefined ? undefined : world.home.sessions.byFamily(family);
    const atEdge = family === undefined ? undefined : world.edge.sessions.byFamily(family);
    switch (one.do) {
      case 'pair': {
        const paired = await world.pair(`device-${one.device}`);
        if (atHome) ended.home.add(atHome.family);
        ofDevice.set(one.device, paired.family);
        break;
      }
      case 'revokeHome':
        if (!atHome) break;
        ended.home.add(atHome.family);
        await world.home.sessions.revoke(atHome);
        break;
      case 'revokeEdge':
        if (!atEdge) break;
        ended.edge.add(atEdge.family);
        await world.edge.sessions.revoke(atEdge);
        break;
      case 'extendHome': {
        if (!atHome) break;
        const bound = bounds.get(atHome.family);
        if (bound !== undefined && (atHome.expiresAt ?? Number.POSITIVE_INFINITY) <= bound)
          bounds.delete(atHome.family);
        await world.home.sessions.extend(atHome);
        break;
      }
      case 'reduceHome':
      case 'reduceEdge': {
        const own = one.do === 'reduceHome' ? atHome : atEdge;
        const end = world.clock.now() / 1000 + one.days * DAY;
        if (!own || (own.expiresAt ?? end) < end) break;
        const without = one.without && own.grants.chat !== undefined ? ['chat'] : [];
        const at = one.do === 'reduceHome' ? world.home.sessions : world.edge.sessions;
        await at.reduce(own, { ttlSeconds: one.days * DAY, without });
        if (one.do === 'reduceEdge') bounds.set(own.family, own.expiresAt ?? end);
        break;
      }
      case 'toHome':
      case 'toEdge':
        for (let n = 0; n < one.count; n++) await world.deliver(one.do);
        break;
      default:
        await world[one.do]();
    }
    for (const side of ['home', 'edge'] as const) {
      for (const over of ended[side]) expect(sessionsOf[side]().byFamily(over), `${side} ended it`).toBeUndefined();
    }
    for (const [over, bound] of bounds) {
      const end = world.edge.sessions.byFamily(over)?.expiresAt ?? 0;
      expect(end, 'the edge goes by its own reduction').toBeLessThanOrEqual(bound);
    }
  }
  await world.settle();
  expect(policies(world.edge.sessions)).toEqual(policies(world.home.sessions));
  for (const over of [...ended.home, ...ended.edge]) {
    expect(world.home.sessions.byFamily(over)).toBeUndefined();
    expect(world.edge.sessions.byFamily(over)).toBeUndefined();
  }
  for (const [over, bound] of bounds) {
    expect(world.home.sessions.byFamily(over)?.expiresAt ?? 0).toBeLessThanOrEqual(bound);
  }
  world.home.mirror.stop();
}

it('both sides agree after any cuts, crashes and sleeps: what ended stays ended, and nothing grows', async () => {
  await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), play), { numRuns: runs(100) });
});

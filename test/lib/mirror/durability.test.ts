import fc from 'fast-check';
import { expect, it } from 'vitest';
import { type Cursor, START } from '../../../lib/mirror/frames.ts';
import { HeldState } from '../../support/held-state.ts';
import { runs } from '../../support/runs.ts';
import { Device, readReplies } from './device.ts';
import { World } from './world.ts';

type Side = 'home' | 'edge';
type Step =
  | { do: 'post' | 'connect' | 'hold' | 'crash'; side: Side }
  | { do: 'release'; side: Side; count: number }
  | { do: 'toHome' | 'toEdge' | 'receive'; count: number }
  | { do: 'reply' | 'read' | 'pair' | 'revoke' | 'disconnect' | 'cut' | 'heal' };

const side = fc.constantFrom<Side>('home', 'edge');
const step = fc.oneof(
  { weight: 5, arbitrary: fc.record({ do: fc.constantFrom('post', 'connect'), side }) },
  { weight: 5, arbitrary: fc.record({ do: fc.constantFrom('hold', 'hold', 'crash'), side }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('release'), side, count: fc.integer({ min: 1, max: 3 }) }) },
  {
    weight: 8,
    arbitrary: fc.record({
      do: fc.constantFrom('toHome', 'toEdge', 'receive'),
      count: fc.integer({ min: 1, max: 8 }),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constantFrom('reply', 'read', 'pair', 'revoke', 'disconnect', 'cut', 'heal') }),
  },
) as fc.Arbitrary<Step>;

const turn = () => new Promise<void>((resolve) => setTimeout(resolve, 0));

/** Two relays on disks that the test holds, a device, and what each of them was promised. */
class Scene {
  readonly disks: { home: HeldState; edge: HeldState };
  /** Messages that were answered with success. */
  readonly accepted = new Set<string>();
  readonly paired = new Set<string>();
  /** Sessions whose revocation has begun, and those whose revocation was confirmed. */
  readonly ending = new Set<string>();
  readonly ended = new Set<string>();
  readonly read = new Set<string>();
  #count = 0;
  readonly world: World;
  readonly device: Device;

  static async open(): Promise<Scene> {
    const disks = { home: new HeldState(), edge: new HeldState() };
    const scene = new Scene(await World.open({ disks }), disks);
    await scene.world.settle();
    return scene;
  }

  private constructor(world: World, disks: { home: HeldState; edge: HeldState }) {
    this.world = world;
    this.device = new Device(world);
    this.disks = disks;
  }

  async act(one: Step): Promise<void> {
    const { world, device, disks } = this;
    const id = `${one.do}-${++this.#count}`;
    switch (one.do) {
      case 'post':
        return void this.#whenAnswered(world[one.side].phone.push({ text: id, message_id: id }), () =>
          this.accepted.add(id),
        );
      case 'pair':
        return void this.#whenAnswered(world.pair(id), ({ family }) => this.paired.add(family));
      case 'revoke': {
        const living = world.home.sessions.list()[0];
        if (!living) return;
        this.ending.add(living.family);
        return void this.#whenAnswered(world.home.sessions.revoke(living), () => this.ended.add(living.family));
      }
      case 'reply':
        return void this.#whenAnswered(device.reply(id, id), () => {});
      case 'read':
        return this.#read();
      case 'connect':
        return device.connect(one.side);
      case 'disconnect':
        return device.disconnect();
      case 'receive':
        for (let left = one.count; left > 0; left--) device.receive();
        return;
      case 'toHome':
      case 'toEdge':
        for (let left = one.count; left > 0; left--) await this.#deliver(one.do);
        return;
      case 'hold':
        return disks[one.side].hold();
      case 'release':
        return disks[one.side].release(one.count);
      case 'crash':
        device.lost(one.side);
        if (one.side === 'home') return world.crashHome();
        await world.crashEdge();
        return world.edge.phone.restored();
      case 'cut':
        return world.cut();
      case 'heal':
        return world.heal();
    }
  }

  /** Has no answer when the process of the call ends before it is durable. */
  #whenAnswered<T>(call: Promise<T>, answered: (result: T) => void): void {
    void call.then(answered);
  }

  async #read(): Promise<void> {
    // A poll that waits for the disk has no answer either.
    const reading = readReplies(this.world, 'home').then((replies) => {
      for (const [id] of replies) this.read.add(id);
    });
    await Promise.race([reading, turn()]);
  }

  /** An acknowledgement on the wire is of what its sender cannot lose. */
  async #deliver(to: 'toHome' | 'toEdge'): Promise<void> {
    const next = this.world.wire?.[to][0];
    const frame = typeof next === 'string' ? JSON.parse(next) : {};
    if (frame.type === 'ack' && frame.upto > 0) {
      const sender = to === 'toHome' ? 'edge' : 'home';
      // Its number only grows, also when home begins a new epoch; the sender may have stored more since.
      const { oseq } = (this.disks[sender].durable('mirror').get('applied') ?? START) as Cursor;
      expect(oseq, `${sender} acknowledges what it could lose`).toBeGreaterThanOrEqual(frame.upto);
    }
    await this.world.deliver(to);
  }

  /** Nothing that was answered is with nobody. */
  check(where: string): void {
    const { disks, device } = this;
    const stored = (name: string, pick: (row: never) => unknown) =>
      (['home', 'edge'] as const).flatMap((side) =>
        [...disks[side].durable(name).values()].map((row) => pick(row as never)),
      );
    const messages = new Set([
      ...stored('phone', ({ message }: { message: { message_id: string } }) => message.message_id),
      ...stored('phone-delivered', ({ id }: { id: string }) => id),
    ]);
    expect([where, [...this.accepted].filter((id) => !messages.has(id))]).toEqual([where, []]);
    const replies = new Set([
      ...stored('phone-replies', (row: { reply?: { message_id: string }; message_id?: string }) =>
        row.reply ? row.reply.message_id : row.message_id,
      ),
      ...this.read,
    ]);
    expect([where, device.acknowledged.filter((id) => !replies.has(id))]).toEqual([where, []]);
    const families = (side: Side) =>
      new Set([...disks[side].durable('sessions').values()].map((row) => (row as { family: string }).family));
    const [home, edge] = [families('home'), families('edge')];
    const isLost = (family: string) => !home.has(family) && !this.ending.has(family);
    expect([where, [...this.paired].filter(isLost)]).toEqual([where, []]);
    expect([where, [...this.ended].filter((family) => home.has(family))]).toEqual([where, []]);
    // Devices get their credentials for the edge only once the edge cannot forget them.
    const isUnknown = (family: string) => !edge.has(family) && !this.ending.has(family);
    expect([where, this.world.ready.filter(isUnknown)]).toEqual([where, []]);
  }

  /** Everything heals, and a device is at one side after the other. */
  async finish(): Promise<void> {
    const { world, device, disks } = this;
    for (const side of ['home', 'edge'] as const) disks[side].release();
    for (const last of ['home', 'edge'] as const) {
      device.connect(last);
      for (let rounds = 0; rounds < 3; rounds++) {
        await world.settle();
        device.receiveAll();
      }
    }
    await world.settle();
    await this.#read();
    await turn();
    this.check('the end');
    expect([...this.accepted].filter((id) => !device.shown.includes(id))).toEqual([]);
    expect(new Set(device.shown).size).toBe(device.shown.length);
    expect(device.acknowledged.filter((id) => !this.read.has(id))).toEqual([]);
    for (const side of ['home', 'edge'] as const) {
      const living = new Set(world[side].sessions.list().map(({ family }) => family));
      expect([side, [...this.ended].filter((family) => living.has(family))]).toEqual([side, []]);
      const isLost = (family: string) => !living.has(family) && !this.ending.has(family);
      expect([side, [...this.paired].filter(isLost)]).toEqual([side, []]);
    }
    world.home.mirror.stop();
  }
}

async function play(steps: readonly Step[]): Promise<void> {
  const scene = await Scene.open();
  for (const [n, one] of steps.entries()) {
    await scene.act(one);
    await turn();
    scene.check(`${n}: ${one.do}`);
  }
  await scene.finish();
}

it(
  '12 §2: nothing that was acknowledged or answered is lost with the writes that a crash loses',
  {
    timeout: 300_000,
  },
  () => fc.assert(fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 50 }), play), { numRuns: runs(250) }),
);

it('12 §2: a message that the edge cannot store stays at home, although one that came after it is stored', async () => {
  const disks = { home: new HeldState(), edge: new HeldState() };
  const world = await World.open({ disks });
  await world.settle();
  // The slot of the first message.
  disks.edge.refused = '0';
  for (const id of ['first', 'second']) await world.home.phone.push({ message_id: id, text: id });
  // Both are under way before home hears that the edge gives up the link.
  for (let n = 0; n < 2; n++) await world.deliver('toEdge');
  while (world.wire) await world.deliver('toHome');
  disks.edge.refused = undefined;
  await world.crashEdge();
  await world.settle();
  expect(world.edge.phone.shared.waiting().map(({ message_id: id }) => id)).toEqual(['first', 'second']);
});

it.each(['home', 'edge'] as const)(
  '12 §2: a message that the %s could not store at first is stored when it is given again',
  async (side) => {
    const disks = { home: new HeldState(), edge: new HeldState() };
    const world = await World.open({ disks });
    await world.settle();
    const other = side === 'home' ? 'edge' : 'home';
    const device = new Device(world);
    if (side === 'home') await device.connect('home');
    await world.settle();
    disks[side].refused = '0';
    await world[other].phone.push({ message_id: 'first', text: 'first' });
    while (world.wire) for (const way of ['toEdge', 'toHome'] as const) await world.deliver(way);
    disks[side].refused = undefined;
    await world.settle();
    expect(world[other].phone.shared.waiting()).toEqual([]);
    expect([...disks[side].durable('phone').values()]).toMatchObject([{ message: { message_id: 'first' } }]);
  },
);

it('12 §2: a reply that is sent again while it is being stored is acknowledged once it is stored', async () => {
  const disks = { home: new HeldState(), edge: new HeldState() };
  const world = await World.open({ disks });
  const device = new Device(world);
  disks.home.hold();
  for (let n = 0; n < 2; n++) {
    device.connect('home');
    void device.reply('r1', 'yes');
    await turn();
  }
  device.receiveAll();
  expect(device.acknowledged).toEqual([]);
  disks.home.release();
  await turn();
  device.receiveAll();
  expect(device.acknowledged).toEqual(['r1']);
});

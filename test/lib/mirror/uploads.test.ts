import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { utf8ToBytes } from '../../../lib/kit/bytes.ts';
import { runs } from '../../support/runs.ts';
import { World } from './world.ts';

/** Not by `toEqual`, which takes seconds for as many bytes. */
const isSame = (one: Uint8Array | undefined, other: Uint8Array | undefined): boolean =>
  one !== undefined && other !== undefined && Buffer.compare(one, other) === 0;
const turn = () => new Promise<void>((resolve) => setTimeout(resolve, 0));

async function* multipart(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  const head = 'Content-Disposition: form-data; name="file"; filename="p.png"\r\nContent-Type: image/png';
  yield utf8ToBytes(`--x\r\n${head}\r\n\r\n`);
  yield bytes;
  yield utf8ToBytes('\r\n--x--\r\n');
}

/** Uploads that a device has made at the edge, by token. */
class Uploads {
  readonly made = new Map<string, Uint8Array>();
  readonly world: World;

  constructor(world: World) {
    this.world = world;
  }

  static async open(): Promise<Uploads> {
    const world = await World.open();
    await world.settle();
    return new Uploads(world);
  }

  async make(size: number, owner = 'f'.repeat(32)): Promise<string> {
    const bytes = new Uint8Array(size).fill(7 + this.made.size);
    const chunks = multipart(bytes);
    const contentType = 'multipart/form-data; boundary=x';
    const body = { contentType, contentLength: null, chunks, owner, isWelcome: () => true };
    const { token } = await this.world.edge.media.upload(body);
    this.made.set(token, bytes);
    return token;
  }

  read = async (side: 'home' | 'edge', token: string): Promise<Uint8Array> => {
    const { bytes } = await this.world[side].media.open(token);
    const body = bytes.size === 0 ? new Uint8Array() : await bytes.body(0, bytes.size - 1);
    return new Uint8Array(await new Response(body as BodyInit).arrayBuffer());
  };

  /** True when a side serves an upload byte for byte. */
  isThere = async (side: 'home' | 'edge', token = ''): Promise<boolean> =>
    isSame(await this.read(side, token), this.made.get(token));

  /** Lets everything arrive, with the waits of what failed. */
  async settle(): Promise<void> {
    for (let tries = 0; ; tries++) {
      await this.world.settle();
      for (let turns = 0; turns < 20; turns++) await turn();
      const [home, edge] = [await this.world.home.mirror.status(), this.world.edge.mirror.status()];
      if (home.uploads.count === 0 && edge.uploads.count === 0 && edge.waiting.out === 0) return;
      if (tries > 300) throw new Error(`uploads do not settle:\n${this.world.log.lines.slice(-20).join('\n')}`);
      if (home.uploads.error !== undefined) await this.world.clock.advanceAsync(10_000);
    }
  }

  /** Tokens that no side could give any more after all processes were killed. */
  async lost(): Promise<string[]> {
    const { stores, bytes } = this.world;
    const found: string[] = [];
    for (const [token, wanted] of this.made) {
      const entry = (await stores.edge.open('media').getItem(`entry:${token}`)) as { entry: { place: string } } | null;
      const record = (await stores.home.open('mirror').getItem(`upload:${token}`)) as { place?: string } | null;
      const kept = [bytes.edge.files.get(entry?.entry.place ?? ''), bytes.home.files.get(record?.place ?? '')];
      if (!kept.some((one) => isSame(one, wanted))) found.push(token);
    }
    return found;
  }
}

describe('uploads at the edge are taken over by home (12 §2)', () => {
  it('under the same token, byte for byte; then the edge has none', async () => {
    const uploads = await Uploads.open();
    const { world } = uploads;
    await world.cut();
    const tokens = [await uploads.make(700_000), await uploads.make(10), await uploads.make(0)];
    expect(world.edge.mirror.status().uploads).toEqual({ count: 3, bytes: 700_010 });
    expect(await uploads.isThere('edge', tokens[0])).toBe(true);
    await uploads.settle();
    for (const token of uploads.made.keys()) expect(await uploads.isThere('home', token)).toBe(true);
    expect(world.bytes.edge.files.size).toBe(0);
    expect(world.home.media.list(false).map(({ token }) => token)).toEqual(expect.arrayContaining(tokens));
    // A device at the mailbox is told where it is.
    const refused = () => uploads.read('edge', tokens[0] ?? '');
    await expect(refused()).rejects.toMatchObject({ kind: 'unavailable', extra: { error_code: 'home_only' } });
    await world.cut();
    await expect(refused()).rejects.toMatchObject({
      kind: 'unavailable',
      extra: { error_code: 'home_offline', since: expect.any(Number) },
    });
    // It outlives home's process, until it expires.
    await world.crashHome();
    expect(await uploads.isThere('home', tokens[0])).toBe(true);
    await world.clock.advanceAsync(86_400_000);
    await world.home.media.sweep();
    await world.crashHome();
    expect([world.home.media.count(), world.bytes.home.files.size]).toEqual([0, 0]);
  });

  it('says at home that an upload is on its way, and goes on where a cut has ended it', async () => {
    const uploads = await Uploads.open();
    const { world } = uploads;
    const token = await uploads.make(900_000);
    for (let asked = 0; asked < 12 && world.bytes.home.files.size === 0; asked++) await world.deliver('toHome');
    await expect(uploads.read('home', token)).rejects.toMatchObject({ kind: 'unavailable', retryAfter: 2 });
    const offsets: unknown[] = [];
    /** Delivers what is under way, and notes the pieces that home asks for. */
    const step = async () => {
      for (const message of world.wire?.toEdge ?? []) {
        const frame = typeof message === 'string' ? JSON.parse(message) : {};
        if (frame.method === 'upload.read') offsets.push(frame.body.offset);
      }
      await world.deliver('toEdge');
      await turn();
      await turn();
      await world.deliver('toHome');
      for (let turns = 0; turns < 5; turns++) await turn();
    };
    while (!offsets.includes(524_288)) await step();
    await world.cut();
    await world.heal();
    await uploads.settle();
    expect(offsets.filter((offset) => offset === 0).length).toBeGreaterThan(0);
    expect(world.bytes.home.created).toBe(1);
    expect(await uploads.isThere('home', token)).toBe(true);
  });

  it('keeps what is damaged, or what home has no room for, at the edge, and says so', async () => {
    const uploads = await Uploads.open();
    const { world } = uploads;
    const failing = async (reason: string) => {
      await uploads.make(100);
      await expect
        .poll(async () => {
          await world.settle();
          return (await world.home.mirror.status()).uploads;
        })
        .toEqual({ count: 1, bytes: 100, error: reason });
      expect(world.edge.mirror.status().uploads).toEqual({ count: 1, bytes: 100 });
      expect(world.bytes.home.files.size).toBe(world.home.media.count());
    };
    world.bytes.edge.isDamaged = true;
    await failing('its bytes are not those of its SHA-256');
    expect(world.log.lines.some((line) => /ERROR.*could not be taken over from the edge: its bytes/.test(line))).toBe(
      true,
    );
    world.bytes.edge.isDamaged = false;
    await uploads.settle();
    world.bytes.home.isFull = true;
    await failing('the disk says ENOSPC');
    world.bytes.home.isFull = false;
    await uploads.settle();
    for (const token of uploads.made.keys()) expect(await uploads.isThere('home', token)).toBe(true);
  });

  it('refuses more than may wait, of one device and in all, and evicts none of it', async () => {
    const uploads = await Uploads.open();
    const { world } = uploads;
    await world.cut();
    for (let n = 0; n < 20; n++) await uploads.make(1);
    await expect(uploads.make(1)).rejects.toMatchObject({
      kind: 'unavailable',
      message: expect.stringMatching(/wait/),
    });
    expect([world.edge.media.count(), world.bytes.edge.files.size]).toEqual([20, 20]);
    await uploads.settle();
    await uploads.make(1);
  });

  it('leaves what waits to the edge alone when the mirror ends', async () => {
    const uploads = await Uploads.open();
    await uploads.world.cut();
    const token = await uploads.make(5);
    await uploads.world.edge.mirror.unpin();
    expect(uploads.world.edge.mirror.status().uploads).toEqual({ count: 0, bytes: 0 });
    expect(await uploads.isThere('edge', token)).toBe(true);
  });
});

type Step =
  | { do: 'upload'; size: number }
  | { do: 'toHome' | 'toEdge'; count: number }
  | { do: 'cut' | 'heal' | 'crashHome' | 'crashEdge' | 'sleepEdge' | 'damage' | 'fill' | 'wait' };

const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 3, arbitrary: fc.record({ do: fc.constant('upload'), size: fc.constantFrom(0, 10, 600_000) }) },
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constantFrom('toHome', 'toEdge'), count: fc.integer({ min: 1, max: 4 }) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constantFrom('cut', 'heal', 'crashHome', 'crashEdge', 'sleepEdge', 'damage', 'fill', 'wait'),
    }),
  },
) as fc.Arbitrary<Step>;

/** Runs steps, and checks after each that some side has every upload that was accepted, on its disk. */
async function play(steps: readonly Step[]): Promise<void> {
  const uploads = await Uploads.open();
  const { world } = uploads;
  for (const [n, one] of steps.entries()) {
    switch (one.do) {
      case 'upload':
        await uploads.make(one.size).catch(() => {});
        break;
      case 'toHome':
      case 'toEdge':
        for (let left = one.count; left > 0; left--) await world.deliver(one.do);
        break;
      case 'damage':
        world.bytes.edge.isDamaged = !world.bytes.edge.isDamaged;
        break;
      case 'fill':
        world.bytes.home.isFull = !world.bytes.home.isFull;
        break;
      case 'wait':
        await world.clock.advanceAsync(2_000);
        break;
      default:
        await world[one.do]();
    }
    await turn();
    expect([`${n}: ${one.do}`, await uploads.lost()]).toEqual([`${n}: ${one.do}`, []]);
  }
  world.bytes.edge.isDamaged = false;
  world.bytes.home.isFull = false;
  await uploads.settle();
  expect(await uploads.lost()).toEqual([]);
  for (const token of uploads.made.keys()) expect(await uploads.isThere('home', token)).toBe(true);
  // Registered once each, and nothing is left behind on either side.
  expect(world.home.media.list(true).length).toBe(uploads.made.size);
  expect([world.bytes.edge.files.size, world.bytes.home.files.size]).toEqual([0, uploads.made.size]);
  expect([world.edge.media.count(), world.edge.mirror.status().uploads.count]).toEqual([0, 0]);
}

it('every accepted upload comes to home once, after any cuts, crashes, sleeps, damage and full disks; it is never with nobody', () =>
  fc.assert(fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), play), { numRuns: runs(20) }));

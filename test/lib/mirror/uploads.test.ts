import { sha256 } from '@noble/hashes/sha2.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { openUpload, sealUpload } from '../../../lib/companion/link/sealed-media.ts';
import type { UploadFile } from '../../../lib/companion/types.ts';
import { newBoxKey } from '../../../lib/kit/box.ts';
import { bytesToHex, utf8ToBytes } from '../../../lib/kit/bytes.ts';
import { sealedToken } from '../../../lib/media/sealed.ts';
import { SEALED_TYPE } from '../../../lib/media/sealed-type.ts';
import { readUpload } from '../../../lib/mirror/uploads.ts';
import type { MediaEntry, MirrorUploadRecord } from '../../../storage/schema.ts';
import { runs } from '../../support/runs.ts';
import { SealedDevice } from './sealed-device.ts';
import { World } from './world.ts';

/** Not by `toEqual`, which takes seconds for as many bytes. */
const isSame = (one: Uint8Array | undefined, other: Uint8Array | undefined): boolean =>
  one !== undefined && other !== undefined && Buffer.compare(one, other) === 0;
const MAX_UPLOAD = 1024 * 1024;
const turn = () => new Promise<void>((resolve) => setTimeout(resolve, 0));

async function* multipart({ name, type, bytes }: UploadFile): AsyncGenerator<Uint8Array> {
  const head = `Content-Disposition: form-data; name="file"; filename="${name}"\r\nContent-Type: ${type}`;
  yield utf8ToBytes(`--x\r\n${head}\r\n\r\n`);
  yield bytes;
  yield utf8ToBytes('\r\n--x--\r\n');
}

interface Sending {
  key?: string;
  side?: 'home' | 'edge';
}

/** Uploads that a device has made at the edge, by token. */
class Uploads {
  readonly made = new Map<string, Uint8Array>();
  /** The bytes that the edge gets of sealed ones. */
  readonly sealed = new Map<string, Uint8Array>();
  readonly world: World;
  #device: SealedDevice | undefined;

  constructor(world: World) {
    this.world = world;
  }

  /** A device with keys, once it is needed: it has shown them to home. */
  async device(): Promise<SealedDevice> {
    if (this.#device) return this.#device;
    this.#device = await SealedDevice.pair(this.world, 'phone');
    await this.#device.authenticate();
    return this.#device;
  }

  static async open(): Promise<Uploads> {
    const world = await World.open();
    await world.settle();
    return new Uploads(world);
  }

  async make(size: number): Promise<string> {
    const bytes = new Uint8Array(size).fill(7 + this.made.size);
    const token = await this.send({ name: 'p.png', type: 'image/png', bytes });
    this.made.set(token, bytes);
    return token;
  }

  async makeSealed(size: number): Promise<string> {
    const device = await this.device();
    const bytes = new Uint8Array(size).fill(7 + this.made.size);
    const plain = { name: 'platypus.png', type: 'image/png', bytes };
    const { file, token } = await sealUpload(plain, await device.mediaKeys());
    // Before it is sent, so that no failure of the test is taken for one of the code.
    expect(await this.send(file, device.family)).toBe(token);
    this.made.set(token, bytes);
    this.sealed.set(token, file.bytes);
    return token;
  }

  async send(file: UploadFile, owner = 'f'.repeat(32), { key, side = 'edge' }: Sending = {}): Promise<string> {
    const chunks = multipart(file);
    const contentType = 'multipart/form-data; boundary=x';
    const body = { contentType, contentLength: null, chunks, owner, key, isWelcome: () => true };
    const { token } = await this.world[side].media.upload(body);
    return token;
  }

  /** Sends the same file again and again, under one key. */
  repeated(size: number): (side: 'home' | 'edge') => Promise<string> {
    const bytes = new Uint8Array(size).fill(3);
    return async (side) => {
      const token = await this.send({ name: 'p.png', type: 'image/png', bytes }, undefined, { key: 'k', side });
      this.made.set(token, bytes);
      return token;
    };
  }

  read = async (side: 'home' | 'edge', token: string): Promise<Uint8Array> => {
    const { bytes } = await this.world[side].media.open(token);
    const body = bytes.size === 0 ? new Uint8Array() : await bytes.body(0, bytes.size - 1);
    return new Uint8Array(await new Response(body as BodyInit).arrayBuffer());
  };

  /** True when a side serves an upload byte for byte. */
  isThere = async (side: 'home' | 'edge', token = ''): Promise<boolean> =>
    isSame(await this.read(side, token), (side === 'edge' && this.sealed.get(token)) || this.made.get(token));

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
      const atEdge = bytes.edge.files.get(entry?.entry.place ?? '');
      const isThere = isSame(atEdge, this.sealed.get(token) ?? wanted);
      if (!isThere && !isSame(bytes.home.files.get(record?.place ?? ''), wanted)) found.push(token);
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

  it.each(['before', 'after'])(
    'sent again to home %s that hears of it, are stored once and outlive home',
    async (when) => {
      const uploads = await Uploads.open();
      const { world } = uploads;
      const send = uploads.repeated(700_000);
      await world.cut();
      const token = await send('edge');
      if (when === 'after') {
        world.bytes.edge.isDamaged = true;
        await world.heal();
        await expect
          .poll(async () => {
            await world.settle();
            return (await world.home.mirror.status()).uploads.error;
          })
          .toBeDefined();
        world.bytes.edge.isDamaged = false;
      }
      expect([await send('home'), uploads.made.size]).toEqual([token, 1]);
      expect(await uploads.isThere('home', token)).toBe(true);
      await world.home.media.markSensitive(token);
      await uploads.settle();
      const stored = () => [world.home.media.count(), world.bytes.home.files.size, world.bytes.edge.files.size];
      expect(stored()).toEqual([1, 1, 0]);
      expect(world.home.media.list(false)[0]).toMatchObject({ token, sensitive: true });
      await world.crashHome();
      expect(await uploads.isThere('home', token)).toBe(true);
      // Once home has it, neither side stores it again.
      expect([await send('home'), await send('edge')]).toEqual([token, token]);
      await uploads.settle();
      expect(stored()).toEqual([1, 1, 0]);
    },
  );

  it('sent again do not pass for other bytes that the edge gave under their token', async () => {
    const uploads = await Uploads.open();
    const { world } = uploads;
    const send = uploads.repeated(10);
    const token = await send('home');
    await world.crashHome();
    const { shared } = world.home.media;
    const file = await shared.create();
    await file.write(new Uint8Array(10));
    const place = await file.finish();
    const at = { createdAt: 0, lastAccessed: 0, expiresAt: Number.MAX_SAFE_INTEGER };
    const facts = { contentType: 'image/png', fileName: 'p.png', size: 10, sensitive: false, owned: true };
    expect(shared.adopt({ token, place, sha256: 'another', kept: true, ...facts, ...at })).toBe(true);
    const other = await send('home');
    expect(other).not.toBe(token);
    expect(await uploads.isThere('home', other)).toBe(true);
  });

  it('sent again to the edge after home has lost them come from there', async () => {
    const uploads = await Uploads.open();
    const send = uploads.repeated(10);
    const token = await send('edge');
    await uploads.settle();
    // More files than home has room for.
    for (let n = 0; n < 20; n++)
      await uploads.send({ name: `${n}`, type: 'a/b', bytes: new Uint8Array(1) }, undefined, { side: 'home' });
    await expect(uploads.read('home', token)).rejects.toMatchObject({ kind: 'not-found' });
    expect(await send('edge')).toBe(token);
    await uploads.settle();
    expect(await uploads.isThere('home', token)).toBe(true);
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
      // Whoever asks home for it is told, too.
      const token = [...uploads.made.keys()].at(-1) ?? '';
      const message = `the upload could not be taken over from the edge: ${reason}: try again`;
      await expect(uploads.read('home', token)).rejects.toMatchObject({ kind: 'unavailable', retryAfter: 2, message });
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

  it('come home after any number of others whose room at home newer ones have taken', async () => {
    const uploads = await Uploads.open();
    const { world } = uploads;
    const token = await uploads.make(1);
    await uploads.settle();
    const store = world.stores.home.open('mirror');
    const record = (await store.getItem(`upload:${token}`)) as MirrorUploadRecord;
    for (let n = 0; n < 2_000; n++) {
      const other = { ...record, token: `earlier-upload-${n}`, place: `earlier-${n}` };
      world.bytes.home.files.set(other.place, new Uint8Array(1));
      await store.setItem(`upload:${other.token}`, other);
    }
    await world.crashHome();
    const last = await uploads.make(1);
    await uploads.settle();
    expect(await uploads.isThere('home', last)).toBe(true);
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

describe('sealed uploads (12 §4)', () => {
  it('are at the edge as a seal only, and at home under their token with name, type and bytes', async () => {
    const uploads = await Uploads.open();
    const { world } = uploads;
    const device = await uploads.device();
    await world.cut();
    const tokens = [await uploads.makeSealed(700_000), await uploads.makeSealed(0), await uploads.make(5)];
    const entries = world.edge.media.list(false).map(({ fileName, contentType }) => `${fileName} ${contentType}`);
    expect(entries.sort()).toEqual([
      'p.png image/png',
      'sealed application/vnd.svc-relay.sealed',
      'sealed application/vnd.svc-relay.sealed',
    ]);
    // The device itself can open what waits.
    const [token = ''] = tokens;
    const own = await openUpload(await uploads.read('edge', token), token, await device.mediaKeys());
    expect([own.name, own.type, isSame(own.bytes, uploads.made.get(token))]).toEqual([
      'platypus.png',
      'image/png',
      true,
    ]);
    await uploads.settle();
    for (const each of tokens) expect(await uploads.isThere('home', each)).toBe(true);
    const facts = ({ token, fileName, contentType, size }: MediaEntry) => [token, fileName, contentType, size];
    expect(world.home.media.list(false).map(facts)).toContainEqual([token, 'platypus.png', 'image/png', 700_000]);
    expect(world.bytes.edge.files.size).toBe(0);
    await world.crashHome();
    expect(world.home.media.list(false).map(facts)).toContainEqual([token, 'platypus.png', 'image/png', 700_000]);
    expect(await uploads.isThere('home', token)).toBe(true);
    expect(world.log.lines.join('\n')).not.toContain('platypus');
  });

  it('sent again under the same seal are one', async () => {
    const uploads = await Uploads.open();
    const { world } = uploads;
    const device = await uploads.device();
    await world.cut();
    const plain = { name: 'a', type: 'text/plain', bytes: utf8ToBytes('once') };
    const { file, token } = await sealUpload(plain, await device.mediaKeys());
    expect([await uploads.send(file), await uploads.send(file)]).toEqual([token, token]);
    expect([world.edge.media.count(), world.bytes.edge.files.size]).toEqual([1, 1]);
    await uploads.settle();
    expect(await uploads.send(file)).toBe(token);
    await uploads.settle();
    expect([world.home.media.count(), world.bytes.edge.files.size]).toEqual([1, 0]);
  });

  it('that cannot be opened are refused aloud; neither side keeps anything of them', async () => {
    const uploads = await Uploads.open();
    const { world } = uploads;
    const keys = await (await uploads.device()).mediaKeys();
    const plain = { name: 'a', type: 'text/plain', bytes: new Uint8Array(200_000) };
    const { file } = await sealUpload(plain, keys);
    const { length } = file.bytes;
    const changed = (at: number) => file.bytes.map((byte, index) => (index === at ? byte ^ 1 : byte));
    const stranger = { ...keys, own: await newBoxKey() };
    const other = { ...keys, deviceId: 'another' };
    const long = new Uint8Array(MAX_UPLOAD + 1);
    const forms: [Uint8Array, string][] = [
      [new Uint8Array(), 'it is cut short'],
      [file.bytes.subarray(0, length - 1), ''],
      [file.bytes.subarray(0, length - 40_000), ''],
      [changed(0), 'its head is too long'],
      [changed(200), ''],
      [changed(100_000), ''],
      [changed(length - 1), ''],
      [new Uint8Array(300_000).fill(9), 'its head is too long'],
      [(await sealUpload(plain, stranger)).file.bytes, 'no device of home has its key'],
      [(await sealUpload(plain, other)).file.bytes, ''],
      [(await sealUpload({ ...plain, bytes: long }, keys)).file.bytes, 'it is larger than this relay takes'],
    ];
    const tokens = new Map<string, string | undefined>();
    for (const [n, [bytes, reason]] of forms.entries()) {
      const from = world.log.lines.length;
      const token = await uploads.send({ ...file, bytes });
      await uploads.settle();
      expect([n, world.bytes.edge.files.size, world.bytes.home.files.size, world.home.media.count()]).toEqual([
        n,
        0,
        0,
        0,
      ]);
      const { refused } = (await world.home.mirror.status()).uploads;
      expect(refused).toContain(reason);
      tokens.set(token, refused);
      await expect(uploads.read('home', token)).rejects.toMatchObject({
        kind: 'gone',
        message: `the sealed upload is refused: ${refused}; nothing of it is kept`,
      });
      const said = world.log.lines.slice(from).filter((line) => line.includes('ERROR'));
      expect(said).toEqual([expect.stringContaining('a sealed upload from the edge is refused')]);
    }
    // Home remembers why, also in another process, until they would have expired.
    const { refused } = (await world.home.mirror.status()).uploads;
    await world.crashHome();
    expect((await world.home.mirror.status()).uploads).toEqual({ count: 0, bytes: 0, refused });
    for (const [token, reason] of tokens) {
      await expect(uploads.read('home', token)).rejects.toMatchObject({
        kind: 'gone',
        message: `the sealed upload is refused: ${reason}; nothing of it is kept`,
      });
    }
    // The edge may offer one again, which home does not fetch again.
    const { created } = world.bytes.home;
    const last = { ...file, bytes: forms.at(-1)?.[0] as Uint8Array };
    await uploads.send(last);
    await uploads.settle();
    expect([world.bytes.edge.files.size, world.bytes.home.created]).toEqual([0, created]);
    await world.clock.advanceAsync(86_400_000);
    await expect(uploads.read('home', [...tokens.keys()][0] ?? '')).rejects.toMatchObject({ kind: 'not-found' });
    await world.crashHome();
    expect(await stored(world, 'home')).toEqual([]);
  });

  it('damaged at the edge alone stay there, and come once their bytes are right again', async () => {
    const uploads = await Uploads.open();
    const { world } = uploads;
    await uploads.device();
    world.bytes.edge.isDamaged = true;
    const token = await uploads.makeSealed(600_000);
    const reason = 'its bytes are not those of its SHA-256';
    await expect
      .poll(async () => {
        await world.settle();
        return (await world.home.mirror.status()).uploads.error;
      })
      .toBe(reason);
    expect([world.bytes.edge.files.size, world.bytes.home.files.size]).toEqual([1, 0]);
    world.bytes.edge.isDamaged = false;
    await uploads.settle();
    expect(await uploads.isThere('home', token)).toBe(true);
  });

  it('have a token that the edge can give to nothing else', async () => {
    const uploads = await Uploads.open();
    const { world } = uploads;
    await world.cut();
    const offer = {
      token: sealedToken(bytesToHex(sha256(utf8ToBytes('sealed')))),
      file_name: 'a',
      content_type: 'text/plain',
      size: 3,
      sha256: bytesToHex(sha256(utf8ToBytes('bad'))),
      created_at: 1,
      expires_at: 1e10,
      family: 'f',
    };
    expect(readUpload(offer)).toBeUndefined();
    expect(readUpload({ ...offer, content_type: SEALED_TYPE })).toBeUndefined();
    expect(readUpload({ ...offer, token: 'a'.repeat(22) })).toBeDefined();
    expect(readUpload({ ...offer, token: sealedToken(offer.sha256), content_type: SEALED_TYPE })).toBeDefined();
  });
});

/** What a side has stored of uploads. */
async function stored({ stores }: World, side: 'home' | 'edge'): Promise<string[]> {
  return (await stores[side].open('mirror').getKeys()).filter((key) => key.startsWith('upload:'));
}

type Step =
  | { do: 'upload' | 'upload sealed'; size: number }
  | { do: 'toHome' | 'toEdge'; count: number }
  | { do: 'cut' | 'heal' | 'crashHome' | 'crashEdge' | 'sleepEdge' | 'damage' | 'fill' | 'wait' };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('upload', 'upload sealed'),
      size: fc.constantFrom(0, 10, 600_000),
    }),
  },
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
  if (steps.some(({ do: what }) => what === 'upload sealed')) await uploads.device();
  const { world } = uploads;
  for (const [n, one] of steps.entries()) {
    switch (one.do) {
      case 'upload':
        await uploads.make(one.size).catch(() => {});
        break;
      case 'upload sealed':
        await uploads.makeSealed(one.size).catch(() => {});
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

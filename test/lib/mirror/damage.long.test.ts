import { expect, it } from 'vitest';
import { createRedemption } from '../../../lib/pairing/redemption.ts';
import { authenticate } from '../../../lib/socket/auth.ts';
import type { MirrorRecord } from '../../../storage/schema.ts';
import { Device, readReplies } from './device.ts';
import { SealedDevice } from './sealed-device.ts';
import { policies, World } from './world.ts';

type Side = 'home' | 'edge';

const DAMAGED = 'skipped a record of the mirror that cannot be read';
const KINDS = {
  edge: ['acked', 'applied', 'ended:', 'heard', 'home-pages', 'link', 'op:item:', 'op:reply:', 'pages', 'peer'],
  home: [
    ...['acked', 'adopted:', 'applied', 'box', 'box:', 'edge-code:', 'mailbox:'],
    ...['op:pages', 'op:session:', 'peer', 'upload:'],
  ],
};
const limiter = { codesFor: () => 'all', succeed: () => {}, fail: () => false } as never;
const device = (id: string, origin?: string) => ({
  ...({ name: id, id, model: '', platform: '', surface: 'android', formFactor: 'phone' } as const),
  ...(origin !== undefined && { origin }),
});

/** A mirror that has stored a record of every kind at both sides. */
async function openWithEverything(): Promise<World> {
  const world = await World.open();
  world.routes = [{ role: 'public', priority: 0, relay: { url: 'wss://home.example/ws' } }];
  const phone = await SealedDevice.pair(world, 'phone');
  await phone.authenticate();
  phone.install();
  await phone.authenticate();
  const page = { device: device('page', 'https://app.example'), policy: {}, transportHint: 'wss' as const };
  await world.home.sessions.create(page);
  const gone = await world.pair('gone');
  await world.settle();
  const session = world.edge.sessions.byFamily(gone.family);
  if (session) await world.edge.sessions.revoke(session);

  const mirror = createRedemption({ codes: world.home.codes, home: () => world.home.mirror });
  for (const code of ['ABC123', 'DEF456']) {
    const made = mirror.register(code, { ttlSeconds: 3600 }, 'edge');
    await Promise.all([world.settle(), made]);
  }
  const { sessions, codes } = world.edge;
  const shown = { device: device('tablet'), typedStream: false, pairingCode: 'ABC123' };
  await authenticate({ sessions, codes, limiter, log: world.log }, shown, { key: 'peer', transportHint: 'wss' });

  const file = '--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\nhello\r\n--x--\r\n';
  await world.edge.media.upload({
    contentType: 'multipart/form-data; boundary=x',
    contentLength: null,
    chunks: (async function* () {
      yield new TextEncoder().encode(file);
    })(),
    owner: gone.family,
    isWelcome: () => true,
  });
  await world.settle();
  await expect.poll(async () => (await world.home.mirror.status()).uploads.count).toBe(0);
  await world.settle();
  return world;
}

/** The record with each of its members damaged, and as a whole. */
function* damages(record: object): Generator<[what: string, value: unknown]> {
  yield ['all of it', null];
  for (const [name, value] of Object.entries(record))
    yield [name, { ...record, [name]: typeof value === 'string' ? 7 : 'damaged' }];
}

const historyOf = (world: World, side: Side) =>
  world[side].phone
    .history({ since: 0, limit: 500 })
    .items.map(({ seq, kind, message_id: id, state }) => [seq, kind, id, kind === 'message' && state]);

/** As an operator does who reads that the mirror is not on: home had to make a new key, or the edge has lost its own. */
async function enableAgain(world: World): Promise<void> {
  const { enabled, key } = await world.home.mirror.status();
  if (enabled && world.edge.mirror.status().enabled) return;
  await world.edge.mirror.pin(key).catch(async () => {
    await world.edge.mirror.unpin();
    await world.edge.mirror.pin(key);
  });
  await world.home.mirror.enable('https://edge.example');
}

it.each(['home', 'edge'] as const)(
  '12 §2: any damaged record of the mirror at %s is said, both sides come in step again, and no reply is lost',
  async (side) => {
    const world = await openWithEverything();
    const phone = new Device(world);
    const store = () => world.stores[side].open('mirror');
    const restart = () => (side === 'home' ? world.crashHome() : world.crashEdge());
    const kinds = new Set<string>();
    const read: string[] = [];
    let n = 0;
    for (const base of await kindsOf(world, side)) {
      let cases: [string, unknown][] = [['', null]];
      let last: [key: string, record: object] = [base, {}];
      for (let next = 0; next < cases.length; next++) {
        // Something waits at the edge, also where its op is damaged.
        await world.cut();
        phone.connect('edge');
        await world.edge.phone.push({ text: 'hello', message_id: `m${++n}` });
        phone.receiveAll();
        await phone.reply(`r${n}`, 'yes');
        phone.disconnect();
        const key = (await store().getKeys()).filter((name) => name.startsWith(base)).at(-1);
        // Some are gone once they were damaged.
        if (key !== undefined) last = [key, (await store().getItem(key)) as object];
        cases = [...damages(last[1])];
        const [what, value] = cases[next] ?? ['', null];
        await store().setItem(last[0], value as MirrorRecord);
        world.log.lines.length = 0;
        await restart();
        expect([base, what, world.log.lines.filter((line) => line.includes(DAMAGED)).length]).toEqual([base, what, 1]);
        await world.heal();
        await enableAgain(world);
        await world.settle();
        expect([base, what, policies(world.edge.sessions)]).toEqual([base, what, policies(world.home.sessions)]);
        read.push(...(await readReplies(world, 'home')).map(([id]) => id));
        expect([base, what, new Set(read).size]).toEqual([base, what, read.length]);
        // Another home gets what was here before it once both are compared anew.
        if (base !== 'peer') {
          expect([base, what, historyOf(world, 'edge')]).toEqual([base, what, historyOf(world, 'home')]);
          expect([base, what, read.at(-1), read.length]).toEqual([base, what, `r${n}`, n]);
        }
        kinds.add(base);
        if (next > 0) continue;
        // It is mended for good.
        world.log.lines.length = 0;
        await restart();
        await world.settle();
        expect([base, what, world.log.lines.filter((line) => line.includes(DAMAGED))]).toEqual([base, what, []]);
      }
    }
    world.home.mirror.stop();
    expect([...kinds].sort()).toEqual(KINDS[side]);
  },
  300_000,
);

/** What the keys at a side begin with, while something waits there. */
async function kindsOf(world: World, side: Side): Promise<string[]> {
  const keys = await world.stores[side].open('mirror').getKeys();
  const waiting = side === 'edge' ? ['op:item:', 'op:reply:'] : [];
  const found = new Set([...keys.map((key) => key.replace(/^((?:op:)?[a-z-]+:?).*$/, '$1')), ...waiting]);
  // The key last: with another one, home is another home.
  return [...found].sort((a, b) => Number(a === 'peer') - Number(b === 'peer'));
}

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createRedemption } from '../../../lib/pairing/redemption.ts';
import type { Policy } from '../../../lib/sessions/grants.ts';
import { endsLater } from '../../../lib/sessions/grants.ts';
import type { Sessions } from '../../../lib/sessions/sessions.ts';
import { authenticate } from '../../../lib/socket/auth.ts';
import { runs } from '../../support/runs.ts';
import { policies, World } from './world.ts';

interface Credentials {
  token: string;
  refreshToken: string;
}

/** A device that pairs at the edge, and what it has for each side. */
interface Phone {
  id: string;
  family: string;
  mailbox: Credentials;
  atHome?: Credentials;
  /** The raw tokens that have passed the edge. */
  seen: Credentials[];
}

const peer = { key: 'peer', transportHint: 'wss' as const };
const limiter = { codesFor: () => 'all', succeed: () => {}, fail: () => false } as never;
const device = (id: string) =>
  ({ name: id, id, model: '', platform: '', surface: 'android', formFactor: 'phone' }) as const;

/** The first frame of a device at a side. */
async function auth(world: World, side: 'home' | 'edge', id: string, shown: object) {
  const { sessions, codes } = world[side];
  const request = { device: device(id), typedStream: false, ...shown };
  const admitted = await authenticate({ sessions, codes, limiter, log: world.log }, request, peer);
  if (admitted && side === 'edge') world.edge.mirror.greeting(admitted.session);
  return admitted;
}

/** Makes a code that is good at the edge: at home with the link, else at the edge. */
async function code(world: World, by: 'home' | 'edge', name: string, policy: Policy = {}): Promise<void> {
  const mirror = createRedemption({
    codes: world[by].codes,
    ...(by === 'home' ? { home: () => world.home.mirror } : { edge: () => world.edge.mirror }),
  });
  const made = mirror.register(name, policy, 'edge');
  await Promise.race([made.catch(() => {}), by === 'home' ? world.settle() : made]);
  await made;
}

async function pairAtEdge(world: World, id: string, pairingCode: string): Promise<Phone> {
  const admitted = await auth(world, 'edge', id, { pairingCode });
  if (!admitted) throw new Error('not admitted');
  const { session, token, refreshToken = '' } = admitted;
  world.here.add(session.family);
  return { id, family: session.family, mailbox: { token, refreshToken }, seen: [] };
}

/** The device takes the last that the edge has sent it. */
function take(world: World, phone: Phone): boolean {
  const last = world.given.filter(({ family }) => family === phone.family).at(-1);
  const home = last?.payload.home as { session_token: string; refresh_token: string } | undefined;
  if (!home) return false;
  const given = { token: home.session_token, refreshToken: home.refresh_token };
  phone.seen.push(given);
  phone.atHome ??= { ...given };
  return true;
}

async function signIn(world: World, side: 'home' | 'edge', phone: Phone): Promise<boolean> {
  const own = side === 'home' ? phone.atHome : phone.mailbox;
  if (!own) return false;
  const admitted = await auth(world, side, phone.id, { sessionToken: own.token, refreshToken: own.refreshToken });
  if (!admitted) return false;
  own.token = admitted.token;
  own.refreshToken = admitted.refreshToken ?? own.refreshToken;
  return true;
}

const ends = (sessions: Sessions, family: string) => {
  const { expiresAt, grants } = sessions.byFamily(family) ?? {};
  return { expiresAt, grants };
};

describe('a device that pairs at the edge of a home (12 §3)', () => {
  it('becomes one of home by the policy of the code, and gets credentials for home that the edge cannot use later', async () => {
    const world = await World.open();
    await world.settle();
    await code(world, 'home', 'ABC123', { ttlSeconds: 3600, without: ['terminal'] });
    await world.cut();
    const phone = await pairAtEdge(world, 'phone', 'ABC123');
    expect(world.home.sessions.list()).toEqual([]);
    expect(world.edge.mirror.status().waiting.out).toBeGreaterThan(0);
    await world.settle();
    expect(ends(world.home.sessions, phone.family)).toEqual(ends(world.edge.sessions, phone.family));
    expect(world.home.sessions.byFamily(phone.family)?.grants).not.toHaveProperty('terminal');
    expect(world.given.at(-1)?.payload).toEqual({
      endpoints: [{ role: 'lan', priority: 0, relay: { url: 'ws://192.168.1.2:8767/ws' } }],
      home: {
        urls: ['ws://192.168.1.2:8767/ws'],
        session_token: expect.stringMatching(/^[0-9a-f]{64}$/),
        refresh_token: expect.stringMatching(/^[\w-]{43}$/),
      },
    });
    expect(take(world, phone)).toBe(true);
    // The credentials of the edge stay what they are, and those of one side are worthless at the other.
    expect(await signIn(world, 'edge', phone)).toBe(true);
    expect(await auth(world, 'home', 'phone', { sessionToken: phone.mailbox.token })).toBeUndefined();
    expect(await auth(world, 'edge', 'phone', { sessionToken: phone.atHome?.token })).toBeUndefined();
    // The first time at home exchanges them.
    expect(await signIn(world, 'home', phone)).toBe(true);
    expect(await auth(world, 'home', 'phone', { sessionToken: phone.seen[0]?.token })).toBeUndefined();
    expect(await signIn(world, 'home', phone)).toBe(true);
    // Once it has been there, it is offered nothing more.
    await signIn(world, 'edge', phone);
    await world.settle();
    const count = world.given.length;
    await signIn(world, 'edge', phone);
    await world.settle();
    expect(world.given).toHaveLength(count);
    expect(world.edge.sessions.byFamily(phone.family)?.pairedHere).toBeUndefined();
    // Whoever has read them at the edge ends the family with what is dead, and gets nothing.
    await world.clock.advanceAsync(601_000);
    expect(await auth(world, 'home', 'phone', phone.seen[0] ?? {})).toBeUndefined();
    expect(await auth(world, 'home', 'phone', { refreshToken: phone.seen[0]?.refreshToken })).toBeUndefined();
    expect(world.home.sessions.byFamily(phone.family)).toBeUndefined();
  });

  it('no side stores a raw token', async () => {
    const world = await World.open();
    await world.settle();
    await code(world, 'home', 'ABC123');
    const phone = await pairAtEdge(world, 'phone', 'ABC123');
    await world.settle();
    take(world, phone);
    const secrets = [phone.mailbox, phone.atHome].flatMap((own) => [own?.token, own?.refreshToken]);
    for (const store of ['mirror', 'sessions', 'pairing-codes'] as const) {
      for (const side of ['home', 'edge'] as const) {
        const at = world.stores[side].open(store);
        const values = await Promise.all((await at.getKeys()).map((key) => at.getItem(key)));
        for (const secret of secrets) expect(JSON.stringify(values)).not.toContain(secret);
      }
    }
  });

  it('gets messages alone where the edge alone has made the code: a stolen edge makes no shells', async () => {
    const world = await World.open();
    await world.settle();
    await world.cut();
    await code(world, 'edge', 'ABC123', { ttlSeconds: 7200, grants: { terminal: 0 } });
    const phone = await pairAtEdge(world, 'phone', 'ABC123');
    await world.settle();
    expect(Object.keys(world.home.sessions.byFamily(phone.family)?.grants ?? {})).toEqual(['phone']);
    expect(ends(world.home.sessions, phone.family)).toEqual(ends(world.edge.sessions, phone.family));
    expect(take(world, phone) && (await signIn(world, 'home', phone))).toBe(true);
  });

  it('that was revoked before home was linked never comes there, and one that home has ended does not come back', async () => {
    const world = await World.open();
    await world.settle();
    await code(world, 'home', 'ABC123');
    await code(world, 'home', 'ABC124');
    await world.cut();
    const [first, second] = [await pairAtEdge(world, 'one', 'ABC123'), await pairAtEdge(world, 'two', 'ABC124')];
    const own = world.edge.sessions.byFamily(first.family);
    if (own) await world.edge.sessions.revoke(own);
    await world.settle();
    expect(world.home.sessions.list().map(({ family }) => family)).toEqual([second.family]);
    const there = world.home.sessions.byFamily(second.family);
    if (there) await world.home.sessions.revoke(there);
    await world.settle();
    expect(world.edge.sessions.list()).toEqual([]);
    expect([await signIn(world, 'edge', first), await signIn(world, 'edge', second)]).toEqual([false, false]);
    // The edge says it again, as one whose state was restored would.
    expect(await world.stores.home.open('mirror').hasItem(`adopted:${second.family}`)).toBe(true);
  });

  it('is named in words that cannot be read: home gives nothing, and goes on', async () => {
    const world = await World.open();
    await world.settle();
    const ask = { type: 'call', id: 'ask-1', method: 'home', body: { family: { toString: 1, valueOf: 1 } } };
    world.wire?.home.message(JSON.stringify(ask));
    await world.settle();
    expect((await world.home.mirror.status()).link).toBe('up');
  });

  it('takes the place of the session that the device had', async () => {
    const world = await World.open();
    const before = await world.pair('phone');
    await world.settle();
    await code(world, 'home', 'ABC123');
    const phone = await pairAtEdge(world, 'phone', 'ABC123');
    await world.settle();
    expect(world.home.sessions.list().map(({ family }) => family)).toEqual([phone.family]);
    expect(world.edge.sessions.list().map(({ family }) => family)).toEqual([phone.family]);
    expect(world.home.sessions.byFamily(before.family)).toBeUndefined();
  });

  it('is refused, and ends at the edge, where home has no room', async () => {
    const world = await World.open({ maxSessions: 1 });
    await world.settle();
    await code(world, 'home', 'ABC123');
    const phone = await pairAtEdge(world, 'phone', 'ABC123');
    await world.cut();
    await world.pair('other');
    await world.settle();
    expect(world.home.sessions.byFamily(phone.family)).toBeUndefined();
    expect(world.edge.sessions.byFamily(phone.family)).toBeUndefined();
  });

  it('is refused, and ends at the edge, where home has no room while both are linked', async () => {
    const world = await World.open();
    await world.pair('other');
    world.maxSessions = 1;
    await world.crashHome();
    await world.settle();
    await code(world, 'edge', 'ABC123');
    const phone = await pairAtEdge(world, 'phone', 'ABC123');
    await world.settle();
    expect(world.home.sessions.byFamily(phone.family)).toBeUndefined();
    expect(world.edge.sessions.byFamily(phone.family)).toBeUndefined();
  });

  it('is served while home has not been heard for longer than the lease, until home knows it', async () => {
    const world = await World.open({ lease: 3600 });
    await world.settle();
    await world.cut();
    await world.clock.advanceAsync(2 * 3_600_000);
    await code(world, 'edge', 'ABC123');
    const phone = await pairAtEdge(world, 'phone', 'ABC123');
    expect(await signIn(world, 'edge', phone)).toBe(true);
    await world.settle();
    await world.cut();
    await world.clock.advanceAsync(2 * 3_600_000);
    expect(await signIn(world, 'edge', phone)).toBe(false);
  });
});

type Step =
  | 'code-home'
  | 'code-edge'
  | 'pair'
  | 'take'
  | 'at-edge'
  | 'at-home'
  | 'revoke-edge'
  | 'revoke-home'
  | 'reduce-edge'
  | 'cut'
  | 'heal'
  | 'crash-home'
  | 'crash-edge'
  | 'sleep-edge'
  | 'to-edge'
  | 'to-home'
  | 'wait';
const STEPS: Step[] = [
  'code-home',
  'code-edge',
  'pair',
  'take',
  'at-edge',
  'at-home',
  'revoke-edge',
  'revoke-home',
  'reduce-edge',
  'cut',
  'heal',
  'crash-home',
  'crash-edge',
  'sleep-edge',
  'to-edge',
  'to-home',
  'wait',
];

describe('two replicas and devices that pair at the edge', () => {
  it('agree after any order of pairings, ends, cuts, crashes and sleeps', { timeout: 120_000 }, async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.constantFrom(...STEPS), { minLength: 5, maxLength: 40 }), async (steps) => {
        const world = await World.open();
        await world.settle();
        const codes: { name: string; by: 'home' | 'edge' }[] = [];
        const phones: (Phone & { by: 'home' | 'edge' })[] = [];
        const revoked = new Set<string>();
        const ceilings = new Map<string, number | null>();
        let count = 0;
        const revoke = async (side: 'home' | 'edge', phone: Phone | undefined) => {
          const session = phone && world[side].sessions.byFamily(phone.family);
          if (!session) return;
          revoked.add(session.family);
          await world[side].sessions.revoke(session);
        };
        for (const [index, step] of steps.entries()) {
          const phone = phones[index % Math.max(1, phones.length)];
          if (step === 'code-home' || step === 'code-edge') {
            const by = step === 'code-home' ? 'home' : 'edge';
            const name = `CODE${String(count++).padStart(2, '0')}`;
            if (by === 'home' && (await world.home.mirror.status()).link === 'down') {
              await expect(code(world, by, name)).rejects.toThrow();
            } else {
              await code(world, by, name, { ttlSeconds: 86_400 });
              codes.push({ name, by });
            }
          }
          if (step === 'pair' && codes.length > 0) {
            const { name, by } = codes.shift() as { name: string; by: 'home' | 'edge' };
            // Only its redeemer takes it.
            expect(await auth(world, 'home', 'racer', { pairingCode: name })).toBeUndefined();
            const paired = await pairAtEdge(world, `device-${name}`, name);
            phones.push({ ...paired, by });
            ceilings.set(paired.family, world.edge.sessions.byFamily(paired.family)?.expiresAt ?? null);
            expect(await auth(world, 'edge', 'racer', { pairingCode: name })).toBeUndefined();
          }
          if (step === 'take' && phone) take(world, phone);
          if (step === 'at-edge' && phone) await signIn(world, 'edge', phone);
          if (step === 'at-home' && phone) await signIn(world, 'home', phone);
          if (step === 'revoke-edge') await revoke('edge', phone);
          if (step === 'revoke-home') await revoke('home', phone);
          if (step === 'reduce-edge' && phone) {
            const session = world.edge.sessions.byFamily(phone.family);
            if (session) {
              await world.edge.sessions.reduce(session, { ttlSeconds: 3600 }).catch(() => {});
              ceilings.set(phone.family, session.expiresAt);
            }
          }
          if (step === 'cut') await world.cut();
          if (step === 'heal') await world.heal();
          if (step === 'crash-home') await world.crashHome();
          if (step === 'crash-edge') await world.crashEdge();
          if (step === 'sleep-edge') await world.sleepEdge();
          if (step === 'to-edge') await world.deliver('toEdge');
          if (step === 'to-home') await world.deliver('toHome');
          if (step === 'wait') await world.clock.advanceAsync(1_000);
        }
        await world.settle();
        expect(policies(world.home.sessions)).toEqual(policies(world.edge.sessions));
        for (const phone of phones) {
          const { family, by } = phone;
          const own = world.home.sessions.byFamily(family);
          // Ends win, and nobody else is ended.
          expect([family, own !== undefined]).toEqual([family, !revoked.has(family)]);
          const isInAtEdge = await signIn(world, 'edge', phone);
          take(world, phone);
          const isIn = [isInAtEdge, await signIn(world, 'home', phone)];
          await world.settle();
          if (revoked.has(family)) expect(isIn).toEqual([false, false]);
          else {
            expect(isIn[0]).toBe(true);
            take(world, phone);
            expect(await signIn(world, 'home', phone)).toBe(true);
            // Policies never grow.
            const ceiling = ceilings.get(family);
            expect(own && ceiling !== undefined && !endsLater(own.expiresAt, ceiling)).toBe(true);
            expect(Object.keys(own?.grants ?? {}).length > 1).toBe(by === 'home');
          }
          // What the edge has seen is worthless once the device has been at home.
          for (const { token } of phone.atHome ? phone.seen : []) {
            expect(await auth(world, 'home', phone.id, { sessionToken: token })).toBeUndefined();
          }
        }
      }),
      { numRuns: runs(20) },
    );
  });
});

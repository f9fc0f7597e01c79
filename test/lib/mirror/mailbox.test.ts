import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Device } from '../../../lib/sessions/session.ts';
import type { Sessions } from '../../../lib/sessions/sessions.ts';
import { runs } from '../../support/runs.ts';
import { World } from './world.ts';

const device = (id: string): Device => ({
  name: id,
  id,
  model: '',
  platform: '',
  surface: 'android',
  formFactor: 'phone',
});

interface Credentials {
  token: string;
  refreshToken: string;
}

/** What a device has of its pairing. */
interface Phone {
  id: string;
  family: string;
  atHome: Credentials;
  mailbox?: Credentials;
  /** The token that home gave, from which those have come. */
  given?: string;
}

async function paired(world: World, id: string): Promise<Phone> {
  const {
    session,
    token,
    refreshToken = '',
  } = await world.home.sessions.create({
    device: device(id),
    policy: {},
    transportHint: 'ws',
  });
  return { id, family: session.family, atHome: { token, refreshToken } };
}

/** The device is given what home has for it, and keeps what has come of it. With `taken`, home hears that it has come. */
function take(world: World, phone: Phone, taken = true): boolean {
  const session = world.home.sessions.byFamily(phone.family);
  const given = session && world.home.mirror.mailbox(session);
  if (!given) return false;
  const { session_token: token, refresh_token: refreshToken } = given.mailbox;
  if (!phone.mailbox || phone.given !== token) phone.mailbox = { token, refreshToken };
  phone.given = token;
  if (taken) given.onDelivered();
  return true;
}

/** As a first frame of a device does: by the token, else by the refresh token. Whether it is let in. */
async function signIn(sessions: Sessions, id: string, own: Credentials): Promise<boolean> {
  const session = sessions.authenticate(own.token);
  if (session) {
    const issued = await sessions.resume(session, device(id), own.refreshToken).saved;
    if (issued !== undefined) own.refreshToken = issued;
    return true;
  }
  const issued = await sessions.refresh(own.refreshToken, device(id));
  if (issued) Object.assign(own, { token: issued.token, refreshToken: issued.refreshToken ?? own.refreshToken });
  return issued !== undefined;
}

describe('credentials for the mailbox (12 §2, §3)', () => {
  it('are given once the edge has confirmed them, and once', async () => {
    const world = await World.open();
    const phone = await paired(world, 'phone');
    expect(take(world, phone)).toBe(false);
    await world.settle();
    expect(world.ready).toEqual([phone.family]);
    const session = world.home.sessions.byFamily(phone.family);
    expect(session && world.home.mirror.mailbox(session)?.mailbox).toEqual({
      url: 'wss://edge.example/ws',
      session_token: expect.stringMatching(/^[0-9a-f]{64}$/),
      refresh_token: expect.stringMatching(/^[\w-]{44}$/),
    });
    expect(take(world, phone)).toBe(true);
    expect(take(world, phone)).toBe(false);
    await world.crashHome();
    expect(take(world, phone)).toBe(false);
    expect(phone.mailbox && (await signIn(world.edge.sessions, phone.id, phone.mailbox))).toBe(true);
  });

  it('are the same after a crash of home, until the device has shown that they came', async () => {
    const world = await World.open();
    const phone = await paired(world, 'phone');
    await world.settle();
    take(world, phone, false);
    const first = phone.mailbox;
    await world.crashHome();
    take(world, phone);
    expect(phone.mailbox).toEqual(first);
    for (const store of ['mirror', 'sessions'] as const) {
      for (const side of ['home', 'edge'] as const) {
        const at = world.stores[side].open(store);
        for (const key of await at.getKeys()) {
          const text = JSON.stringify(await at.getItem(key));
          expect(text).not.toContain(first?.token);
          expect(text).not.toContain(first?.refreshToken);
        }
      }
    }
  });

  it('are worthless at home, as those of home are at the edge, and end nothing there', async () => {
    const world = await World.open();
    const phone = await paired(world, 'phone');
    await world.settle();
    take(world, phone);
    if (!phone.mailbox) throw new Error('no mailbox');
    expect(await signIn(world.home.sessions, phone.id, { ...phone.mailbox })).toBe(false);
    expect(await signIn(world.edge.sessions, phone.id, { ...phone.atHome })).toBe(false);
    // Dead ones of their own side end the family.
    expect(await signIn(world.home.sessions, phone.id, phone.atHome)).toBe(true);
    expect(await signIn(world.edge.sessions, phone.id, phone.mailbox)).toBe(true);
    await world.settle();
    expect(world.home.sessions.byFamily(phone.family)).toBeDefined();
  });

  it('are refreshed at the edge while the link is cut, and a copied one ends the family on both sides', async () => {
    const world = await World.open();
    const phone = await paired(world, 'phone');
    await world.settle();
    take(world, phone);
    if (!phone.mailbox) throw new Error('no mailbox');
    const first = { ...phone.mailbox };
    await world.cut();
    phone.mailbox.token = 'lost';
    expect(await signIn(world.edge.sessions, phone.id, phone.mailbox)).toBe(true);
    expect(phone.mailbox.refreshToken).not.toBe(first.refreshToken);
    expect(phone.mailbox.refreshToken).toHaveLength(44);
    await world.crashEdge();
    expect(await signIn(world.edge.sessions, phone.id, phone.mailbox)).toBe(true);
    await world.settle();
    expect(world.home.sessions.byFamily(phone.family)).toBeDefined();
    expect(await signIn(world.edge.sessions, phone.id, { token: '', refreshToken: first.refreshToken })).toBe(false);
    await world.settle();
    expect(world.home.sessions.list()).toEqual([]);
    expect(world.edge.sessions.list()).toEqual([]);
  });

  it('begin anew for a device that has lost them, and the last ones end', async () => {
    const world = await World.open();
    const phone = await paired(world, 'phone');
    await world.settle();
    take(world, phone);
    const lost = phone.mailbox;
    const session = world.home.sessions.byFamily(phone.family);
    if (!session || !lost) throw new Error('not paired');
    world.clock.set(world.clock.now() + 60_000);
    await world.cut();
    const refused = world.home.mirror.renewMailbox(session).catch((error) => error.message);
    await world.clock.advanceAsync(10_000);
    expect(await refused).toBe('the mailbox at the edge cannot be reached now');
    await world.settle();
    const { mailbox, onDelivered } = await world.home.mirror.renewMailbox(session);
    onDelivered();
    const own = { token: mailbox.session_token, refreshToken: mailbox.refresh_token };
    expect(own.token).not.toBe(lost.token);
    expect(await signIn(world.edge.sessions, phone.id, own)).toBe(true);
    expect(world.edge.sessions.authenticate(lost.token)).toBeUndefined();
  });

  it('begin anew for a device that has used and lost them before home saw that they came', async () => {
    const world = await World.open();
    const phone = await paired(world, 'phone');
    await world.settle();
    take(world, phone, false);
    const session = world.home.sessions.byFamily(phone.family);
    if (!session || !phone.mailbox) throw new Error('not paired');
    const first = { ...phone.mailbox };
    for (const by of ['refresh', 'token']) {
      if (by === 'refresh') phone.mailbox.token = '';
      expect(await signIn(world.edge.sessions, phone.id, phone.mailbox)).toBe(true);
    }
    await world.clock.advanceAsync(10_000);
    const renewed = world.home.mirror.renewMailbox(session);
    await world.settle();
    const { mailbox } = await renewed;
    expect(mailbox.session_token).not.toBe(first.token);
    const own = { token: mailbox.session_token, refreshToken: mailbox.refresh_token };
    expect(await signIn(world.edge.sessions, phone.id, own)).toBe(true);
    expect(world.home.sessions.byFamily(phone.family)).toBeDefined();
  });

  it('raise at home when the device was last seen', async () => {
    const world = await World.open();
    const phone = await paired(world, 'phone');
    await world.settle();
    take(world, phone);
    world.clock.set(world.clock.now() + 3_600_000);
    if (!phone.mailbox) throw new Error('no mailbox');
    await signIn(world.edge.sessions, phone.id, phone.mailbox);
    await world.edge.sessions.flush();
    await world.settle();
    const { lastSeen } = world.home.sessions.byFamily(phone.family) ?? {};
    expect(Math.floor(lastSeen ?? 0)).toBe(Math.floor(world.clock.now() / 1000));
  });

  it('are the same after a restart of home, which finds no damage', async () => {
    const world = await World.open();
    const phone = await paired(world, 'phone');
    await world.settle();
    take(world, phone);
    await world.crashHome();
    await world.settle();
    expect(take(world, phone)).toBe(false);
    expect(world.log.lines.filter((line) => line.includes('cannot be read'))).toEqual([]);
    if (!phone.mailbox) throw new Error('no mailbox');
    expect(await signIn(world.edge.sessions, phone.id, phone.mailbox)).toBe(true);
  });

  it('are others with another edge, and with the same one enabled again', async () => {
    const world = await World.open();
    const phone = await paired(world, 'phone');
    await world.settle();
    take(world, phone);
    const before = phone.mailbox;
    await world.edge.mirror.unpin();
    await world.home.mirror.disable();
    await world.edge.mirror.pin((await world.home.mirror.status()).key);
    await world.home.mirror.enable('https://edge.example');
    await world.settle();
    expect(take(world, phone)).toBe(true);
    expect(phone.mailbox?.token).not.toBe(before?.token);
  });
});

type Step =
  | { do: 'take'; taken: boolean }
  | { do: 'useEdge'; by: 'token' | 'refresh'; lost: boolean }
  | { do: 'useHome' | 'lose' | 'wait' }
  | { do: 'toHome' | 'toEdge'; count: number }
  | { do: 'cut' | 'heal' | 'crashHome' | 'crashEdge' | 'sleepEdge' };

const step: fc.Arbitrary<Step> = fc.oneof(
  fc.record({ do: fc.constant('take'), taken: fc.boolean() }),
  fc.record({ do: fc.constant('useEdge'), by: fc.constantFrom('token', 'refresh'), lost: fc.boolean() }),
  fc.record({ do: fc.constantFrom('useHome', 'lose', 'wait') }),
  fc.record({ do: fc.constantFrom('toHome', 'toEdge'), count: fc.integer({ min: 1, max: 5 }) }),
  fc.record({ do: fc.constantFrom('cut', 'heal', 'crashHome', 'crashEdge', 'sleepEdge') }),
) as fc.Arbitrary<Step>;

/** A device between both sides. What it has for the edge works there until it asks for new credentials. */
async function play(steps: readonly Step[]): Promise<void> {
  const world = await World.open();
  const phone = await paired(world, 'phone');
  /** It has asked for new credentials, with which the old ones end. */
  let isAsking = false;
  for (const one of steps) {
    switch (one.do) {
      case 'take':
        if (take(world, phone, one.taken)) isAsking = false;
        break;
      case 'useEdge': {
        if (!phone.mailbox || isAsking) break;
        // An answer that is lost leaves the device with what it had.
        const own = one.lost ? { ...phone.mailbox } : phone.mailbox;
        if (one.by === 'refresh') own.token = '';
        expect(await signIn(world.edge.sessions, phone.id, own), 'the mailbox lets it in').toBe(true);
        break;
      }
      case 'useHome':
        expect(await signIn(world.home.sessions, phone.id, phone.atHome)).toBe(true);
        break;
      case 'lose': {
        const session = world.home.sessions.byFamily(phone.family);
        if (!session || !phone.mailbox) break;
        // What it asked for just before is not lost yet.
        await world.clock.advanceAsync(10_000);
        isAsking = true;
        phone.given = undefined;
        void world.home.mirror.renewMailbox(session).catch(() => {});
        break;
      }
      case 'wait':
        await world.clock.advanceAsync(20_000);
        break;
      case 'toHome':
      case 'toEdge':
        for (let n = 0; n < one.count; n++) await world.deliver(one.do);
        break;
      default:
        await world[one.do]();
    }
    expect(world.home.sessions.byFamily(phone.family), 'nothing ends it').toBeDefined();
  }
  await world.settle();
  const session = world.home.sessions.byFamily(phone.family);
  if (!session) throw new Error('ended');
  if (isAsking || !phone.mailbox) take(world, phone);
  if (!phone.mailbox || !(await signIn(world.edge.sessions, phone.id, phone.mailbox))) {
    await world.clock.advanceAsync(20_000);
    const renewed = world.home.mirror.renewMailbox(session);
    await world.settle();
    const { mailbox } = await renewed;
    const own = { token: mailbox.session_token, refreshToken: mailbox.refresh_token };
    expect(await signIn(world.edge.sessions, phone.id, own), 'it has a way back').toBe(true);
  }
  expect(await signIn(world.home.sessions, phone.id, phone.atHome)).toBe(true);
  world.home.mirror.stop();
}

it('a device always has a way to the mailbox, after any cuts, crashes, lost answers and questions', async () => {
  await fc.assert(fc.asyncProperty(fc.array(step, { minLength: 5, maxLength: 40 }), play), { numRuns: runs(100) });
});

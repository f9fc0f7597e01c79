import { describe, expect, it } from 'vitest';
import { base64url, randomBytes } from '../../../lib/kit/bytes.ts';
import { sha256 } from '../../../lib/kit/sha256.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import { Device } from './device.ts';
import { SealedDevice } from './sealed-device.ts';
import { World } from './world.ts';

async function subscription(name: string) {
  const pair = await crypto.subtle.generateKey({ name: 'ECDH', namedCurve: 'P-256' }, true, ['deriveBits']);
  const p256dh = base64url(new Uint8Array(await crypto.subtle.exportKey('raw', pair.publicKey)));
  return { endpoint: `https://push.example/${name}`, keys: { p256dh, auth: base64url(randomBytes(16)) } };
}

/** A device that was paired at home and has subscribed there. */
async function open() {
  const world = await World.open();
  const { family } = await world.pair('phone');
  await world.home.push.subscribe(world.home.sessions.byFamily(family) as Session, await subscription('a'));
  await world.settle();
  const called = async () => {
    for (let n = 0; n < 20; n++) await world.clock.advanceAsync(0);
    return world.called.map(({ side, url }) => `${side} ${new URL(url).pathname}`);
  };
  /** Lets what was begun finish, then everything arrive. */
  const settle = async () => {
    await world.clock.advanceAsync(0);
    await world.settle();
  };
  // Home gives its key once that is made, which takes as long as it takes.
  const given = async () => {
    await settle();
    return (await world.stores.home.open('mirror').getKeys()).some((key) => key.endsWith('vapid'));
  };
  await expect.poll(given).toBe(true);
  await settle();
  return { world, family, called, settle };
}

describe('calls to devices (12 §2)', () => {
  it('are made by the edge while home is linked, with the key of home', async () => {
    const { world, called, settle } = await open();
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    await settle();
    await expect.poll(called).toEqual(['edge /a']);
    expect(world.called[0]?.key).toBe(await world.home.push.publicKey());
    // Given to the edge, the message is no reason for a second call.
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    expect(world.edge.push.count()).toBe(1);
  });

  it('are made by home while the link is down, and when it ends before one has crossed', async () => {
    const { world, called, settle } = await open();
    await world.cut();
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    await expect.poll(called).toEqual(['home /a']);
    await settle();
    await settle();
    await world.home.phone.push({ text: 'b', message_id: 'm2' });
    await world.cut();
    await expect.poll(called).toEqual(['home /a', 'home /a']);
    await settle();
    expect(await called(), 'the call was taken back').toEqual(['home /a', 'home /a']);
  });

  it('follow a device that subscribes at the edge, and end with its subscription and its session', async () => {
    const { world, family, settle } = await open();
    const atEdge = world.edge.sessions.byFamily(family) as Session;
    expect(await world.edge.push.publicKey(atEdge)).toBe(await world.home.push.publicKey());
    const own = await subscription('b');
    await world.edge.push.subscribe(atEdge, own);
    await settle();
    expect([world.home.push.count(), world.edge.push.count()]).toEqual([2, 2]);
    await world.home.push.unsubscribe(world.home.sessions.byFamily(family) as Session, own.endpoint);
    await settle();
    expect([world.home.push.count(), world.edge.push.count()]).toEqual([1, 1]);
    await world.home.sessions.revoke(world.home.sessions.byFamily(family) as Session);
    await settle();
    expect([world.home.push.count(), world.edge.push.count()]).toEqual([0, 0]);
  });

  it('are not made for what a device has shown at home in time', async () => {
    const { world, called, settle } = await open();
    const device = new Device(world);
    device.connect('home');
    await world.home.phone.push({ text: 'a', message_id: 'm1' });
    device.receiveAll();
    if (device.connection) world.home.phone.shown(device.connection.link, 'm1');
    await settle();
    await world.clock.advanceAsync(20_000);
    expect(await called()).toEqual([]);
  });
});

const TEXT = 'The platypus has escaped, and the zoo asks everybody to look into their gardens.';

/** A device of home with a sealed mailbox, unless `isPlain`, that has subscribed to the texts of messages at the edge. */
async function openAtEdge({ isPlain = false } = {}) {
  const world = await World.open();
  const device = await SealedDevice.pair(world, 'phone');
  if (!isPlain) await device.authenticate();
  await world.settle();
  const sessionAt = (side: 'home' | 'edge') => world[side].sessions.byFamily(device.family) as Session;
  const own = { ...(await subscription('b')), content: true };
  const callsOfHome = async () => {
    await world.clock.advanceAsync(0);
    const calls = world.called.filter(({ side }) => side === 'home');
    return calls.map(({ url, size }) => ({ url, hasText: size > TEXT.length + 200 }));
  };
  /** Home is off the link, and has a message. */
  const push = async (id: string) => {
    await world.cut();
    world.called.splice(0);
    await world.home.phone.push({ text: TEXT, message_id: id });
    for (let n = 0; n < 20; n++) await world.clock.advanceAsync(0);
  };
  return { world, sessionAt, own, push, callsOfHome };
}

describe('subscriptions that come from the edge (12 §4, 09 §6)', () => {
  it('get no text from home while the mailbox is sealed, until the device has subscribed at home', async () => {
    const { world, sessionAt, own, push, callsOfHome } = await openAtEdge();
    await world.edge.push.subscribe(sessionAt('edge'), own);
    await world.settle();
    await push('m1');
    await expect.poll(callsOfHome).toEqual([{ url: own.endpoint, hasText: false }]);
    await world.crashHome();
    await push('m2');
    await expect.poll(callsOfHome).toEqual([{ url: own.endpoint, hasText: false }]);
    await world.settle();
    await world.home.push.subscribe(sessionAt('home'), own);
    await push('m3');
    await expect.poll(callsOfHome).toEqual([{ url: own.endpoint, hasText: true }]);
    // The same device subscribes at the edge again.
    await world.settle();
    await world.edge.push.subscribe(sessionAt('edge'), own);
    await world.settle();
    await push('m4');
    await expect.poll(callsOfHome).toEqual([{ url: own.endpoint, hasText: true }]);
  });

  it('get texts while the edge may read them, and end with the mirror', async () => {
    const { world, sessionAt, own, push, callsOfHome } = await openAtEdge({ isPlain: true });
    await world.edge.push.subscribe(sessionAt('edge'), own);
    await world.settle();
    await push('m1');
    await expect.poll(callsOfHome).toEqual([{ url: own.endpoint, hasText: true }]);
    await world.home.mirror.disable();
    await push('m2');
    expect(await callsOfHome()).toEqual([]);
    await world.crashHome();
    expect(world.home.push.count()).toBe(0);
  });

  it('are refused with an endpoint that no device could have given', async () => {
    const { world, sessionAt, own, push, callsOfHome } = await openAtEdge();
    const evil = 'https://evil.example/b';
    for (const key of [sha256(own.endpoint), sha256(evil)]) {
      await world.edge.push.subscribe(sessionAt('edge'), own);
      // A stolen edge sends what it likes.
      const frames = world.wire?.toHome ?? [];
      frames.forEach((frame, n) => {
        frames[n] = String(frame).replaceAll(own.endpoint, evil).replaceAll(sha256(own.endpoint), key);
      });
      await world.settle();
      expect(world.home.push.count()).toBe(0);
    }
    await push('m1');
    expect(await callsOfHome()).toEqual([]);
    expect(world.log.lines.join('\n')).toContain('subscription to push messages that is not accepted');
  });
});

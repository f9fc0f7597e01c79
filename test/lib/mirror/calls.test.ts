import { describe, expect, it } from 'vitest';
import { base64url, randomBytes } from '../../../lib/kit/bytes.ts';
import type { Session } from '../../../lib/sessions/session.ts';
import { Device } from './device.ts';
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

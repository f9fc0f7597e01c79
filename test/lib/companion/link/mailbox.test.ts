import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { callRoute } from '../../../../lib/companion/link/endpoints.ts';
import { takeHome, withMailbox, withRoutes } from '../../../../lib/companion/link/new-routes.ts';
import { parsePairing } from '../../../../lib/companion/link/pairing-url.ts';
import { createSealing } from '../../../../lib/companion/link/sealing.ts';
import type { Pairing } from '../../../../lib/companion/link/settings.ts';
import { initialMachine, type LinkEvent, type LinkMachine, transition } from '../../../../lib/companion/link/state.ts';
import { exportBoxKey, keyIdOf, newBoxKey, seal } from '../../../../lib/kit/box.ts';
import { base64url, utf8ToBytes } from '../../../../lib/kit/bytes.ts';
import { contextOf } from '../../../../lib/phone/sealed.ts';
import type { Message } from '../../../../lib/socket/envelope.ts';
import { createTestLog } from '../../../support/log.ts';
import { createFakeStore, PAIRING, REACH, sentOf, settle, setup } from './support.ts';

const URL = 'wss://edge.example/ws';
const MAILBOX = { url: URL, session_token: 'edge-1', refresh_token: 'edge-refresh-1' };
const GIVEN = { ...MAILBOX, given: 'edge-1' };
const LAN = PAIRING.endpoints[0] as Pairing['endpoints'][number];
const pairing: Pairing = { ...PAIRING, endpoints: [LAN], mailbox: MAILBOX };
const keeps = { withRoutes, withMailbox, takeHome };
const at = (role: string, more: object) => ({ role, priority: 0, ...more });

describe('the mailbox at the edge (12 §3)', () => {
  it('is tried when no other route has answered for 5 s, with credentials of its own', async () => {
    const { link, sockets, socket, clock, admit, store } = setup({ pairing, parts: keeps });
    link.start();
    await clock.advanceAsync(5_000);
    expect(sockets.map(({ url }) => url)).toEqual([LAN.url, URL]);
    const mailbox = await admit({ session_token: 'edge-2', refresh_token: 'edge-refresh-2' });
    expect(mailbox.sent[0]?.payload).toMatchObject({ session_token: 'edge-1', refresh_token: 'edge-refresh-1' });
    expect(store.pairing()).toMatchObject({
      session_token: 'token-1',
      refresh_token: 'refresh-1',
      mailbox: { url: URL, session_token: 'edge-2', refresh_token: 'edge-refresh-2' },
      last_good: URL,
    });
    expect(link.state).toMatchObject({ name: 'online', endpoint: { mailbox: true } });
    expect(callRoute(store.pairing())).toMatchObject({ endpoint: { url: URL }, bearer: 'Bearer edge-2' });
    // Home serves device control.
    expect(sentOf(mailbox, 'bridge.status')).toEqual([]);
    // What home is shown is home's.
    socket().end();
    await clock.advanceAsync(1_000);
    socket().open();
    expect(socket()).toMatchObject({ url: LAN.url, sent: [{ payload: { session_token: 'token-1' } }] });
  });

  it('is not tried while home only restarts, and at once when the broker says that home is not connected', async () => {
    const quick = setup({ pairing, parts: keeps });
    quick.link.start();
    for (let n = 0; n < 3; n++) {
      quick.socket().end({ code: 1006, isRefused: true });
      expect(quick.sockets.every(({ url }) => url === LAN.url)).toBe(true);
      await quick.clock.advanceAsync(1_500);
    }
    const reach = setup({ pairing: { ...pairing, endpoints: [REACH] }, parts: keeps });
    reach.link.start();
    reach.socket().end({ isRefused: true, reason: 'the relay is not connected to the broker (host_offline)' });
    expect(reach.socket().url).toBe(URL);
  });

  it('says since when home is off, and takes this device home when it is back', async () => {
    const { link, sockets, socket, clock, admit, store, notices } = setup({ pairing, parts: keeps });
    link.start();
    await clock.advanceAsync(5_000);
    const mailbox = await admit();
    mailbox.push('system', 'home.offline', { since: 1_800_000_000 });
    await settle();
    expect(store.pairing()?.home_off_since).toBe(1_800_000_000);
    expect(notices).toEqual(['home is off since 2027-01-15T08:00:00.000Z']);
    mailbox.push('system', 'home.online');
    await settle();
    expect(socket().url).toBe(LAN.url);
    // It is not there after all: the mailbox again, without a wait.
    socket().end({ isRefused: true });
    expect(socket().url).toBe(URL);
    const again = await admit();
    again.push('system', 'home.online');
    await settle();
    await admit();
    expect(link.state).toMatchObject({ name: 'online', endpoint: { url: LAN.url } });
    expect(store.pairing()).toMatchObject({ last_good: LAN.url, session_token: 'token-1' });
    expect(store.pairing()?.home_off_since).toBeUndefined();
    expect(sockets).toHaveLength(5);
  });

  it('may name a time that no date can hold, which is not stored, and nothing throws', async () => {
    const { link, clock, admit, store, notices } = setup({ pairing, parts: keeps });
    link.start();
    await clock.advanceAsync(5_000);
    const mailbox = await admit();
    for (const since of [1e13, -1e13, 1e300]) mailbox.push('system', 'home.offline', { since });
    await settle();
    expect([store.pairing()?.home_off_since, notices, link.state.name]).toEqual([undefined, [], 'online']);
  });

  it('loses no message that is being opened when the link leaves it (§2)', async () => {
    const [home, own] = [await newBoxKey(), await newBoxKey()];
    const box = {
      private_key: await exportBoxKey(own),
      public_key: base64url(own.point),
      home: base64url(home.point),
    };
    const { store } = createFakeStore({ ...pairing, box });
    const received: Message[] = [];
    const proactive = { online: () => () => {}, message: (message: Message) => void received.push(message) };
    const sealing = createSealing({ store, log: createTestLog() });
    const parts = { ...keeps, store, sealing: () => sealing, channels: { proactive } };
    const { link, socket, clock, admit } = setup({ parts });
    const sealedMessage = async (id: string) => {
      const purpose = { direction: 'to-device', kind: 'message', id, epoch: await keyIdOf(home.point) } as const;
      const context = contextOf({ ...purpose, deviceId: store.deviceId });
      const text = utf8ToBytes(JSON.stringify({ message_id: id, text: `Text of ${id}` }));
      return { message_id: id, sealed: await seal(text, home, [{ point: own.point, context }]) };
    };
    const [first, last] = [await sealedMessage('m1'), await sealedMessage('m3')];
    link.start();
    await clock.advanceAsync(5_000);
    const mailbox = await admit();
    mailbox.push('proactive', 'phone.message', first);
    mailbox.push('proactive', 'phone.message', { message_id: 'm2', text: 'Text of m2' });
    mailbox.push('proactive', 'phone.message', last);
    mailbox.push('proactive', 'phone.message.cancelled', { message_id: 'm3', reason: 'withdrawn' });
    // The relay counts all of them as arrived now.
    mailbox.push('system', 'ping', { ts: 1 });
    expect(sentOf(mailbox, 'pong')).toHaveLength(1);
    mailbox.push('system', 'home.online');
    expect(socket().url).toBe(LAN.url);
    expect(received).toEqual([]);
    await expect
      .poll(() => received.map(({ type, payload }) => [type, payload.message_id, payload.text]))
      .toEqual([
        ['phone.message', 'm1', 'Text of m1'],
        ['phone.message', 'm2', 'Text of m2'],
        ['phone.message', 'm3', 'Text of m3'],
        ['phone.message.cancelled', 'm3', undefined],
      ]);
  });

  it('that does not know this device costs no pairing: home is asked for new credentials', async () => {
    const { link, socket, clock, admit, store } = setup({ pairing, parts: keeps });
    link.start();
    await clock.advanceAsync(5_000);
    socket().open('a'.repeat(64));
    socket().push('system', 'auth.fail', { reason: 'Invalid session token' });
    await settle();
    expect(store.pairing()).toMatchObject({ session_token: 'token-1', mailbox: { url: URL } });
    expect(store.pairing()?.mailbox).not.toHaveProperty('session_token');
    await clock.advanceAsync(1_000);
    expect(socket().url).toBe(LAN.url);
    const home = await admit();
    const [question] = sentOf(home, 'mailbox.get');
    expect(question?.channel).toBe('system');
    home.push('system', 'mailbox', { mailbox: { ...MAILBOX, session_token: 'edge-9' } }, question?.id);
    await settle();
    expect(store.pairing()?.mailbox).toEqual({ ...MAILBOX, session_token: 'edge-9', given: 'edge-9' });
  });

  it('comes with auth.ok and with routes.updated, and goes when no route names it', async () => {
    const { link, admit, store } = setup({ parts: keeps });
    link.start();
    const home = await admit({ mailbox: MAILBOX });
    expect(store.pairing()?.mailbox).toEqual(GIVEN);
    const lan = at('lan', { relay: { url: LAN.url } });
    home.push('pairing', 'routes.updated', { endpoints: [lan, at('mailbox', { mailbox: { url: URL } })] });
    await settle();
    expect(store.pairing()?.mailbox).toEqual(GIVEN);
    const other = { ...MAILBOX, url: 'wss://other.example/ws' };
    const endpoints = [lan, at('mailbox', { mailbox: { url: other.url } })];
    home.push('pairing', 'routes.updated', { endpoints, mailbox: other });
    await settle();
    expect(store.pairing()?.mailbox).toEqual({ ...GIVEN, url: other.url });
    home.push('pairing', 'routes.updated', { endpoints: [lan] });
    await settle();
    expect(store.pairing()?.mailbox).toBeUndefined();
  });

  it('keeps what the edge has issued since when home gives its credentials again, by whichever message', async () => {
    const { link, sockets, clock, admit, store } = setup({ pairing: { ...PAIRING, endpoints: [LAN] }, parts: keeps });
    link.start();
    const home = await admit({ mailbox: MAILBOX });
    home.end();
    await clock.advanceAsync(30_000);
    while (sockets.at(-1)?.url !== URL) {
      sockets.at(-1)?.end({ isRefused: true });
      await clock.advanceAsync(1_000);
    }
    const mailbox = await admit({ session_token: 'edge-2', refresh_token: 'edge-refresh-2' });
    const rotated = { ...MAILBOX, session_token: 'edge-2', refresh_token: 'edge-refresh-2', given: 'edge-1' };
    expect(store.pairing()?.mailbox).toEqual(rotated);
    mailbox.push('system', 'home.online');
    await settle();
    const back = await admit({ mailbox: MAILBOX });
    expect(store.pairing()?.mailbox).toEqual(rotated);
    const endpoints = [at('lan', { relay: { url: LAN.url } }), at('mailbox', { mailbox: { url: URL } })];
    back.push('pairing', 'routes.updated', { endpoints, mailbox: MAILBOX });
    back.push('system', 'mailbox', { mailbox: MAILBOX });
    await settle();
    expect(store.pairing()?.mailbox).toEqual(rotated);
    back.push('system', 'mailbox', { mailbox: { ...MAILBOX, session_token: 'edge-3' } });
    await settle();
    expect(store.pairing()?.mailbox).toEqual({ ...MAILBOX, session_token: 'edge-3', given: 'edge-3' });
  });

  it('is nothing to a client that cannot leave its address', async () => {
    const { link, admit, store } = setup();
    link.start();
    await admit({ mailbox: MAILBOX });
    expect(store.pairing()).not.toHaveProperty('mailbox');
  });

  it('of a pairing link is no route to pair on, and is asked for its credentials afterwards', async () => {
    const relay = { url: 'ws://192.0.2.1:8767', code: 'ABC123' };
    const endpoints = [at('lan', { relay: { url: 'ws://192.0.2.1:8767' } }), at('mailbox', { mailbox: { url: URL } })];
    const offer = parsePairing(JSON.stringify({ svc: 4, relay, endpoints }));
    expect(offer.endpoints.map(({ url }) => url)).toEqual(['ws://192.0.2.1:8767/ws']);
    const { link, admit } = setup({ pairing: null, parts: { offer, ...keeps } });
    link.start();
    expect(sentOf(await admit(), 'mailbox.get')).toHaveLength(1);
  });
});

const EVENTS: LinkEvent[] = [
  { name: 'start' },
  { name: 'opened', spki: 'a'.repeat(64) },
  { name: 'auth-ok', session: { sessionToken: 't', serverVersion: '1', expiresAt: null, grants: {} } },
  { name: 'auth-fail', reason: 'Invalid session token' },
  { name: 'stored', relay: { serverVersion: '1', expiresAt: null, grants: {} } },
  { name: 'closed', end: { code: 1006, reason: '' } },
  { name: 'closed', end: { code: 1006, reason: 'away (host_offline)', isRefused: true } },
  { name: 'closed', end: { code: 4401, reason: 'session revoked' } },
  { name: 'silent', reason: 'nothing was heard' },
  { name: 'home-online' },
  { name: 'timeout' },
];

it('never gets what is for home, never ends the pairing, and is only tried when home does not answer', () => {
  const full: Pairing = { ...pairing, endpoints: [LAN, REACH], tofu_pins: {} };
  const steps = fc.array(fc.tuple(fc.constantFrom(...EVENTS), fc.nat(8_000)), { maxLength: 60 });
  fc.assert(
    fc.property(steps, (chosen) => {
      let machine: LinkMachine = initialMachine();
      let now = 0;
      /** Since when no route lets the device in; null on one that does. */
      let searching: number | null = null;
      for (const [event, passed] of chosen) {
        now += passed;
        const before = machine;
        const step = transition(machine, event, { now, epoch: 0, random: 0, pairing: full });
        machine = step.machine;
        for (const effect of step.effects) {
          if (effect.name === 'authenticate') {
            const { state } = machine;
            const isMailbox = state.name === 'authenticating' && state.endpoint.mailbox === true;
            const token = isMailbox ? MAILBOX.session_token : full.session_token;
            expect(effect.credentials).toMatchObject({ sessionToken: token });
          }
          const at = 'endpoint' in before.state ? before.state.endpoint : undefined;
          if (effect.name === 'forget') expect(at?.mailbox).toBeUndefined();
          if (effect.name === 'dial' && effect.endpoint.mailbox) {
            const isLate = searching !== null && now - searching >= 5_000;
            const isReturn = machine.searchingSince === Number.NEGATIVE_INFINITY;
            expect(isLate || machine.isHostOffline || isReturn).toBe(true);
          }
        }
        if (machine.state.name === 'online') searching = null;
        else if (machine.state.name !== 'unpaired') searching ??= now;
      }
    }),
  );
});

it('is not tried at once after a socket of home that closed while its session was being stored', () => {
  const full: Pairing = { ...pairing, endpoints: [LAN, REACH] };
  const end: LinkEvent = { name: 'closed', end: { code: 1006, reason: '' } };
  const session = { sessionToken: 't', serverVersion: '1', expiresAt: null, grants: {} };
  const stored: LinkEvent = { name: 'stored', relay: { serverVersion: '1', expiresAt: null, grants: {} } };
  const opened: LinkEvent = { name: 'opened', spki: 'a'.repeat(64) };
  let machine = initialMachine();
  const dialled: string[] = [];
  for (const event of [{ name: 'start' } as const, opened, { name: 'auth-ok', session } as const, end, stored, end]) {
    const step = transition(machine, event, { now: 1_000, epoch: 0, random: 0, pairing: full });
    machine = step.machine;
    for (const effect of step.effects) if (effect.name === 'dial') dialled.push(effect.endpoint.url);
  }
  expect(dialled).toEqual([LAN.url, REACH.url]);
  expect(machine.state.name).toBe('waiting');
});

describe('a device that has paired at the edge (12 §3)', () => {
  const HOME = { urls: [LAN.url], session_token: 'home-1', refresh_token: 'home-refresh-1' };
  const atEdge: Pairing = { ...PAIRING, endpoints: [{ role: 'public', url: URL, priority: 0 }] };

  it('takes its home with the routes there, goes to it, and keeps the edge as its mailbox', async () => {
    const { link, sockets, socket, clock, admit, store } = setup({ pairing: atEdge, parts: keeps });
    link.start();
    const edge = await admit();
    const endpoints = [at('lan', { relay: { url: LAN.url } }), at('mailbox', { mailbox: { url: URL } })];
    edge.push('pairing', 'routes.updated', { endpoints, home: HOME });
    await settle();
    const mailbox = { url: URL, session_token: 'token-1', refresh_token: 'refresh-1' };
    expect(store.pairing()).toMatchObject({ session_token: 'home-1', refresh_token: 'home-refresh-1', mailbox });
    expect(socket().url).toBe(LAN.url);
    // Home cannot be reached yet: the mailbox, where the same offer changes nothing, and another one counts.
    socket().end({ isRefused: true });
    expect(socket().url).toBe(URL);
    const again = await admit();
    expect(again.sent[0]?.payload).toMatchObject({ session_token: 'token-1' });
    again.push('pairing', 'routes.updated', { endpoints, home: HOME });
    await settle();
    expect(sockets).toHaveLength(3);
    again.push('pairing', 'routes.updated', { endpoints, home: { ...HOME, session_token: 'home-2' } });
    await settle();
    const home = await admit({ session_token: 'home-3', refresh_token: 'home-refresh-3' });
    expect(home.sent[0]?.payload).toMatchObject({ session_token: 'home-2', refresh_token: 'home-refresh-1' });
    expect(store.pairing()).toMatchObject({ session_token: 'home-3', refresh_token: 'home-refresh-3', mailbox });
    expect(store.pairing()?.paired_at_edge).toBeUndefined();
    // From now on, its mailbox sends it nowhere else.
    socket().end();
    await clock.advanceAsync(1_000);
    for (let n = 0; n < 9 && socket().url !== URL; n++) {
      socket().end({ isRefused: true });
      await clock.advanceAsync(2_000);
    }
    const last = await admit();
    last.push('pairing', 'routes.updated', { home: { ...HOME, urls: ['wss://other.example/ws'] } });
    await settle();
    expect(store.pairing()).toMatchObject({ session_token: 'home-3', endpoints: [{ url: LAN.url }] });
  });

  it('does not take what it cannot use', async () => {
    const { link, admit, store, sockets } = setup({ pairing: atEdge, parts: keeps });
    link.start();
    const edge = await admit();
    const before = store.pairing();
    for (const home of [
      null,
      'home',
      {},
      { ...HOME, urls: [] },
      { ...HOME, urls: [URL] },
      { ...HOME, refresh_token: 1 },
    ]) {
      edge.push('pairing', 'routes.updated', { home });
      await settle();
    }
    edge.push('pairing', 'routes.updated', { endpoints: 'none', home: HOME });
    await settle();
    expect(store.pairing()).toEqual(before);
    expect(sockets).toHaveLength(1);
  });
});

import { expect, it } from 'vitest';
import { createSealing, type OwnKeys, type SealedItem } from '../../../../lib/companion/link/sealing.ts';
import type { Pairing } from '../../../../lib/companion/link/settings.ts';
import type { IdentityFacts } from '../../../../lib/host/identity.ts';
import { createIdentities, isSignedBy } from '../../../../lib/host/node/identity.ts';
import { type BoxKey, keyIdOf, newBoxKey, type Sealed, seal } from '../../../../lib/kit/box.ts';
import { base64url, utf8ToBytes } from '../../../../lib/kit/bytes.ts';
import { contextOf, homeBoxText, SEALED_TEXT } from '../../../../lib/phone/sealed.ts';
import type { Message, Payload } from '../../../../lib/socket/envelope.ts';
import { createTestLog } from '../../../support/log.ts';
import { DEEP, PAIRING, sentOf, settle, setup } from './support.ts';

const identities = createIdentities();

async function identity() {
  const pem = await identities.generate('10.0.0.1', Date.now());
  const { pin, certDer } = identities.read(pem) as IdentityFacts;
  const sign = (key: string) => base64url(identities.sign(pem.key, utf8ToBytes(homeBoxText(key))));
  return { origin: { pin, certDer }, sign };
}

const endpoint = { role: 'plugin_proxy', url: 'wss://10.0.0.1:9443/relay/ws', priority: 0 };
const newPoint = async () => base64url((await newBoxKey()).point);

function device(pairing: Partial<Pairing> | null = null) {
  const log = createTestLog();
  const store = { deviceId: 'd', pairing: () => pairing as Pairing | null };
  return { log, sealing: createSealing({ store, log, isSignedBy }) };
}

it('contract 12 §4: takes home’s key only with the signature of the identity that the pairing link pins', async () => {
  const [home, stranger] = [await identity(), await identity()];
  const pinned = [{ ...endpoint, pinned: home.origin }];
  const key = await newPoint();
  const { log, sealing } = device();
  const taken = async (given: unknown, endpoints = pinned) => (await sealing.taken(given, endpoints, true)).box?.home;
  expect(await taken({ key, signature: home.sign(key) })).toBe(key);
  const wrong = [
    { key },
    { key, signature: stranger.sign(key) },
    { key, signature: home.sign(await newPoint()) },
    { key, signature: '' },
    { key: 'AAAA', signature: home.sign('AAAA') },
    undefined,
  ];
  for (const given of wrong) expect(await taken(given)).toBeUndefined();
  // The certificate is another one than that of the pin.
  const swapped = [{ ...endpoint, pinned: { pin: home.origin.pin, certDer: stranger.origin.certDer } }];
  expect(await taken({ key, signature: stranger.sign(key) }, swapped)).toBeUndefined();
  expect(log.lines.join('\n')).toContain('home has not signed its key with the identity of the pairing link');
});

it('takes the key on its word where the link pins nothing, and keeps the one that it has while home gives none', async () => {
  const key = await newPoint();
  const first = device();
  const { box } = await first.sealing.taken({ key, uploads: true }, [endpoint], true);
  expect(box?.home).toBe(key);
  const later = device({ box });
  expect(await later.sealing.authMember(false)).toEqual({ box_key: box?.public_key });
  expect((await later.sealing.taken(undefined, [endpoint], false)).box).toEqual(box);
  const other = await newPoint();
  expect((await later.sealing.taken({ key: other }, [endpoint], false)).box?.home).toBe(other);
  expect(later.log.lines.join('\n')).toContain('home has a new key');
});

it('shows home one key over all connections of a pairing, also while nothing can be loaded', async () => {
  const home = await newPoint();
  const shown: unknown[] = [];
  let pairing: Pairing | null = PAIRING;
  const connect = async (load: 'loads' | 'fails') => {
    const { link, store, socket, admit, log } = setup({
      pairing,
      parts: {
        sealing() {
          if (load === 'fails') throw new Error('no network');
          return createSealing({ store, log });
        },
      },
    });
    link.start();
    socket().open();
    await expect.poll(() => sentOf(socket(), 'auth').length).toBe(1);
    const [auth] = sentOf(socket(), 'auth');
    await admit({ home_box: { key: home } });
    await expect.poll(() => link.state.name).toBe('online');
    shown.push(auth?.payload.box_key);
    pairing = store.pairing();
    await link.stop();
    await settle();
  };
  await connect('loads');
  await connect('loads');
  await connect('fails');
  await connect('loads');
  const { link, socket, clock } = setup({
    pairing: pairing && {
      ...pairing,
      endpoints: PAIRING.endpoints.slice(0, 1),
      mailbox: { url: 'wss://edge.example/ws', session_token: 'edge-1' },
    },
    parts: {
      withMailbox: ({ mailbox }) => mailbox,
      sealing: () => Promise.reject(new Error('no network')),
    },
  });
  link.start();
  await clock.advanceAsync(5_000);
  expect(socket().url).toBe('wss://edge.example/ws');
  socket().open();
  await settle();
  expect(sentOf(socket(), 'auth')).toEqual([]);
  expect(shown).toEqual(Array(4).fill(pairing?.box?.public_key));
  expect(pairing?.box?.home).toBe(home);
});

it('waits for nothing to load before a known home lets this device in, and gives home a new key when the old one is lost', async () => {
  const [lost, next] = [await newBoxKey(), await newBoxKey()];
  const keyOf = (key: BoxKey) => base64url(key.point);
  const home = await newPoint();
  const known = { ...PAIRING, box: { public_key: keyOf(lost), home, uploads: true } };
  let loaded: (() => void) | undefined;
  const { link, store, admit, log } = setup({
    pairing: known,
    parts: {
      async sealing() {
        await new Promise<void>((resolve) => {
          loaded = resolve;
        });
        return createSealing({ store, log, keys: { own: async () => next, store: async () => ({}) } });
      },
    },
  });
  link.start();
  const first = await admit({ home_box: { key: home, uploads: true } });
  expect(link.state.name).toBe('online');
  expect(sentOf(first, 'auth')[0]?.payload.box_key).toBe(keyOf(lost));
  await expect.poll(() => loaded).toBeDefined();
  loaded?.();
  // Home's key stays: without it, everything would go to the mailbox in plain.
  await expect.poll(() => store.pairing()?.box).toEqual({ home, uploads: true });
  expect(sentOf(first, 'box.known')).toEqual([]);
  first.end();
  await link.stop();

  const later = setup({
    pairing: store.pairing(),
    parts: {
      sealing: () =>
        createSealing({ store: later.store, log, keys: { own: async () => next, store: async () => ({}) } }),
    },
  });
  later.link.start();
  later.socket().open();
  await expect.poll(() => sentOf(later.socket(), 'auth').map(({ payload }) => payload.box_key)).toEqual([keyOf(next)]);
  const second = await later.admit({ home_box: { key: home } });
  await expect.poll(() => sentOf(second, 'box.known')).toHaveLength(1);
  expect(later.store.pairing()?.box).toEqual({ public_key: keyOf(next), home });
  await later.link.stop();
});

it('keeps home’s key while its own cannot be read, and with a new one in place of a damaged one', async () => {
  const own = await newBoxKey();
  const [public_key, home] = [base64url(own.point), await newPoint()];
  const log = createTestLog();
  const online = async (box: Pairing['box'], keys?: OwnKeys) => {
    const given = setup({
      pairing: { ...PAIRING, box },
      parts: { sealing: () => createSealing({ store: given.store, log, keys }) },
    });
    given.link.start();
    given.socket().open();
    await expect.poll(() => sentOf(given.socket(), 'auth').length).toBe(1);
    const [auth] = sentOf(given.socket(), 'auth');
    const socket = await given.admit({ home_box: { key: home, uploads: true } });
    const changes = given.written.length;
    return { ...given, socket, shown: auth?.payload.box_key, box: () => given.store.pairing()?.box, changes };
  };
  const box = { public_key, home, uploads: true };
  const blocked = async () => {
    throw new Error('the disk is busy');
  };
  const unreadable = await online(box, { own: blocked, store: async () => ({}) });
  await expect.poll(() => log.lines.join('\n')).toContain('cannot be used: the disk is busy');
  await settle();
  expect([unreadable.shown, unreadable.box()]).toEqual([public_key, box]);
  expect(sentOf(unreadable.socket, 'box.known')).toEqual([]);
  await unreadable.link.stop();

  const damaged = await online({ ...box, private_key: 'AAAA' });
  await expect.poll(damaged.box).toEqual({ home, uploads: true });
  await damaged.link.stop();
  const mended = await online(damaged.box());
  await expect.poll(() => sentOf(mended.socket, 'box.known')).toHaveLength(1);
  expect(mended.box()).toEqual({ ...box, public_key: mended.shown, private_key: expect.any(String) });
  expect(mended.shown).not.toBe(public_key);
  await mended.link.stop();
});

it('says nothing in plain to the mailbox while home has no key of it', async () => {
  const home = await newPoint();
  const { log, sealing } = device({ box: { home, uploads: true } });
  const sent: unknown[] = [];
  const guard = sealing.guard({ send: (...given) => sent.push(given), deliver() {} });
  guard.send('proactive', 'proactive.reply', { message_id: 'r1', text: 'Yes', ts: 3 }, 'r1');
  await expect.poll(() => log.lines.join('\n')).toContain('a reply cannot be sealed: the key of this device is lost');
  await expect(sealing.keys()).rejects.toThrow('lost');
  expect(sent).toEqual([]);
});

/** A device whose key cannot be exported, as in a browser, and its home. */
async function keyed() {
  const [own, home] = [await newBoxKey(false), await newBoxKey()];
  const keys: OwnKeys = { own: async () => own, store: async () => ({}) };
  const box = { public_key: base64url(own.point), home: base64url(home.point) };
  const log = createTestLog();
  const store = { deviceId: 'd', pairing: () => ({ box }) as Pairing };
  return { own, home, log, sealing: createSealing({ store, log, keys, deliversUnopened: true }) };
}
type Keyed = Awaited<ReturnType<typeof keyed>>;

const said = { message_id: 'm1', chat_id: 'c1', title: 'T', text: 'Go?', reply_to: null, sent_at: 5 };
async function sealedBy(from: BoxKey, { own, home }: Keyed, { id = 'm1', text = JSON.stringify(said) } = {}) {
  const purpose = { direction: 'to-device', kind: 'message', id, deviceId: 'd' } as const;
  const context = contextOf({ ...purpose, epoch: await keyIdOf(home.point) });
  return seal(utf8ToBytes(text), from, [{ point: own.point, context }]);
}

it('opens with a key that cannot be exported; it stores no private part in the pairing', async () => {
  const device = await keyed();
  const { box } = await device.sealing.taken({ key: base64url(device.home.point) }, [endpoint], false);
  expect(box).toEqual({ public_key: base64url(device.own.point), home: base64url(device.home.point) });
  const item = { kind: 'message', message_id: 'm1', text: SEALED_TEXT, ts: 1, seq: 7 } as const;
  const sealed = await sealedBy(device.home, device);
  expect(await device.sealing.openItem({ ...item, sealed })).toMatchObject({ ...said, ts: 5, seq: 7, sealed: true });
});

it('leaves closed what is damaged, forged, for another key or of another message, and delivers it all the same', async () => {
  const device = await keyed();
  const { home, sealing, log } = device;
  const good = await sealedBy(home, device);
  const damaged = { ...good, content: `${good.content.slice(0, -8)}AAAAAAAA` };
  const wrong: unknown[] = [
    damaged,
    // With its own key, under the name of home's.
    { ...(await sealedBy(await newBoxKey(), device)), by: good.by },
    await sealedBy(home, { ...device, own: await newBoxKey() }),
    await sealedBy(home, device, { id: 'm2' }),
    await sealedBy(home, device, { text: JSON.stringify({ ...said, message_id: 'm2' }) }),
    await sealedBy(home, device, { text: 'no JSON' }),
    { by: good.by, content: '', keys: {} },
    {},
  ];
  const delivered: Message[] = [];
  const guard = sealing.guard({ send() {}, deliver: (message) => delivered.push(message) });
  for (const sealed of wrong) {
    const item: SealedItem = { kind: 'message', message_id: 'm1', sealed };
    expect(await sealing.openItem(item)).toBe(item);
    guard.receive({
      channel: 'proactive',
      type: 'phone.message',
      id: 'm1',
      payload: { message_id: 'm1', text: 'Forged', sealed: sealed as Payload },
      badPayload: false,
    });
  }
  await expect.poll(() => delivered.length).toBe(wrong.length);
  expect(delivered.map(({ payload }) => payload.sealed)).toEqual(wrong);
  // Nobody opens a thing by saying that it is open.
  for (const sealed of [undefined, true, 'text', null]) {
    expect(await sealing.openItem({ kind: 'message', message_id: 'm1', sealed })).toMatchObject({ sealed: false });
    const payload = { message_id: 'm1', text: 'Forged', sealed } as Payload;
    guard.receive({ channel: 'proactive', type: 'phone.message', id: 'm1', payload, badPayload: false });
    await expect.poll(() => delivered.pop()?.payload).toMatchObject({ sealed: false });
  }
  expect(log.lines.join('\n')).toMatch(/ERROR.*cannot be opened/);
});

it('goes on after a message of the mailbox whose id is a list so deep that no text of it can be made', async () => {
  const { sealing } = device();
  const delivered: unknown[] = [];
  const guard = sealing.guard({ send() {}, deliver: ({ payload }) => delivered.push(payload.text) });
  const receive = (payload: Payload) =>
    guard.receive({ channel: 'proactive', type: 'phone.message', id: 'm', payload, badPayload: false });
  receive({ message_id: JSON.parse(DEEP), text: 'sealed', sealed: {} });
  receive({ message_id: JSON.parse(DEEP), text: 'deep' });
  receive({ message_id: 'm1', text: 'next' });
  await expect.poll(() => delivered).toContain('next');
});

it('goes on after a message of the mailbox on which the channel fails', async () => {
  const { sealing, log } = device();
  const delivered: unknown[] = [];
  const guard = sealing.guard({
    send() {},
    deliver({ payload }) {
      if (payload.text === 'bad') throw new Error('it cannot be shown');
      delivered.push(payload.text);
    },
  });
  for (const text of ['bad', 'next']) {
    const payload = { message_id: text, text };
    guard.receive({ channel: 'proactive', type: 'phone.message', id: text, payload, badPayload: false });
  }
  await expect.poll(() => delivered).toEqual(['next']);
  expect(log.lines.join('\n')).toContain('a message was not shown: it cannot be shown');
});

it('seals a reply for home and for itself, and says nothing to the mailbox once its key is lost', async () => {
  const device = await keyed();
  const sent: Payload[] = [];
  const parts = { send: (_: string, __: string, payload: Payload) => sent.push(payload), deliver() {} };
  const reply = { message_id: 'r1', text: 'Yes', chat_id: 'c1', reply_to: 'm1', ts: 3, answer_index: 0 };
  // With the hash of what it has shown, the edge could guess that.
  const said = { ...reply, shown: 'hash' };
  device.sealing.guard(parts).send('proactive', 'proactive.reply', said, 'r1');
  await expect.poll(() => sent.length).toBe(1);
  const [{ sealed, ...outer } = {} as Payload] = sent;
  expect(outer).toEqual({ message_id: 'r1', text: SEALED_TEXT, chat_id: 'c1', reply_to: 'm1', ts: 3 });
  expect(Object.keys((sealed as Sealed).keys).toSorted()).toEqual(
    [await keyIdOf(device.own.point), await keyIdOf(device.home.point)].toSorted(),
  );
  const item = { kind: 'reply', message_id: 'r1', text: SEALED_TEXT, sealed } as const;
  expect(await device.sealing.openItem(item)).toMatchObject({ ...said, sealed: true });
  // To a message that came without a seal, which is not said on the wire.
  device.sealing.guard(parts).send('proactive', 'proactive.reply', { ...said, plain: true }, 'r1');
  await expect
    .poll(() => sent[1])
    .toEqual({ ...reply, sealed: expect.objectContaining({ by: await keyIdOf(device.own.point) }) });

  // The page shows another thing than what came last: what it shows counts.
  await device.sealing.openItem({ kind: 'message', message_id: 'm1' });
  device.sealing.guard(parts).send('proactive', 'proactive.reply', { ...reply, plain: false }, 'r1');
  await expect.poll(() => sent[2]).toMatchObject({ text: SEALED_TEXT });
  expect(sent[2]).not.toHaveProperty('plain');

  const box = { public_key: base64url((await newBoxKey()).point), home: base64url(device.home.point) };
  const store = { deviceId: 'd', pairing: () => ({ box }) as Pairing };
  const keys: OwnKeys = { own: async () => device.own, store: async () => ({}) };
  const lost = createSealing({ store, log: device.log, keys });
  lost.guard(parts).send('proactive', 'proactive.reply', reply, 'r1');
  await expect
    .poll(() => device.log.lines.join('\n'))
    .toContain('a reply cannot be sealed: the key of this device is lost');
  expect(sent).toHaveLength(3);
});

it('answers nothing in plain that home had sealed, when the edge sends the same id again without a seal', async () => {
  const device = await keyed();
  const sent: Payload[] = [];
  const delivered: Message[] = [];
  const guard = device.sealing.guard({
    send: (_channel, _type, payload) => sent.push(payload),
    deliver: (message) => delivered.push(message),
  });
  const message = (payload: Payload): Message => ({
    channel: 'proactive',
    type: 'phone.message',
    id: 'm1',
    payload: { message_id: 'm1', text: 'Forged', ...payload },
    badPayload: false,
  });
  // A reply of this id says nothing about a message.
  await device.sealing.openItem({ kind: 'reply', message_id: 'm1' });
  guard.receive(message({}));
  guard.receive(message({ sealed: await sealedBy(device.home, device) }));
  await expect.poll(() => delivered.length).toBe(2);
  guard.receive(message({}));
  await device.sealing.openItem({ kind: 'message', message_id: 'm1' });
  guard.send('proactive', 'proactive.reply', { message_id: 'r1', text: 'Yes', reply_to: 'm1', ts: 3 }, 'r1');
  await expect.poll(() => sent.map(({ text }) => text)).toEqual([SEALED_TEXT]);
  await expect.poll(() => device.log.lines.join('\n')).toContain('a message came again without a seal');
  expect(delivered).toHaveLength(2);
});

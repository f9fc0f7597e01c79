import { expect, it } from 'vitest';
import { newBoxKey } from '../../../lib/kit/box.ts';
import { base64url, randomBytes } from '../../../lib/kit/bytes.ts';
import { sha256 } from '../../../lib/kit/sha256.ts';
import { SEALED_TEXT } from '../../../lib/phone/sealed.ts';
import { hashOfShown } from '../../../lib/phone/shown.ts';
import { readReplies } from './device.ts';
import { SealedDevice } from './sealed-device.ts';
import { World } from './world.ts';

const MARK = 'platypus';

/** Everything that the edge has: its stores, and what has crossed the wire to it. */
async function edgeHas(world: World): Promise<string> {
  const rows: unknown[] = [];
  for (const name of [
    'phone',
    'phone-replies',
    'phone-history',
    'phone-delivered',
    'mirror',
    'notifications',
    'push',
  ]) {
    const store = world.stores.edge.open(name as 'phone');
    for (const key of await store.getKeys()) rows.push(await store.getItem(key));
  }
  return JSON.stringify(rows);
}

async function start({ isKeyed = true } = {}) {
  const world = await World.open();
  const device = await SealedDevice.pair(world, 'phone');
  if (isKeyed) await device.authenticate();
  await world.settle();
  return { world, device };
}

const question = {
  text: `May I feed the ${MARK}?`,
  title: `${MARK} title`,
  answers: [`Yes, ${MARK}`, 'No'],
  metadata: { note: `${MARK} note` },
  message_id: 'm1',
};
/** Until the edge has these messages: they are sealed in turns of their own. */
const given = (world: World, ...ids: string[]) =>
  expect
    .poll(async () => {
      await world.settle();
      return world.edge.phone.queued().map(({ message_id }) => message_id);
    })
    .toEqual(ids);

it('home says whether the mailbox is sealed, and which devices make it plain', async () => {
  const { world, device } = await start({ isKeyed: false });
  const mailbox = async () => (await world.home.mirror.status()).mailbox;
  const plain = [{ name: 'phone', reason: 'no_key' }];
  expect(await mailbox()).toEqual({ sealed: false, plain, plain_count: 1 });
  await device.authenticate();
  expect(await mailbox()).toEqual({ sealed: true, plain: [], plain_count: 0 });
  const other = await SealedDevice.pair(world, 'tablet');
  expect(await mailbox()).toMatchObject({ sealed: false, plain: [{ name: 'tablet', reason: 'no_key' }] });
  const session = world.home.sessions.byFamily(other.family);
  if (session) world.home.mirror.box(session, base64url((await newBoxKey()).point));
  expect(await mailbox()).toMatchObject({ sealed: false, plain: [{ name: 'tablet', reason: 'no_home_key' }] });
  if (session) await world.home.sessions.revoke(session);
  expect(await mailbox()).toMatchObject({ sealed: true });
});

it('a device without a key counts once it may have its credentials, though home has not seen them used (12 §4)', async () => {
  const { world } = await start();
  const { family } = await world.pair('tablet');
  await world.settle();
  const session = world.home.sessions.byFamily(family);
  // They are on their way: home does not hear of it any more that they have come.
  if (session) expect(world.home.mirror.mailbox(session)?.mailbox.url).toBeDefined();
  expect((await world.home.mirror.status()).mailbox).toMatchObject({ plain: [{ name: 'tablet', reason: 'no_key' }] });
  await world.home.phone.push(question);
  await given(world, 'm1');
  await world.crashHome();
  expect(world.edge.phone.queued()).toMatchObject([{ text: question.text }]);
});

const repliesAt = async (world: World, side: 'home' | 'edge') =>
  (await world[side].phone.poll({ timeout: 0 })).replies.map(({ sealed: _, ...reply }) => reply);

it('a question waits sealed at the edge, and its answer comes sealed to home', async () => {
  const { world, device } = await start();
  await world.home.phone.push(question);
  await given(world, 'm1');
  expect(await edgeHas(world)).not.toContain(MARK);
  await world.cut();
  device.connect('edge');
  await expect
    .poll(() => device.shown)
    .toMatchObject([
      { message_id: 'm1', text: question.text, title: question.title, sealed: true, queued_delivery: true },
    ]);
  expect(device.shown[0]?.metadata).toMatchObject({ answers: question.answers, note: `${MARK} note` });
  device.reply('r1', `Yes, ${MARK}`, { reply_to: 'm1', answer_index: 0 });
  device.notify({ package_name: 'zoo', text: `${MARK} escaped` });
  await expect.poll(() => device.acknowledged).toEqual(['r1']);
  expect(await edgeHas(world)).not.toContain(MARK);
  await world.crashEdge();
  expect(await edgeHas(world)).not.toContain(MARK);
  await world.settle();
  expect(await repliesAt(world, 'home')).toMatchObject([
    { message_id: 'r1', text: `Yes, ${MARK}`, reply_to: 'm1', answer_index: 0 },
  ]);
  expect(world.home.notifications.recent(1)).toMatchObject([{ package_name: 'zoo', text: `${MARK} escaped` }]);
  expect(await edgeHas(world)).not.toContain(MARK);
  expect(world.log.lines.join('\n')).not.toContain(MARK);
});

it('the history of the edge gives a device back what home and it itself have sealed, and nothing to another one', async () => {
  const { world, device } = await start();
  await world.home.phone.push(question);
  await given(world, 'm1');
  await world.cut();
  device.connect('edge');
  await expect.poll(() => device.shown.length).toBe(1);
  device.reply('r1', `Yes, ${MARK}`, { reply_to: 'm1', answer_index: 0, chat_id: 'c1' });
  await expect.poll(() => device.acknowledged).toEqual(['r1']);
  await world.edge.phone.push({ text: 'from a webhook', message_id: 'w1' });
  await world.crashEdge();
  const { answers, title, text } = question;
  expect(await device.history()).toMatchObject([
    { kind: 'message', message_id: 'm1', text, title, answers, state: 'answered', sealed: true },
    { kind: 'reply', message_id: 'r1', text: `Yes, ${MARK}`, reply_to: 'm1', chat_id: 'c1', ts: 1, sealed: true },
    { kind: 'message', message_id: 'w1', text: 'from a webhook', sealed: false },
  ]);
  expect(await edgeHas(world)).not.toContain(MARK);
  device.install();
  const closed = { text: SEALED_TEXT, sealed: { by: expect.any(String) } };
  expect(await device.history()).toMatchObject([closed, closed, { text: 'from a webhook' }]);
  // Home has its own words, and no seal.
  await world.settle();
  expect(world.home.phone.history({ since: 0, limit: 10 }).items.map((item) => [item.text, item.sealed])).toEqual([
    [text, undefined],
    [`Yes, ${MARK}`, undefined],
    ['from a webhook', undefined],
  ]);
});

it('a message comes back to home as it was when a phone listens there', async () => {
  const { world, device } = await start();
  await world.home.phone.push(question);
  await given(world, 'm1');
  await world.crashHome();
  await world.settle();
  device.connect('home');
  await world.settle();
  await expect
    .poll(() => device.shown)
    .toMatchObject([{ message_id: 'm1', text: question.text, title: question.title }]);
  expect(world.home.phone.queued()).toEqual([]);
});

it('messages keep their order, and a newer one of the same id takes the place of one that is being sealed', async () => {
  const { world, device } = await start();
  for (const id of ['m1', 'm2', 'm3']) await world.home.phone.push({ text: id, message_id: id });
  await world.home.phone.push({ text: 'newer', message_id: 'm2' });
  await given(world, 'm1', 'm2', 'm3');
  device.connect('edge');
  await expect.poll(() => device.shown.map(({ text }) => text)).toEqual(['m1', 'newer', 'm3']);
});

it('every device with a key opens it; one without a key gets all in plain, as do the others then', async () => {
  const { world, device } = await start();
  const second = await SealedDevice.pair(world, 'tablet');
  await second.authenticate();
  await world.home.phone.push(question);
  await given(world, 'm1');
  second.connect('edge');
  await expect.poll(() => second.shown).toMatchObject([{ text: question.text }]);
  second.disconnect();
  second.authenticatePlainly();
  expect(world.log.lines.join('\n')).toContain('tablet has no key any more: its mailbox is plain');
  await world.home.phone.push({ ...question, message_id: 'm2' });
  await given(world, 'm2');
  device.connect('edge');
  await expect.poll(() => device.shown).toMatchObject([{ message_id: 'm2', text: question.text, sealed: false }]);
  device.reply('r1', 'fine', { reply_to: 'm2' });
  await expect.poll(() => device.acknowledged).toEqual(['r1']);
  await world.settle();
  expect(await repliesAt(world, 'home')).toMatchObject([{ message_id: 'r1', text: 'fine', reply_to: 'm2' }]);
});

it('a device that has given no key works in plain', async () => {
  const { world, device } = await start({ isKeyed: false });
  await world.home.phone.push(question);
  await given(world, 'm1');
  device.connect('edge');
  await expect.poll(() => device.shown).toMatchObject([{ text: question.text }]);
  expect(device.shown[0]?.sealed).toBeUndefined();
  device.reply('r1', 'fine', { reply_to: 'm1' });
  await expect.poll(() => device.acknowledged).toEqual(['r1']);
  await world.settle();
  expect(await repliesAt(world, 'home')).toMatchObject([{ message_id: 'r1', text: 'fine', reply_to: 'm1' }]);
});

it('the edge forges no answer: a plain reply answers nothing, and says what it is', async () => {
  const { world, device } = await start();
  await world.home.phone.push({ text: 'Delete it?', message_id: 'm1' });
  await given(world, 'm1');
  const session = world.edge.sessions.byFamily(device.family);
  const link = { id: 'x', session, isWritable: true, send() {}, probe() {} };
  await world.edge.phone.reply(link as never, { message_id: 'r1', text: 'Yes', reply_to: 'm1', answer_index: 0 }, 'r1');
  await world.settle();
  const [reply] = await repliesAt(world, 'home');
  expect(reply).toMatchObject({ message_id: 'r1', reply_to: null, metadata: { sealed: false } });
  expect(reply?.text).toMatch(/^A reply from the edge\. It was not sealed.*: Yes$/);
  expect(reply?.answer_index).toBeUndefined();
  expect(world.log.lines.join('\n')).toContain('ERROR');
});

it('the edge asks with words of its own under the id of a sealed question: their answer answers nothing of home', async () => {
  const { world, device } = await start();
  let isAnswered = false;
  const asked = world.home.phone.ask({ text: 'Delete it?', answers: ['Yes', 'No'], timeoutMs: 86_400_000 });
  void asked.then(() => {
    isAnswered = true;
  });
  await expect.poll(() => world.home.phone.queued().length).toBe(1);
  const [{ message_id: id = '' } = {}] = world.home.phone.queued();
  await given(world, id);
  await world.cut();
  world.clock.advance(1000);
  await world.edge.phone.push({ text: 'Lunch?', answers: ['Yes', 'No'], message_id: id });
  device.connect('edge');
  await expect.poll(() => device.shown).toMatchObject([{ message_id: id, text: 'Lunch?', sealed: false }]);
  device.reply('r1', 'Yes', { reply_to: id, answer_index: 0 });
  await expect.poll(() => device.acknowledged).toEqual(['r1']);
  await world.settle();
  // Nor does it where it comes to home itself.
  device.connect('home');
  device.reply('r2', 'Yes', { reply_to: id, answer_index: 0 });
  await expect.poll(() => device.acknowledged).toEqual(['r1', 'r2']);
  const replies = await repliesAt(world, 'home');
  expect(replies.map(({ message_id }) => message_id)).toEqual(['r1', 'r2']);
  for (const reply of replies) {
    expect(reply).toMatchObject({ reply_to: null, chat_id: null, metadata: { other_words: true } });
    expect(reply.text).toMatch(/showed other words\. It said: Yes$/);
    expect(reply).not.toHaveProperty('answer_index');
    expect(reply).not.toHaveProperty('shown');
  }
  expect(isAnswered).toBe(false);
  expect(world.home.phone.history({ since: 0, limit: 10 }).items[0]).toMatchObject({ text: 'Delete it?' });
  expect(world.log.lines.join('\n')).toContain(`answers other words than those of message ${id}`);

  const shown = hashOfShown({ title: null, text: 'Delete it?', answers: ['Yes', 'No'] });
  device.reply('r3', 'No', { reply_to: id, answer_index: 1, shown });
  expect(await asked).toMatchObject({ answer: 'No', answer_index: 1 });
});

it('a sealed reply that says nothing of the words that it answers is no answer to what home has sealed', async () => {
  const { world, device } = await start();
  await world.home.phone.push(question);
  await given(world, 'm1');
  await world.cut();
  await world.edge.phone.push({ text: 'from a webhook?', message_id: 'w1' });
  device.connect('edge');
  await expect.poll(() => device.shown.length).toBe(2);
  device.reply('r1', 'Yes', { reply_to: 'm1', shown: undefined });
  device.reply('r2', 'fine', { reply_to: 'w1', shown: undefined });
  device.reply('r3', 'by the way', { chat_id: 'c1' });
  await expect.poll(() => device.acknowledged).toEqual(['r1', 'r2', 'r3']);
  await world.settle();
  expect(await repliesAt(world, 'home')).toMatchObject([
    { message_id: 'r1', reply_to: null, metadata: { other_words: true } },
    { message_id: 'r2', reply_to: 'w1', text: 'fine' },
    { message_id: 'r3', chat_id: 'c1', text: 'by the way' },
  ]);
});

it('a sealed reply under another id, and a message that is sent back as a reply, are said to be unreadable', async () => {
  const { world, device } = await start();
  await world.home.phone.push({ text: 'Delete it?', message_id: 'm1' });
  await given(world, 'm1');
  const [row] = await Promise.all(
    (await world.stores.edge.open('phone').getKeys()).map((key) => world.stores.edge.open('phone').getItem(key)),
  );
  await world.cut();
  device.connect('edge');
  await expect.poll(() => device.shown.length).toBe(1);
  device.reply('r1', 'Yes', { reply_to: 'm1' });
  await expect.poll(() => device.acknowledged).toEqual(['r1']);
  const [kept] = (await world.edge.phone.poll({ timeout: 0 })).replies;
  const session = world.edge.sessions.byFamily(device.family);
  const link = { id: 'x', session, isWritable: true, send() {}, probe() {} } as never;
  await world.edge.phone.reply(link, { ...kept, message_id: 'r2' }, 'r2');
  await world.edge.phone.reply(link, { ...kept, message_id: 'm1', sealed: row?.message.sealed }, 'r3');
  await world.settle();
  const replies = await repliesAt(world, 'home');
  expect(replies.map(({ message_id, reply_to }) => [message_id, reply_to])).toEqual([
    ['r1', 'm1'],
    ['r2', null],
    ['m1', null],
  ]);
  for (const reply of replies.slice(1)) expect(reply.text).toContain('home cannot open it');
});

it('what somebody posts to the edge says that it is not sealed, there and at home', async () => {
  const { world, device } = await start();
  await world.cut();
  await world.edge.phone.push({ text: 'from a webhook?', message_id: 'w1' });
  device.connect('edge');
  await expect.poll(() => device.shown).toMatchObject([{ message_id: 'w1', sealed: false }]);
  // Whoever asked can open nothing.
  device.reply('r1', 'plainly', { reply_to: 'w1' });
  await expect.poll(() => device.acknowledged).toEqual(['r1']);
  const { replies, sent } = await world.edge.phone.poll({ timeout: 0 });
  expect(replies).toMatchObject([{ text: 'plainly', reply_to: 'w1' }]);
  sent(true);
  device.reply('r2', 'as plainly', { reply_to: 'w1' });
  await expect.poll(() => device.acknowledged).toEqual(['r1', 'r2']);
  device.disconnect();
  await world.edge.phone.push({ text: 'another', message_id: 'w2' });
  await world.settle();
  // Home knows whose they are, and that a reader there has one of them.
  expect(await repliesAt(world, 'home')).toMatchObject([{ message_id: 'r2', text: 'as plainly', reply_to: 'w1' }]);
  const { items } = world.home.phone.history({ since: 0, limit: 10 });
  expect(items.filter(({ kind }) => kind === 'reply')).toMatchObject([
    { text: 'plainly', reply_to: 'w1', state: 'taken' },
    { text: 'as plainly', reply_to: 'w1', state: 'waiting' },
  ]);
  device.connect('home');
  await world.settle();
  await expect.poll(() => device.shown.at(-1)).toMatchObject({ message_id: 'w2', metadata: { sealed: false } });
});

it('a sealed reply that a reader at the edge takes while it is under way to home is read at home, too', async () => {
  for (let frames = 0; frames < 8; frames++) {
    const { world, device } = await start();
    await world.cut();
    device.connect('edge');
    device.reply('r1', 'Yes');
    await expect.poll(() => device.acknowledged).toEqual(['r1']);
    await world.heal();
    for (let n = 0; n < frames; n++) {
      await world.deliver('toEdge');
      await world.deliver('toHome');
    }
    await world.cut();
    await readReplies(world, 'edge');
    await world.settle();
    expect([frames, await readReplies(world, 'home')]).toEqual([frames, [['r1', 'Yes']]]);
  }
});

it.each([
  ['edge', false],
  ['home', false],
  ['edge', true],
  ['home', true],
] as const)(
  'a plain reply that a device gives to both sides is read once, where it came to %s first; without a seal: %s',
  async (first, isPlain) => {
    const { world, device } = await start();
    await world.cut();
    await world.edge.phone.push({ text: 'from a webhook?', message_id: 'w1', answers: ['Yes', 'No'] });
    device.connect('edge');
    await expect.poll(() => device.shown).toMatchObject([{ message_id: 'w1', sealed: false }]);
    const reply = () => device.reply('r1', 'Yes', { reply_to: 'w1', answer_index: 0, isPlain });
    reply();
    await expect.poll(() => device.acknowledged).toEqual(['r1']);
    const read: string[] = [];
    const readAtHome = async () => read.push(...(await readReplies(world, 'home')).map(([, text]) => text));
    // As if the acknowledgement had not come: the device goes to home, and says the same there.
    const atHome = async () => {
      device.connect('home');
      reply();
      await expect.poll(() => device.acknowledged).toEqual(['r1', 'r1']);
      await readAtHome();
    };
    if (first === 'home') await atHome();
    await world.settle();
    await readAtHome();
    if (first === 'edge') await atHome();
    const isDoubted = first === 'edge' && isPlain;
    expect(read).toEqual([expect.stringMatching(isDoubted ? /^A reply from the edge\. .*: Yes$/ : /^Yes$/)]);
    const { items } = world.home.phone.history({ since: 0, limit: 9 });
    expect(items.map(({ message_id, state }) => [message_id, state]).sort()).toEqual([
      ['r1', 'taken'],
      ['w1', 'answered'],
    ]);
  },
);

it('a device that has lost its key says what it cannot open, and gets a new one at home', async () => {
  const { world, device } = await start();
  await world.home.phone.push({ text: 'one', message_id: 'm1' });
  await given(world, 'm1');
  device.install();
  device.connect('edge');
  await expect.poll(() => world.log.lines.join('\n')).toMatch(/ERROR.*a sealed message of .* cannot be opened/);
  device.disconnect();
  await device.authenticate();
  await world.home.phone.push({ text: 'two', message_id: 'm2' });
  await given(world, 'm2');
  device.connect('edge');
  await expect.poll(() => device.shown).toMatchObject([{ text: 'two' }]);
  expect(world.log.lines.join('\n')).toContain('phone has a new key');
});

it('a home that has lost its key makes another, and says what it cannot open', async () => {
  const { world, device } = await start();
  await world.home.phone.push({ text: 'one', message_id: 'm1' });
  await given(world, 'm1');
  await world.cut();
  device.connect('edge');
  await expect.poll(() => device.shown.length).toBe(1);
  device.reply('r1', 'lost', { reply_to: 'm1' });
  await expect.poll(() => device.acknowledged).toEqual(['r1']);
  await world.stores.home.open('mirror').removeItem('box');
  await world.crashHome();
  await world.settle();
  expect(await repliesAt(world, 'home')).toMatchObject([{ message_id: 'r1', reply_to: null }]);
  expect(world.log.lines.join('\n')).toMatch(/ERROR.*a sealed reply from the edge cannot be opened/);
  device.disconnect();
  await device.authenticate();
  await world.home.phone.push({ text: 'two', message_id: 'm2' });
  await given(world, 'm2');
  device.connect('edge');
  await expect.poll(() => device.shown.at(-1)).toMatchObject({ text: 'two' });
});

it('calls to devices that the edge makes have no word of a sealed message, nor of an answer', async () => {
  const { world, device } = await start();
  const session = world.home.sessions.byFamily(device.family);
  const { point } = await newBoxKey();
  const keys = { p256dh: base64url(point), auth: base64url(randomBytes(16)) };
  if (session) await world.home.push.subscribe(session, { endpoint: 'https://push.example/a', keys, content: true });
  // Home calls devices itself until it has given the edge the key for that.
  await expect
    .poll(async () => {
      await world.settle();
      return [await world.stores.edge.open('push').hasItem('vapid:home'), world.edge.push.count()];
    })
    .toEqual([true, 1]);
  await world.home.phone.push(question);
  await given(world, 'm1');
  const called = async () => {
    for (let n = 0; n < 20; n++) await world.clock.advanceAsync(0);
    await world.settle();
    return world.called.map(({ side }) => side);
  };
  await expect.poll(called).toEqual(['edge']);
  expect(await edgeHas(world)).not.toContain(MARK);
  // Home's own calls have the text, and nobody else can read them.
  await world.cut();
  await world.home.phone.push({ ...question, message_id: 'm2' });
  await world.clock.advanceAsync(0);
  await expect
    .poll(async () => JSON.stringify(await world.stores.home.open('push').getItem(`knock:${sha256('m2')}`)))
    .toContain(MARK);
});

it('12 §2: a message that waits at home and that its sender repeats at the edge is one in the history', async () => {
  const { world } = await start();
  await world.cut();
  await world.home.phone.push({ text: 'Lunch is ready', message_id: 'm1' });
  await world.crashHome();
  world.clock.advance(5);
  await world.edge.phone.push({ text: 'Lunch is ready', message_id: 'm1' });
  await world.heal();
  // Home has numbered it.
  await expect
    .poll(async () => {
      await world.settle();
      return world.edge.phone
        .history({ since: 0, limit: 9 })
        .items.map(({ message_id, origin }) => [message_id, origin]);
    })
    .toEqual([['m1', undefined]]);
  expect(world.home.phone.history({ since: 0, limit: 9 }).items.map(({ message_id }) => message_id)).toEqual(['m1']);
});

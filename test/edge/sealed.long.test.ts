import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { UploadFile } from '../../lib/companion/types.ts';
import { exportBoxKey, newBoxKey } from '../../lib/kit/box.ts';
import { base64url } from '../../lib/kit/bytes.ts';
import { run } from '../support/cli.ts';
import { startEdgeRuntime } from '../support/edge-runtime.ts';
import { pairMailboxDevice } from '../support/mailbox-device.ts';
import { startRelayProcess, temporaryHome } from '../support/process.ts';
import { post } from '../support/relay.ts';

/** The name of the relay at the edge, as nothing names another one. */
const RELAY = 'svc-relay';
const MARKS = [
  ...['QmarkText', 'QmarkTitle', 'QmarkOption', 'QmarkNote', 'QmarkReply', 'QmarkNotification'],
  ...['QmarkName', 'QmarkBytes', 'QmarkType'],
];
const MiB = 1024 * 1024;

/** A file with marks in its name, its type and all over its bytes. */
const marked = (size: number): UploadFile => ({
  name: 'QmarkName.png',
  type: 'image/x-QmarkType',
  bytes: Buffer.alloc(size, 'QmarkBytes'),
});
/** Not by `toEqual`, which takes minutes for as many bytes. */
function isMarked({ name, type, bytes }: UploadFile, size: number): boolean {
  const wanted = marked(size);
  return name === wanted.name && type === wanted.type && Buffer.compare(bytes, wanted.bytes) === 0;
}
/** Where a file is named in a reply. */
const mediaText = (token: string) => `QmarkReply MEDIA:svc-relay://${token}`;

/** Home in a process of its own, the edge in its runtime, and companions with and without keys. */
async function start() {
  const agentHome = await temporaryHome();
  const env: Record<string, string> = { SVC_HOME: agentHome, HOME: agentHome };
  const { stdout: key } = await run(['relay', 'operator-token', '--public-key'], { env });
  const runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: key.trim(), RELAY_HOSTS: '' });
  onTestFinished(() => runtime.stop());
  const home = await startRelayProcess({ home: agentHome });
  env.RELAY_PORT = String(home.port);
  const json = async (...words: string[]) => JSON.parse((await run([...words, '--json'], { env })).stdout);
  const edge = runtime.origin('127.0.0.1');
  expect((await run(['relay', 'mirror', 'enable', '--relay', edge], { env })).code).toBe(0);
  const inStep = () =>
    expect
      .poll(async () => {
        const { link, waiting } = await json('relay', 'mirror', 'status');
        return [link, waiting];
      })
      .toEqual(['up', { out: 0, in: 0 }]);
  await inStep();

  const mirrorStatus = () => json('relay', 'mirror', 'status');
  const device = (name: string, isKeyed: boolean) => pairMailboxDevice({ name, isKeyed, home, mirrorStatus });

  const say = async (body: Record<string, unknown>) => {
    expect((await fetch(`${home.url}/phone/message`, post(body))).status).toBe(200);
  };

  /** Name, type and size of a file as home knows it; undefined when it does not. */
  const atHome = async (token: string) => {
    const { media } = (await home.ask('/media/inspect')).json as { media: Record<string, unknown>[] };
    const entry = media.find((each) => each.token === token);
    return entry && [entry.file_name, entry.content_type, entry.size];
  };
  /** Files that home has of uploads, whole or not. */
  const files = () => readdir(join(agentHome, 'svc-relay-uploads')).catch(() => []);
  return { home, runtime, device, found: runtime.found, say, inStep, mirrorStatus, atHome, files };
}

it('the edge has a word of no message, file, reply or notification, also after kills and after the device has read', async () => {
  const { home, runtime, device, found, say, inStep } = await start();
  const phone = await device('phone', true);
  await say({
    message_id: 'message-one',
    text: 'May I, QmarkText?',
    title: 'QmarkTitle',
    answers: ['QmarkOption', 'No'],
    metadata: { note: 'QmarkNote' },
  });
  await inStep();
  await expect.poll(() => found(['message-one'])).toEqual(['message-one']);
  expect(await found(MARKS)).toEqual([]);
  await home.kill();
  await runtime.restart();
  // A restart moves the edge to another port.
  const moved = `${runtime.origin('127.0.0.1').replace('http', 'ws')}/ws`;
  const { mailbox } = phone.settings.pairing() ?? {};
  await phone.settings.updatePairing({ mailbox: { ...mailbox, url: moved } });
  const link = phone.connect();
  await expect.poll(() => phone.shown.map(({ text }) => text)).toEqual(['May I, QmarkText?']);
  expect(link.state).toMatchObject({ name: 'online', endpoint: { role: 'mailbox' } });
  expect(phone.shown[0]).toMatchObject({ title: 'QmarkTitle', answers: ['QmarkOption', 'No'] });
  expect(phone.shown[0]?.unsealed).toBeUndefined();
  const { message_id: chosen } = phone.messages.reply({ answerIndex: 0, replyTo: 'message-one' });
  const { message_id: written } = phone.messages.reply({ text: 'QmarkReply', replyTo: 'message-one' });
  phone.notify({ package_name: 'app', text: 'QmarkNotification' });
  const token = await phone.upload(marked(3 * MiB));
  expect(isMarked(await phone.fetchMedia({ token }), 3 * MiB)).toBe(true);
  expect((await runtime.objects(RELAY)).length).toBe(1);
  await expect.poll(() => phone.acknowledged).toEqual([chosen, written]);
  await expect.poll(() => found([token])).toEqual([token]);
  await expect.poll(() => found([chosen, written])).toEqual([chosen, written]);
  expect(await found(MARKS)).toEqual([]);
  await phone.leave();
  await runtime.restart();
  expect(await found(MARKS)).toEqual([]);
}, 300_000);

it('home gets what its devices have sealed; one device without a key makes all of it plain, and works', async () => {
  const { home, runtime, device, found, say, inStep, atHome, mirrorStatus } = await start();
  const phone = await device('phone', true);
  await say({ message_id: 'message-one', text: 'QmarkText' });
  await inStep();
  await home.kill();
  phone.connect();
  await expect.poll(() => phone.shown.map(({ text }) => text)).toEqual(['QmarkText']);
  const { message_id: written } = phone.messages.reply({ text: 'QmarkReply', replyTo: 'message-one' });
  phone.notify({ package_name: 'app', text: 'QmarkNotification' });
  await expect.poll(() => phone.acknowledged).toEqual([written]);
  await home.restart();
  const { replies } = await (await fetch(`${home.url}/phone/replies?timeout=25`)).json();
  expect(replies).toMatchObject([{ message_id: written, text: 'QmarkReply', reply_to: 'message-one' }]);
  const recent = async () => (await fetch(`${home.url}/notifications/recent`)).text();
  await expect.poll(recent).toContain('QmarkNotification');
  await inStep();
  expect(await found(MARKS)).toEqual([]);
  await phone.leave();

  const old = await device('old', false);
  await say({ message_id: 'message-two', text: 'QmarkNote' });
  await inStep();
  await expect.poll(() => found(['QmarkNote'])).toEqual(['QmarkNote']);
  await home.kill();
  old.connect();
  await expect.poll(() => old.shown.map(({ text }) => text)).toEqual(['QmarkNote']);
  // Its uploads are plain too, and reach home as before.
  const token = await old.upload(marked(MiB));
  expect(await found(['QmarkName', 'QmarkType', 'QmarkBytes'])).toEqual(['QmarkName', 'QmarkType', 'QmarkBytes']);
  await home.restart();
  await expect.poll(() => runtime.objects(RELAY)).toEqual([]);
  expect(await atHome(token)).toEqual(['QmarkName.png', 'image/x-QmarkType', MiB]);
  expect((await mirrorStatus()).mailbox).toEqual({
    sealed: false,
    plain: [{ name: 'old', reason: 'no_key' }],
    plain_count: 1,
  });
  expect(phone.log.lines.join('\n')).not.toContain('cannot be opened');
}, 300_000);

it('home opens sealed uploads once, though it is killed in the middle; what it cannot open it refuses', async () => {
  const { home, runtime, device, found, inStep, mirrorStatus, atHome, files } = await start();
  const phone = await device('phone', true);
  await home.kill();
  const link = phone.connect();
  await expect.poll(() => link.state).toMatchObject({ name: 'online', endpoint: { role: 'mailbox' } });
  const [small, large] = [await phone.upload(marked(MiB)), await phone.upload(marked(50 * MiB))];
  const { message_id: written } = phone.messages.reply({ text: mediaText(small), chatId: null });
  await expect.poll(() => phone.acknowledged).toEqual([written]);
  await phone.leave();
  const waiting = async () => [(await home.ask('/relay/mirror')).json.uploads.count, (await files()).length];
  for (let kills = 0; kills < 2; kills++) {
    await home.restart();
    await expect.poll(waiting, { interval: 5 }).toEqual([1, 2]);
    await home.kill();
    expect((await runtime.objects(RELAY)).length).toBe(1);
  }
  expect(await found(MARKS)).toEqual([]);
  await home.restart();
  await expect.poll(() => runtime.objects(RELAY), { timeout: 60_000 }).toEqual([]);
  const { replies } = (await home.ask('/phone/replies?timeout=0')).json;
  expect(replies).toMatchObject([{ text: mediaText(small) }]);
  expect([await atHome(small), await atHome(large), (await files()).length]).toEqual([
    ['QmarkName.png', 'image/x-QmarkType', MiB],
    ['QmarkName.png', 'image/x-QmarkType', 50 * MiB],
    2,
  ]);
  await inStep();
  expect((await mirrorStatus()).mailbox).toEqual({ sealed: true, plain: [], plain_count: 0 });
  // Now the device itself gets it from home.
  const there = phone.connect();
  await expect.poll(() => there.state).toMatchObject({ name: 'online', endpoint: { role: 'direct' } });
  expect(isMarked(await phone.fetchMedia({ token: small }), MiB)).toBe(true);
  await phone.leave();

  // Of another key, as after a device was revoked.
  await home.kill();
  const mailbox = phone.connect();
  await expect.poll(() => mailbox.state).toMatchObject({ name: 'online', endpoint: { role: 'mailbox' } });
  const box = phone.settings.pairing()?.box;
  const other = await newBoxKey();
  const keys = { private_key: await exportBoxKey(other), public_key: base64url(other.point) };
  if (box) await phone.settings.updatePairing({ box: { ...box, ...keys } });
  const refused = await phone.upload(marked(MiB));
  // Connected to home, it would show this key as its new one.
  await phone.leave();
  await home.restart();
  await expect.poll(() => runtime.objects(RELAY)).toEqual([]);
  expect((await mirrorStatus()).uploads).toEqual({
    count: 0,
    bytes: 0,
    refused: 'no device of home has its key',
  });
  expect([await atHome(refused), (await files()).length]).toEqual([undefined, 2]);
  expect(await found(MARKS)).toEqual([]);
}, 300_000);

import { mkdtemp, readdir, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { createLink, type LinkChannel } from '../../lib/companion/link/link.ts';
import { withMailbox, withRoutes } from '../../lib/companion/link/new-routes.ts';
import { parsePairing } from '../../lib/companion/link/pairing-url.ts';
import { createSealing } from '../../lib/companion/link/sealing.ts';
import { openSettings } from '../../lib/companion/link/settings.ts';
import { createMessages, type ReceivedMessage } from '../../lib/companion/messages.ts';
import { dial } from '../../lib/host/node/dial.ts';
import { createFiles } from '../../lib/host/node/files.ts';
import { createPinnedConnector } from '../../lib/host/node/pinned.ts';
import { createCallRelay } from '../../lib/host/node/relay-call.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { run } from '../support/cli.ts';
import { fastClock } from '../support/companion.ts';
import { startEdgeRuntime } from '../support/edge-runtime.ts';
import { createTestLog } from '../support/log.ts';
import { startRelayProcess, temporaryHome } from '../support/process.ts';
import { post, randomCode } from '../support/relay.ts';

const MARKS = ['QmarkText', 'QmarkTitle', 'QmarkOption', 'QmarkNote', 'QmarkReply', 'QmarkNotification'];

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

  /** Everything that the edge keeps: the files of its objects and of R2, as bytes. */
  async function found(words: readonly string[]): Promise<string[]> {
    const seen = new Set<string>();
    for (const entry of await readdir(runtime.persist, { recursive: true, withFileTypes: true })) {
      if (!entry.isFile()) continue;
      const bytes = await readFile(join(entry.parentPath, entry.name)).catch(() => Buffer.alloc(0));
      for (const word of words) if (bytes.includes(word)) seen.add(word);
    }
    const log = runtime.log.join('\n');
    return words.filter((word) => seen.has(word) || log.includes(word));
  }

  async function device(name: string, isKeyed: boolean) {
    const path = join(await mkdtemp(join(tmpdir(), 'svc-relay-test-')), 'settings.json');
    const settings = await openSettings({ files: createFiles(), path, clock: systemClock });
    await settings.update({ messagesEnabled: true });
    const code = randomCode();
    const registered = await fetch(`${home.url}/pairing/register`, post({ code }));
    expect(registered.status).toBe(200);
    const log = createTestLog();
    const shown: ReceivedMessage[] = [];
    const acknowledged: string[] = [];
    const messages = createMessages({
      settings,
      clock: systemClock,
      log,
      onMessage: (message) => shown.push(message) > 0,
      onBacklog: () => {},
      onAcknowledged: (reply) => void acknowledged.push(reply.message_id),
      onClosed: () => {},
      onSubscribed: () => {},
    });
    let notify: (payload: Record<string, unknown>) => void = () => {};
    const notifications: LinkChannel = {
      online(send) {
        notify = (payload) => send('notification.posted', payload as never);
        return () => {};
      },
      message() {},
    };
    const sealing = isKeyed ? createSealing({ store: settings, log }) : undefined;
    let link: ReturnType<typeof createLink> | undefined;
    const connect = (offer?: ReturnType<typeof parsePairing>) => {
      link = createLink({
        dial,
        callRelay: createCallRelay(createPinnedConnector()),
        store: settings,
        clock: fastClock(10),
        log,
        device: { name },
        channels: { proactive: messages.channel, notifications },
        withRoutes,
        withMailbox,
        sealing,
        offer,
      });
      link.start();
      return link;
    };
    const leave = async () => link?.stop();
    onTestFinished(async () => leave());
    connect(parsePairing(JSON.stringify({ svc: 1, relay: { url: home.wsUrl, code } })));
    await expect.poll(() => settings.pairing()?.mailbox?.session_token).toBeTruthy();
    await leave();
    return {
      log,
      shown,
      acknowledged,
      messages,
      settings,
      notify: (payload: Record<string, unknown>) => notify(payload),
      connect: () => connect(),
      leave,
    };
  }

  const say = async (body: Record<string, unknown>) => {
    expect((await fetch(`${home.url}/phone/message`, post(body))).status).toBe(200);
  };
  return { home, runtime, device, found, say, inStep };
}

it('the edge has a word of no message, reply or notification, also after kills and after the device has read', async () => {
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
  await expect.poll(() => phone.acknowledged).toEqual([chosen, written]);
  await expect.poll(() => found([chosen, written])).toEqual([chosen, written]);
  expect(await found(MARKS)).toEqual([]);
  await phone.leave();
  await runtime.restart();
  expect(await found(MARKS)).toEqual([]);
}, 120_000);

it('home gets what its devices have sealed; one device without a key makes all of it plain, and works', async () => {
  const { home, device, found, say, inStep } = await start();
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
  expect(phone.log.lines.join('\n')).not.toContain('cannot be opened');
}, 120_000);

import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'libsql';
import { expect, it } from 'vitest';
import { labelOf } from '../../lib/reach/broker/label.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { PING, PONG } from '../../lib/reach/messages.ts';
import { ALIVE_PING, ALIVE_PONG } from '../../lib/socket/envelope.ts';
import { type BrokerTarget, broker, type KnownHost } from '../support/broker.ts';
import { startBrokerRuntime } from '../support/broker-edge.ts';
import { run } from '../support/cli.ts';
import { connect } from '../support/client.ts';
import { relayHost, startEdgeRuntime } from '../support/edge-runtime.ts';
import { startRelayProcess, temporaryHome } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';

/** Milliseconds of silence, and the part of it after which an object has been put away. */
const SILENCE = 120_000;
const ASLEEP = 15_000;
const pause = (time: number) => new Promise((resolve) => setTimeout(resolve, time));

const digestOf = (content: Uint8Array) => createHash('sha256').update(content).digest('hex');
const EMPTY = digestOf(new Uint8Array());

/** Every database below a directory: digests of the files, and their rows as text. */
async function stateOf(directory: string) {
  const paths = (await readdir(directory, { recursive: true })).filter((path) => path.endsWith('.sqlite')).sort();
  const bytes: Record<string, string> = {};
  const rows: string[] = [];
  for (const path of paths) {
    for (const file of [path, `${path}-wal`]) {
      const content = await readFile(join(directory, file)).catch(() => Buffer.alloc(0));
      bytes[file] = digestOf(content);
    }
    const database = new Database(join(directory, path), { readonly: true });
    try {
      const tables = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").all();
      for (const { name } of tables as { name: string }[]) {
        rows.push(`${path} ${name} ${JSON.stringify(database.prepare(`SELECT * FROM "${name}"`).all())}`);
      }
    } finally {
      database.close();
    }
  }
  return { bytes, rows };
}

/** Stays silent, but for `ping`, and expects that meanwhile no object wakes and nothing is written. */
async function expectSilence(directory: string, wakes: () => number, ping: () => Promise<void>): Promise<void> {
  await pause(3_000);
  const [before, wakesBefore] = [await stateOf(directory), wakes()];
  expect(before.rows.length).toBeGreaterThan(0);
  await pause(5_000);
  const soon = await stateOf(directory);
  // One that is put away empties its log into the file.
  const isPutAway = (file: string) => soon.bytes[`${file.replace(/-wal$/, '')}-wal`] === EMPTY;
  const expected = Object.entries(before.bytes).map(([file, digest]) => [
    file,
    isPutAway(file) ? soon.bytes[file] : digest,
  ]);
  expect(soon).toEqual({ rows: before.rows, bytes: Object.fromEntries(expected) });
  await pause(ASLEEP - 8_000);
  const asleep = await stateOf(directory);
  for (let left = SILENCE - ASLEEP; left > 0; left -= 15_000) {
    await pause(15_000);
    await ping();
  }
  const after = await stateOf(directory);
  expect(after.bytes).toEqual(asleep.bytes);
  expect(after.rows).toEqual(before.rows);
  expect(wakes() - wakesBefore, 'wakes').toBe(0);
}

const awake = (log: string[]) => () => log.filter((line) => line.includes('awake with')).length;

it.concurrent('12 §6: an idle tunnel wakes nothing and writes nothing', { timeout: 2 * SILENCE }, async ({
  expect,
  onTestFinished,
}) => {
  const persist = await mkdtemp(join(tmpdir(), 'svc-relay-silence-'));
  const hosts: [KnownHost, KnownHost] = [
    { id: newId(), token: newToken() },
    { id: newId(), token: newToken() },
  ];
  const log: string[] = [];
  const { miniflare, port } = await startBrokerRuntime({ hosts, persist, log });
  onTestFinished(async () => {
    await miniflare.dispose();
    await rm(persist, { recursive: true, force: true });
  });
  const target = {
    hosts,
    connectUrl: (hostId: string) => `ws://${labelOf(hostId)}.localhost:${port}/v1/connect`,
  } as BrokerTarget;
  const { host: register, match, close } = broker(target);
  onTestFinished(close);
  const host = await register(0, 262_144);
  const { client, id } = await match(host);
  client.send(new Uint8Array(1000));
  await host.next();
  host.data(id, 'an answer');
  await client.next();

  await expectSilence(persist, awake(log), async () => {
    for (const peer of [host, client]) {
      peer.send(PING);
      expect(await peer.next()).toEqual(JSON.parse(PONG));
    }
  });

  // It has slept: this wakes it.
  const before = awake(log)();
  host.data(id, 'after the silence');
  expect(await client.next()).toEqual(Buffer.from('after the silence'));
  await expect.poll(awake(log)).toBe(before + 1);
});

it.concurrent('12 §6: an idle phone wakes nothing and writes nothing', { timeout: 2 * SILENCE }, async ({
  expect,
  onTestFinished,
}) => {
  const runtime = await startEdgeRuntime();
  onTestFinished(() => runtime.stop());
  const origin = runtime.origin(relayHost(0));
  const authorization = `Bearer ${await runtime.operatorToken(relayHost(0))}`;
  const operator = (path: string, body: object) =>
    fetch(origin + path, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/json', connection: 'close' },
      body: JSON.stringify(body),
    });
  const code = randomCode();
  expect((await operator('/pairing/register', { code })).status).toBe(200);
  const client = await connect(`${origin.replace('http', 'ws')}/ws`);
  onTestFinished(() => client.terminate());
  client.send('system', 'auth', { pairing_code: code, device_id: 'idle', device_name: 'Idle' });
  await client.next({ type: 'auth.ok' });
  client.send('proactive', 'proactive.subscribe');
  await client.next({ type: 'proactive.subscribed' });

  await expectSilence(runtime.persist, awake(runtime.log), async () => {
    client.raw(ALIVE_PING);
    expect(await client.next({ type: 'pong' })).toEqual(JSON.parse(ALIVE_PONG));
  });

  const before = awake(runtime.log)();
  expect(await (await operator('/phone/message', { text: 'x', message_id: 'm1' })).json()).toMatchObject({
    delivered: true,
  });
  await client.next({ id: 'm1' });
  await expect.poll(awake(runtime.log)).toBe(before + 1);
});

it.concurrent('12 §6: a linked home, its phone and an agent that waits for replies wake nothing and write nothing', {
  timeout: 2 * SILENCE + 60_000,
}, async ({ expect, onTestFinished }) => {
  const agentHome = await temporaryHome();
  const env: Record<string, string> = { SVC_HOME: agentHome, HOME: agentHome };
  const svc = (...words: string[]) => run(words, { env });
  const { stdout: key } = await svc('relay', 'operator-token', '--public-key');
  const runtime = await startEdgeRuntime({ RELAY_OPERATOR_PUBLIC_KEY: key.trim(), RELAY_HOSTS: '' });
  onTestFinished(() => runtime.stop());
  const edge = runtime.origin('127.0.0.1');
  const home = await startRelayProcess({ home: agentHome });
  env.RELAY_PORT = String(home.port);
  expect((await svc('relay', 'mirror', 'enable', '--relay', edge)).code).toBe(0);
  const mirror = async () => JSON.parse((await svc('relay', 'mirror', 'status', '--json')).stdout);
  await expect.poll(async () => (await mirror()).link).toBe('up');

  const { token } = JSON.parse((await svc('relay', 'operator-token', '--relay', edge, '--json')).stdout);
  const authorization = `Bearer ${token}`;
  const operator = (path: string, body: object) =>
    fetch(edge + path, {
      method: 'POST',
      headers: { authorization, 'content-type': 'application/json', connection: 'close' },
      body: JSON.stringify(body),
    });
  const code = randomCode();
  expect((await operator('/pairing/register', { code })).status).toBe(200);
  const socketUrl = edge.replace('http', 'ws');
  const phone = await connect(`${socketUrl}/ws`);
  const agent = await connect(`${socketUrl}/phone/replies`, { headers: { authorization } });
  onTestFinished(() => {
    phone.terminate();
    agent.terminate();
  });
  phone.send('system', 'auth', { pairing_code: code, device_id: 'idle', device_name: 'Idle' });
  await phone.next({ type: 'auth.ok' });
  phone.send('proactive', 'proactive.subscribe');
  await phone.next({ type: 'proactive.subscribed' });
  await expect.poll(async () => (await mirror()).waiting).toEqual({ out: 0, in: 0 });

  await expectSilence(runtime.persist, awake(runtime.log), async () => {
    for (const client of [phone, agent]) {
      client.raw(ALIVE_PING);
      expect(await client.next({ type: 'pong' })).toEqual(JSON.parse(ALIVE_PONG));
    }
  });

  // All three have stayed, and one reply wakes the object once.
  expect((await mirror()).link).toBe('up');
  const before = awake(runtime.log)();
  phone.send('proactive', 'proactive.reply', { text: 'here', message_id: 'r1' }, 'r1');
  expect(await agent.next({ type: 'reply' })).toMatchObject({ text: 'here', message_id: 'r1' });
  await expect.poll(awake(runtime.log)).toBe(before + 1);
});

import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'libsql';
import { expect, it, vi } from 'vitest';
import { labelOf } from '../../lib/reach/broker/label.ts';
import { newId, newToken } from '../../lib/reach/ids.ts';
import { PING, PONG } from '../../lib/reach/messages.ts';
import { ALIVE_PING, ALIVE_PONG } from '../../lib/socket/envelope.ts';
import { type BrokerTarget, broker, type KnownHost } from '../support/broker.ts';
import { startBrokerRuntime } from '../support/broker-edge.ts';
import { run } from '../support/cli.ts';
import { connect } from '../support/client.ts';
import { relayHost, startEdgeRuntime } from '../support/edge-runtime.ts';
import { TIMEOUT } from '../support/limits.ts';
import { databasesBelow, untilPutAway } from '../support/miniflare.ts';
import { startRelayProcess, temporaryHome } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';

/** Milliseconds of silence, and between two looks at it. */
const SILENCE = 120_000;
const LOOK = 1_000;
/** Pings go every so many looks. */
const PING_EVERY = 15;
const pause = (time: number) => new Promise((resolve) => setTimeout(resolve, time));

const digestOf = (content: Uint8Array) => createHash('sha256').update(content).digest('hex');
const NONE = Buffer.alloc(0);
const read = (path: string) => readFile(path).catch(() => NONE);

interface State {
  /** Digest of the log. Every commit adds to it, one of equal values too. */
  log: string;
  /** Digest of the file as it is once its log is emptied into it. */
  content: string;
  rows: string[];
  /** When the file was last written. Only of one whose log is empty: emptying a log writes the file. */
  written?: bigint;
}

/**
 * The state of a database whose object may be put away meanwhile, which empties the log into the file. It is taken from copies:
 * a reader of the originals would keep their log from being emptied.
 */
async function stateOf(path: string, scratch: string): Promise<State> {
  // A name of its own: what a former copy had in shared memory must not be taken for this one's.
  const copy = join(scratch, `${crypto.randomUUID()}.sqlite`);
  let [log, file, written] = [NONE, NONE, 0n];
  for (let isTorn = true; isTorn; ) {
    log = await read(`${path}-wal`);
    written = (await stat(path, { bigint: true })).mtimeNs;
    file = await read(path);
    isTorn = !log.equals(await read(`${path}-wal`)) || written !== (await stat(path, { bigint: true })).mtimeNs;
  }
  await Promise.all([writeFile(copy, file), writeFile(`${copy}-wal`, log)]);
  const database = new Database(copy);
  const rows: string[] = [];
  try {
    const tables = database.prepare("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").all();
    for (const { name } of tables as { name: string }[]) {
      rows.push(`${name} ${JSON.stringify(database.prepare(`SELECT * FROM "${name}"`).all())}`);
    }
    database.pragma('wal_checkpoint(TRUNCATE)');
  } finally {
    database.close();
  }
  const content = digestOf(await read(copy));
  return { log: digestOf(log), content, rows, ...(log.length === 0 && { written }) };
}

/** Every database below a directory, by its path. */
async function statesOf(directory: string): Promise<Record<string, State>> {
  const paths = (await readdir(directory, { recursive: true })).filter((path) => path.endsWith('.sqlite')).sort();
  const scratch = await mkdtemp(join(tmpdir(), 'svc-relay-silence-copy-'));
  try {
    const states: Record<string, State> = {};
    for (const path of paths) states[path] = await stateOf(join(directory, path), scratch);
    return states;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

const isObject = (path: string) => /[0-9a-f]{64}\.sqlite$/.test(path);

/** The states that may follow when nothing is written: the same one, or that of an evicted object. */
function following(state: State, next: State | undefined): State {
  const isPutAway = state.written === undefined && next?.written !== undefined;
  return isPutAway ? { ...state, log: digestOf(NONE), written: next.written } : state;
}

/** Stays silent, but for `ping`, and expects that meanwhile no object wakes and nothing is written. */
async function expectSilence(directory: string, wakes: () => number, ping: () => Promise<void>): Promise<void> {
  const look = async () => ({ wakes: wakes(), states: await statesOf(directory) });
  // Work of the start may still be under way.
  let before = await look();
  await vi.waitFor(
    async () => {
      const former = before;
      await pause(3 * LOOK);
      before = await look();
      expect(before).toEqual(former);
    },
    { timeout: TIMEOUT },
  );
  expect(Object.values(before.states).flatMap(({ rows }) => rows).length).toBeGreaterThan(0);
  let expected = before.states;
  const start = performance.now();
  for (let looks = 1; performance.now() - start < SILENCE; looks++) {
    await pause(LOOK);
    if (looks % PING_EVERY === 0) await ping();
    const now = await look();
    expected = Object.fromEntries(Object.entries(expected).map(([path, s]) => [path, following(s, now.states[path])]));
    expect(now).toEqual({ wakes: before.wakes, states: expected });
  }
  // The runtime's own lists of alarms stay open.
  const kept = Object.entries(expected).filter(([path, { written }]) => written === undefined && isObject(path));
  expect(kept, 'never put away').toEqual([]);
}

const awake = (log: string[]) => () => log.filter((line) => line.includes('awake with')).length;

it.concurrent('12 §6: an idle tunnel wakes nothing and writes nothing', { timeout: 3 * SILENCE }, async ({
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

it.concurrent('12 §6: an idle phone wakes nothing and writes nothing', { timeout: 3 * SILENCE }, async ({
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
  timeout: 3 * SILENCE,
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

// Not beside the others: a home that one of them has started would end with this shorter test.
it('12 §6: page loads of strangers wake nothing within a minute of the last one that did', {
  timeout: 3 * SILENCE,
}, async ({ expect, onTestFinished }) => {
  const runtime = await startEdgeRuntime();
  onTestFinished(() => runtime.stop());
  const origin = runtime.origin(relayHost(0));
  const load = async () => {
    for (const path of ['/app/', '/app/sw.js', '/app/', '/app/manifest.webmanifest', '/console/', '/']) {
      const accept = { accept: 'text/html', connection: 'close' };
      const response = await fetch(origin + path, { headers: accept, redirect: 'manual' });
      expect([path, response.status]).toEqual([path, path === '/' ? 302 : 200]);
    }
  };
  const start = 1_800_000_000_000;
  await runtime.stopClock(start);
  await load();
  await untilPutAway(await databasesBelow(runtime.persist));
  await runtime.stopClock(start + 59_999);
  expect(awake(runtime.log)()).toBe(1);
  await load();
  await runtime.stopClock(start + 60_000);
  expect(awake(runtime.log)()).toBe(1);
  await load();
  await expect.poll(awake(runtime.log)).toBe(2);
});

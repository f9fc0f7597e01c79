import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { Log, LogLevel, Miniflare } from 'miniflare';
import { base32 } from 'rfc4648';
import { WebSocket } from 'ws';
import { cpuTime } from '../support/cpu.mjs';
import { digestOf, random } from '../support/reach.mjs';

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));
const PROGRAM = join(ROOT, 'dist/cli/svc.js');

/** Milliseconds after which the local runtime has put an idle object away. */
const ASLEEP = 13_000;
const DAY = 86_400;
/** Seconds between the pings of a tunnel's host, of a home's link, a phone and an agent. */
const PING_EVERY = 30;
const SOCKETS = 5;

/**
 * The day of one home at the edge: how often each thing happens. Every event but those of the terminal is counted as one that
 * wakes a sleeping object, so the sum is that of a day without any two events together.
 */
export const DAILY = {
  silence: 1,
  'home or tunnel dials again': 4,
  'phone connects': 40,
  'phone refreshes its session': 24,
  'message of the agent, by way of home': 100,
  'reply of the phone, read by an agent': 40,
  'stream of Reach opens': 40,
  'minute of a terminal over Reach': 30,
};

/** The constant pings, which the platform answers (`lib/socket/envelope.ts`, `lib/reach/messages.ts`). */
const ALIVE_PING = '{"channel":"system","type":"ping","id":"alive","payload":{"ts":0}}';
const TUNNEL_PING = '{"type":"ping","protocol_version":1}';

const pause = (time) => new Promise((resolve) => setTimeout(resolve, time));

/** Runs each kind of event once against the deployment in the local runtime: what it counts for each, by its name. */
export async function countEvents({ silence = 60, say = () => {} } = {}) {
  const directory = await mkdtemp(join(tmpdir(), 'svc-relay-bill-'));
  const closers = [];
  try {
    return await run(directory, closers, silence, say);
  } finally {
    for (const close of closers.reverse()) await close();
    await rm(directory, { recursive: true, force: true });
  }
}

async function run(directory, closers, silence, say) {
  const home = join(directory, 'home');
  await mkdir(home, { mode: 0o700 });
  const homePort = await freePort();
  const env = { PATH: process.env.PATH, HOME: home, SVC_HOME: home, RELAY_PORT: String(homePort) };
  env.RELAY_UPDATE_FEED_URL = 'http://127.0.0.1:1/';
  const svc = async (...words) => {
    const child = spawn(process.execPath, [PROGRAM, ...words], { env });
    let text = '';
    child.stdout.on('data', (data) => {
      text += data;
    });
    child.stderr.on('data', (data) => {
      text += data;
    });
    const [code] = await once(child, 'close');
    if (code !== 0) throw new Error(`svc ${words.join(' ')}: ${text}`);
    return text.trim();
  };

  const host = { id: random(16), token: random(32) };
  const edge = await startEdge(directory, {
    RELAY_OPERATOR_PUBLIC_KEY: await svc('relay', 'operator-token', '--public-key'),
    REACH_HOSTS: JSON.stringify({ hosts: { [host.id]: { host_token_sha256: digestOf(host.token) } } }),
  });
  closers.push(edge.stop);
  const origin = `http://127.0.0.1:${edge.port}`;

  const relay = spawn(
    process.execPath,
    [PROGRAM, 'relay', 'start', '--host', '127.0.0.1', '--port', String(homePort)],
    {
      env,
      stdio: 'ignore',
    },
  );
  closers.push(async () => {
    relay.kill('SIGKILL');
    if (relay.exitCode === null && relay.signalCode === null) await once(relay, 'close');
  });
  const homeUrl = `http://127.0.0.1:${homePort}`;
  await until(() => fetch(`${homeUrl}/health`).then(({ ok }) => ok));
  await svc('relay', 'mirror', 'enable', '--relay', origin);
  const status = async () => JSON.parse(await svc('relay', 'mirror', 'status', '--json'));
  const inStep = () =>
    until(async () => {
      const { link, waiting } = await status();
      return link === 'up' && waiting.out + waiting.in === 0;
    });
  await inStep();

  const token = async () => JSON.parse(await svc('relay', 'operator-token', '--relay', origin, '--json')).token;
  const phoneSocket = await open(closers, `${origin.replace('http', 'ws')}/ws`);
  const code = JSON.parse(
    await (
      await fetch(`${origin}/pairing/mint`, {
        method: 'POST',
        headers: { authorization: `Bearer ${await token()}` },
        body: '{}',
      })
    ).text(),
  ).code;
  let phone = phoneSocket;
  const auth = (socket, payload) =>
    socket.say({ channel: 'system', type: 'auth', payload: { device_id: 'phone', device_name: 'Phone', ...payload } });
  auth(phone, { pairing_code: code });
  let { payload: credentials } = await phone.next('auth.ok');
  const subscribe = async () => {
    phone.say({ channel: 'proactive', type: 'proactive.subscribe', payload: {} });
    await phone.next('proactive.subscribed');
  };
  await subscribe();
  const agent = await open(closers, `${origin.replace('http', 'ws')}/phone/replies`, {
    headers: { authorization: `Bearer ${await token()}` },
  });

  const brokerUrl = `ws://${labelOf(host.id)}.localhost:${edge.port}/v1/connect`;
  const register = async (message) => {
    const socket = await open(closers, brokerUrl, { lookup: loopback });
    socket.say({ type: 'register', protocol_version: 1, connection_id: random(16), ...message });
    return socket;
  };
  const asHost = { role: 'host', host_id: host.id, credential_kind: 'host', token: host.token };
  let tunnel = await register(asHost);
  await tunnel.next('registered');
  tunnel.say({ type: 'flow', protocol_version: 1, window: 262_144 });
  const route = random(32);
  const openStream = async () => {
    const client = await register({ role: 'client', host_id: host.id, credential_kind: 'route', token: route });
    await client.next('matched');
    const { stream_id: id } = await tunnel.next('open');
    return { client, id };
  };
  const digests = { token_sha256: digestOf(route), device_id_hash: digestOf('phone') };
  const expires_at = Math.floor(Date.now() / 1000) + 3600;
  tunnel.say({ type: 'publish_route', protocol_version: 1, credential_id: 'phone', expires_at, ...digests });
  await tunnel.next('published');
  const { client } = await openStream();
  await inStep();

  const counted = {};
  /** Processor time of the local runtime itself, in milliseconds for each of a second: no object is billed for it. */
  let own = 0;
  /** Counts what one event costs, with everything asleep before it and put away after it. */
  async function count(name, event, { times = 1, isAwake = false } = {}) {
    say(name);
    if (!isAwake) await pause(ASLEEP);
    await edge.read();
    const began = performance.now();
    await event();
    // What follows the answer, such as the op that tells the other side.
    await pause(3_000);
    const { storedBytes, cpuMs: used, ...costs } = await edge.read();
    if (name === 'silence') own = (used / (performance.now() - began)) * 1000;
    const cpuMs = Math.max(0, used - (own * (performance.now() - began)) / 1000);
    costs.cpuMs = cpuMs;
    // The runtime's clock stands still while code runs: processor time is time awake too.
    costs.awakeMs += cpuMs;
    counted[name] = Object.fromEntries(Object.entries(costs).map(([key, value]) => [key, value / times]));
    counted[name].storedBytes = storedBytes;
  }

  await count(
    'silence',
    async () => {
      for (let left = silence; left > 0; left -= 10) {
        await pause(Math.min(left, 10) * 1000);
        for (const { socket } of [phone, agent]) socket.send(ALIVE_PING);
        for (const { socket } of [tunnel, client]) socket.send(TUNNEL_PING);
      }
    },
    { times: silence / DAY },
  );
  await count('home or tunnel dials again', async () => {
    tunnel.socket.terminate();
    await pause(500);
    tunnel = await register(asHost);
    await tunnel.next('registered');
  });
  await count('phone connects', async () => {
    phone.socket.close();
    phone = await open(closers, `${origin.replace('http', 'ws')}/ws`);
    auth(phone, { session_token: credentials.session_token, refresh_token: credentials.refresh_token });
    await phone.next('auth.ok');
    await subscribe();
  });
  await count('phone refreshes its session', async () => {
    phone.socket.close();
    phone = await open(closers, `${origin.replace('http', 'ws')}/ws`);
    auth(phone, { refresh_token: credentials.refresh_token });
    credentials = (await phone.next('auth.ok')).payload;
    await subscribe();
  });
  await count('message of the agent, by way of home', async () => {
    const text = 'The build is green, and the tests have passed.';
    const message = { text, message_id: random(8) };
    const headers = { 'content-type': 'application/json' };
    const answer = await fetch(`${homeUrl}/phone/message`, { method: 'POST', headers, body: JSON.stringify(message) });
    if (!answer.ok) throw new Error(`/phone/message: ${answer.status}`);
    await phone.next('phone.message');
    phone.say({ channel: 'proactive', type: 'proactive.shown', payload: { message_id: message.message_id } });
  });
  await count('reply of the phone, read by an agent', async () => {
    const message_id = random(8);
    phone.say({
      channel: 'proactive',
      type: 'proactive.reply',
      id: message_id,
      payload: { text: 'Go on.', message_id },
    });
    const { message_id: taken } = await agent.next('reply');
    agent.say({ type: 'ack', message_id: taken });
  });
  let stream;
  await count('stream of Reach opens', async () => {
    stream = await openStream();
  });
  const frame = (byte) =>
    Buffer.concat([Buffer.from([1, 2]), Buffer.from(stream.id, 'base64url'), Buffer.alloc(400, byte)]);
  // Ten seconds of typing and of what the shell prints: four messages a second, each way.
  await count(
    'minute of a terminal over Reach',
    async () => {
      for (let sent = 0; sent < 40; sent++) {
        stream.client.socket.send(Buffer.alloc(60, sent));
        tunnel.socket.send(frame(sent));
        await pause(250);
      }
    },
    { times: 1 / 6, isAwake: true },
  );
  return counted;
}

/** Sums the events of the day. */
export function countDay(events) {
  const day = { pings: (DAY / PING_EVERY) * SOCKETS, storedBytes: 0 };
  for (const [name, times] of Object.entries(DAILY)) {
    for (const [key, value] of Object.entries(events[name])) {
      if (key === 'storedBytes') day[key] = Math.max(day[key], value);
      else day[key] = (day[key] ?? 0) + value * times;
    }
  }
  return day;
}

async function startEdge(directory, bindings) {
  const scriptPath = join(directory, 'worker.mjs');
  await build({
    absWorkingDir: ROOT,
    entryPoints: ['test/bench/bill/metered.ts'],
    outfile: scriptPath,
    bundle: true,
    format: 'esm',
    target: 'es2023',
    conditions: ['workerd', 'worker', 'browser'],
    external: ['cloudflare:*', 'node:*'],
    // As in `wrangler.toml`.
    alias: { 'svc-relay-pages': './dist/cli/pages.js' },
    logLevel: 'error',
  });
  const object = (className) => ({ className, useSQLite: true });
  const before = new Set(childrenOf(process.pid));
  const miniflare = new Miniflare({
    modules: true,
    scriptPath,
    modulesRoot: dirname(scriptPath),
    modulesRules: [{ type: 'ESModule', include: ['**/*.mjs'] }],
    compatibilityDate: '2026-03-01',
    host: '127.0.0.1',
    port: 0,
    cf: false,
    log: new Log(LogLevel.ERROR),
    handleRuntimeStdio(stdout, stderr) {
      stdout.resume();
      stderr.pipe(process.stderr);
    },
    bindings,
    durableObjects: {
      RELAY: object('RelayObject'),
      BROKER: object('BrokerObject'),
      COUNTER: object('BrokerCounter'),
    },
    durableObjectsPersist: join(directory, 'objects'),
    r2Buckets: ['MEDIA'],
    r2Persist: join(directory, 'media'),
  });
  const port = Number((await miniflare.ready).port);
  const pids = childrenOf(process.pid).filter((pid) => !before.has(pid));
  const cpu = () => pids.reduce((sum, pid) => sum + (cpuTime({ child: { pid } }) || 0), 0) / 1000;
  let last = cpu();
  return {
    port,
    stop: () => miniflare.dispose(),
    async read() {
      const meter = await (await miniflare.dispatchFetch('http://meter.test/')).json();
      const now = cpu();
      const cpuMs = now - last;
      last = now;
      return { ...meter, cpuMs };
    },
  };
}

function childrenOf(pid) {
  return readdirSync(`/proc/${pid}/task`).flatMap((task) => {
    const text = readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').trim();
    return text === '' ? [] : text.split(' ').map(Number);
  });
}

/** A socket whose JSON messages can be awaited by their `type`. */
async function open(closers, url, options = {}) {
  const socket = new WebSocket(url, { perMessageDeflate: false, ...options });
  closers.push(() => socket.terminate());
  const messages = [];
  let wake = () => {};
  socket.on('error', () => {});
  socket.on('message', (data, isBinary) => {
    if (isBinary) return;
    messages.push(JSON.parse(data));
    wake();
  });
  await once(socket, 'open');
  return {
    socket,
    say: (message) => socket.send(JSON.stringify(message)),
    async next(type) {
      const limit = Date.now() + 15_000;
      for (;;) {
        const at = messages.findIndex((message) => message.type === type);
        if (at >= 0) return messages.splice(at, 1)[0];
        if (Date.now() > limit) throw new Error(`no ${type}, only ${JSON.stringify(messages)}`);
        await new Promise((resolve) => {
          const timer = setTimeout(resolve, 1000);
          wake = () => {
            clearTimeout(timer);
            resolve();
          };
        });
      }
    },
  };
}

async function until(isSo) {
  for (const limit = Date.now() + 30_000; Date.now() < limit; await pause(100)) {
    if (await isSo().catch(() => false)) return;
  }
  throw new Error('timed out');
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

const labelOf = (id) => base32.stringify(Buffer.from(id, 'base64url'), { pad: false }).toLowerCase();

// Names below `localhost` are this machine (RFC 6761 §6.3), but not every resolver knows that.
const loopback = (_name, { all }, done) =>
  all ? done(null, [{ address: '127.0.0.1', family: 4 }]) : done(null, '127.0.0.1', 4);

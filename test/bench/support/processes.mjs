import { spawn } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdir, mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { httpRequest } from './http.mjs';
import { openSocket } from './websocket.mjs';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const BUILT_RELAY = here('../../../dist/cli/svc.js');
const COLLECT = here('./collect.mjs');
const START_LIMIT = 15_000;
const STOP_LIMIT = 6_000;
const SETTLE = 500;

/** The processes and files of one bench. `clear` ends and removes all of them. */
export class Stage {
  #children = [];
  #homes = [];
  #executable;

  /** `executable`: the relay to measure, this checkout's by default. */
  constructor(executable = BUILT_RELAY) {
    this.#executable = executable;
  }

  get executable() {
    return this.#executable;
  }

  /** Milliseconds that Node takes from its start to its end with these arguments. */
  timed(args) {
    const began = performance.now();
    return new Promise((resolve, reject) => {
      const child = spawn(process.execPath, args, { env: { PATH: process.env.PATH }, stdio: 'ignore' });
      child.once('error', reject);
      child.once('exit', (code) => {
        if (code === 0) resolve(performance.now() - began);
        else reject(new Error(`node ${args.join(' ')} ended with ${code}`));
      });
    });
  }

  /** The built modules of the measured relay. */
  get dist() {
    return dirname(dirname(this.#executable));
  }

  /** A new directory, removed by `clear`. */
  async home() {
    const home = await mkdtemp(join(tmpdir(), 'svc-bench-'));
    this.#homes.push(home);
    return home;
  }

  /**
   * Starts the built relay on a new home and waits for its first healthy answer, which took `startedIn` ms.
   * `collectable` adds the signal that `collectedMemory` needs; `hostId` is the relay's name at a Reach broker.
   */
  async relay({ collectable = false, hostId, env: extra = {} } = {}) {
    const home = await this.home();
    if (hostId !== undefined) {
      await mkdir(join(home, 'relay-secure-link'), { mode: 0o700 });
      await writeFile(join(home, 'relay-secure-link/host-id'), `${hostId}\n`, { mode: 0o600 });
    }
    const port = await freePort();
    const args = [this.#executable, 'relay', 'start', '--host', '127.0.0.1', '--port', String(port)];
    const env = { PATH: process.env.PATH, HOME: home, SVC_HOME: home, TMPDIR: home, TMUX_TMPDIR: home, ...extra };
    const log = await open(join(home, 'relay.log'), 'w');
    const began = performance.now();
    const server = this.#spawn(args, env, port, collectable, log.fd);
    await log.close();
    await healthy(server);
    server.startedIn = performance.now() - began;
    server.home = home;
    return server;
  }

  /**
   * Starts the built Reach broker for these hosts, on a new state: with TLS by the files `{ cert, key }`, otherwise with
   * clients that come by `x-forwarded-for`.
   */
  async broker(credentials, tls) {
    const home = await this.home();
    const port = await freePort();
    const file = join(home, 'hosts.json');
    await writeFile(file, JSON.stringify(credentials), { mode: 0o600 });
    const flags = ['--credentials', file, '--port', String(port), '--log-level', 'ERROR'];
    if (tls) flags.push('--tls-cert', tls.cert, '--tls-key', tls.key);
    else flags.push('--insecure-dev', '--client-ip-header', 'x-forwarded-for');
    const args = [this.#executable, 'reach', 'start', ...flags];
    const server = this.#spawn(args, { PATH: process.env.PATH, HOME: home, SVC_HOME: home }, port, true, 'inherit');
    if (!tls) await healthy(server);
    return server;
  }

  /** Starts a baseline of `support/` in its own process; `options` reach it as JSON. */
  async bare(name, options = {}, { collectable = false } = {}) {
    const port = await freePort();
    const args = [here(`./bare-${name}.mjs`), String(port), JSON.stringify(options)];
    const began = performance.now();
    const server = this.#spawn(args, { PATH: process.env.PATH }, port, collectable, 'inherit');
    await healthy(server);
    server.startedIn = performance.now() - began;
    return server;
  }

  #spawn(args, env, port, collectable, stderr) {
    const flags = collectable ? ['--expose-gc', '--import', COLLECT] : [];
    const child = spawn(process.execPath, [...flags, ...args], { env, stdio: ['ignore', 'ignore', stderr] });
    this.#children.push(child);
    return { child, port, url: `ws://127.0.0.1:${port}/ws` };
  }

  /** Ends one server early. */
  async stop({ child }) {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGTERM');
    const timer = setTimeout(() => child.kill('SIGKILL'), STOP_LIMIT);
    await gone;
    clearTimeout(timer);
  }

  /** The last warnings and errors that the relays of this bench logged. */
  complaints() {
    const logs = this.#homes.map((home) => join(home, 'relay.log')).filter((path) => existsSync(path));
    return logs
      .flatMap((path) => readFileSync(path, 'utf8').split('\n'))
      .filter((text) => !/\[(INFO|DEBUG)\]/.test(text))
      .slice(-20)
      .join('\n');
  }

  async clear() {
    await Promise.all(this.#children.map((child) => this.stop({ child })));
    await Promise.all(this.#homes.map((home) => rm(home, { recursive: true, force: true })));
  }
}

async function healthy(server) {
  const deadline = Date.now() + START_LIMIT;
  while (server.child.exitCode === null && Date.now() < deadline) {
    const answer = await httpRequest(server.port, 'GET', '/health').catch(() => undefined);
    if (answer?.status === 200) return;
    await sleep(2);
  }
  throw new Error(`no healthy answer from ${server.child.spawnargs.at(-1)} (exit code ${server.child.exitCode})`);
}

/** A port that was free just now. */
export function freePort() {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Pairs `count` devices with a relay and returns their session tokens. */
export async function pairDevices(relay, count) {
  const tokens = [];
  for (let device = 0; device < count; device++) {
    const code = `B${device.toString(36).padStart(5, '0')}`.toUpperCase();
    const answer = await httpRequest(relay.port, 'POST', '/pairing/register', { body: JSON.stringify({ code }) });
    if (answer.status !== 200) throw new Error(`pairing was answered with ${answer.status} ${answer.body}`);
    const frame = authFrame({ pairing_code: code, device_id: `bench-${device}`, device_name: `Bench ${device}` });
    const socket = await openSocket(relay.port, frame);
    const { type, payload } = JSON.parse(socket.first);
    socket.end();
    if (type !== 'auth.ok') throw new Error(`pairing was answered with ${type}`);
    tokens.push(payload.session_token);
  }
  return tokens;
}

/** The first frame of a client. */
export const authFrame = (payload) => JSON.stringify({ channel: 'system', type: 'auth', id: 'auth', payload });

/** Resident memory of a server in bytes, as the kernel counts it. */
export function residentMemory({ child }) {
  const [, kilobytes] = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${child.pid}/status`, 'utf8'));
  return Number(kilobytes) * 1024;
}

/** Resident memory of a `collectable` server once its garbage is collected. */
export async function collectedMemory(server) {
  for (let pass = 0; pass < 3; pass++) {
    server.child.kill('SIGUSR2');
    await sleep(SETTLE);
  }
  return residentMemory(server);
}

import { type ChildProcess, spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import type { Frame } from './client.ts';
import { startWatch } from './cpu.ts';
import { POLL, TIMEOUT } from './limits.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));

export interface Ended {
  code: number | null;
  signal: NodeJS.Signals | null;
}

export type Child = ReturnType<typeof launch>;

/** Starts a program, collects its output, and kills it after the test if it is still running. */
export function launch(
  command: string,
  args: string[],
  env: Record<string, string> = {},
  { uid, isTyped = false }: Pick<ProgramOptions, 'uid' | 'isTyped'> = {},
) {
  const user = uid === undefined ? {} : { uid, gid: uid };
  const stdin = isTyped ? 'pipe' : 'ignore';
  const child: ChildProcess = spawn(command, args, { env, stdio: [stdin, 'pipe', 'pipe'], ...user });
  const printed = { stdout: '', stderr: '' };
  const waiters = new Set<() => void>();
  let over: Ended | undefined;
  const wake = () => {
    for (const waiter of [...waiters]) waiter();
  };
  for (const name of ['stdout', 'stderr'] as const) {
    child[name]?.setEncoding('utf8').on('data', (text: string) => {
      printed[name] += text;
      wake();
    });
  }
  // What is typed to a program that has ended is lost.
  child.stdin?.on('error', () => {});
  const ended = new Promise<Ended>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code, signal) => {
      over = { code, signal };
      resolve(over);
      wake();
    });
  });
  ended.catch(() => {});
  const running = () => child.exitCode === null && child.signalCode === null;
  onTestFinished(async () => {
    if (running()) child.kill('SIGKILL');
    await ended.catch(() => {});
  });

  /** Resolves once `look` returns a value. Rejects when the program ends or time is up before that. */
  function until<T>(what: string, look: () => T | undefined | null): Promise<T> {
    return new Promise((resolve, reject) => {
      const settle = (act: () => void) => {
        clearTimeout(timer);
        waiters.delete(attempt);
        act();
      };
      const failure = () => new Error(`timed out waiting for ${what}\n${printed.stdout}\n${printed.stderr}`);
      const timer = setTimeout(() => settle(() => reject(failure())), TIMEOUT);
      const attempt = () => {
        const found = look();
        if (found !== undefined && found !== null) settle(() => resolve(found));
        else if (over) settle(() => reject(failure()));
      };
      waiters.add(attempt);
      attempt();
    });
  }

  return {
    pid: child.pid as number,
    get stdout() {
      return printed.stdout;
    },
    get stderr() {
      return printed.stderr;
    },
    get ended() {
      return ended;
    },
    running,
    /** Resolves once stdout or stderr matches. */
    prints: (pattern: RegExp) =>
      until(String(pattern), () => pattern.exec(printed.stdout) ?? pattern.exec(printed.stderr)),
    type: (text: string) => void child.stdin?.write(text),
    signal: (signal: NodeJS.Signals) => child.kill(signal),
    /** Sends the signal and waits for the process to end. */
    kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<Ended> {
      if (running()) child.kill(signal);
      return ended;
    },
  };
}

/** A directory for an agent home, removed after the test. */
export async function temporaryHome(): Promise<string> {
  const home = await mkdtemp(join(tmpdir(), 'svc-relay-e2e-'));
  onTestFinished(() => rm(home, { recursive: true, force: true }));
  return home;
}

const canListen = (port: number, host: string) =>
  new Promise<boolean>((resolve) => {
    const server = createServer();
    server.once('error', () => resolve(false));
    server.listen({ port, host, exclusive: true }, () => server.close(() => resolve(true)));
  });

export const isPortFree = (port: number): Promise<boolean> => canListen(port, '0.0.0.0');

/** Workers of a run at most, each of which has ports of its own. */
const WORKERS = 16;
const PORTS_EACH = 12_000 / WORKERS;
/** The ports that `freePort` has returned, which may not be used yet. */
const given = new Set<number>();

/**
 * A free port below the range of outgoing connections, so that it is still free after the relay was killed, and neither
 * another worker of this run nor another call takes it before it is used.
 */
export async function freePort(): Promise<number> {
  const worker = Number(process.env.VITEST_POOL_ID ?? 0) % WORKERS;
  for (;;) {
    const port = 20_000 + Math.floor(Math.random() * PORTS_EACH) * WORKERS + worker;
    if (given.has(port)) continue;
    if (given.size > PORTS_EACH / 2) given.clear();
    given.add(port);
    if (await isPortFree(port)) return port;
  }
}

export interface HttpResponse {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: a test knows the response it expects
  json: any;
}

export interface HttpRequest {
  method?: string;
  headers?: Record<string, string>;
  body?: unknown;
}

/** The other side closed the connection before it answered. */
export class Gone extends Error {}

/** One request on its own connection, without checking the certificate. Rejects with `Gone` without an answer. */
export function ask(url: string, { method = 'GET', headers = {}, body }: HttpRequest = {}): Promise<HttpResponse> {
  const text = body === undefined ? undefined : JSON.stringify(body);
  const secure = url.startsWith('https:');
  const options = { method, headers: { ...headers, connection: 'close' }, agent: false as const };
  return new Promise((resolve, reject) => {
    const gone = (error: Error) => reject(new Gone(`${method} ${url}: ${error.message}`));
    const request = secure ? httpsRequest(url, { ...options, rejectUnauthorized: false }) : httpRequest(url, options);
    request.on('error', gone);
    request.setTimeout(TIMEOUT, () => request.destroy(new Error('no answer in time')));
    request.on('response', (response) => {
      let received = '';
      response.setEncoding('utf8').on('data', (chunk: string) => {
        received += chunk;
      });
      response.on('error', gone);
      response.on('close', () => {
        if (!response.complete) return gone(new Error('cut off'));
        let json: unknown;
        try {
          json = JSON.parse(received);
        } catch {
          json = undefined;
        }
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text: received, json });
      });
    });
    request.end(text);
  });
}

/** Sends `system/auth` on a new socket, which stays open, and returns the first frame. Throws `Gone` without one. */
export function offer(url: string, payload: Record<string, unknown>): Promise<{ frame: Frame; socket: WebSocket }> {
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, { perMessageDeflate: false, rejectUnauthorized: false });
    const gone = (why: string) => reject(new Gone(`${url}: ${why}`));
    socket.on('error', (error) => gone(error.message));
    socket.on('close', (code) => gone(`closed ${code}`));
    socket.on('unexpected-response', (_request, response) => {
      response.resume();
      socket.terminate();
      reject(new Error(`upgrade answered with ${response.statusCode}`));
    });
    socket.once('message', (data) => resolve({ frame: JSON.parse(String(data)), socket }));
    socket.once('open', () =>
      socket.send(JSON.stringify({ channel: 'system', type: 'auth', id: crypto.randomUUID(), payload })),
    );
  });
}

/** Resolves with the close code and reason when a socket closes. */
export const closing = (socket: WebSocket) =>
  new Promise<{ code: number; reason: string }>((resolve) => {
    socket.once('close', (code, reason) => resolve({ code, reason: String(reason) }));
  });

export interface ProgramOptions {
  /** Added to a nearly empty environment. */
  env?: Record<string, string>;
  home?: string;
  /** Runs it as another account, to which `home` belongs. Only root can. */
  uid?: number;
  /** Octal, such as `022`; by default that of this process. */
  umask?: string;
  /** Its stdin stays open for `type`. */
  isTyped?: boolean;
  /** Files that it may open; by default as many as this process. */
  descriptors?: number;
  /** The beginning of its command line, such as that of `mountDisk`. */
  within?: string[];
}

/** Starts Node with these arguments. */
function launchNode(args: string[], env: Record<string, string>, options: ProgramOptions): Child {
  const { umask, descriptors, within } = options;
  if (within) return launch(within[0] as string, [...within.slice(1), process.execPath, ...args], env, options);
  const settings = [umask !== undefined && `umask ${umask}`, descriptors && `ulimit -n ${descriptors}`].filter(Boolean);
  if (settings.length === 0) return launch(process.execPath, args, env, options);
  const script = `${settings.join('; ')}; exec "$0" "$@"`;
  return launch('/bin/sh', ['-c', script, process.execPath, ...args], env, options);
}

const environment = (home: string, env: Record<string, string> = {}): Record<string, string> => ({
  PATH: process.env.PATH ?? '',
  HOME: home,
  SVC_HOME: home,
  // Nothing listens on port 1, so no test calls the real release feed.
  RELAY_UPDATE_FEED_URL: 'http://127.0.0.1:1/',
  ...env,
});

/** Starts `svc` with these arguments. */
export async function launchSvc(words: string[], options: ProgramOptions = {}): Promise<Child> {
  assertBuilt();
  const home = options.home ?? (await temporaryHome());
  return launchNode([PROGRAM, ...words], environment(home, options.env), options);
}

/** Runs `svc` with these arguments to its end. */
export async function runSvc(words: string[], options: ProgramOptions = {}) {
  const child = await launchSvc(words, options);
  const timer = setTimeout(() => child.signal('SIGKILL'), TIMEOUT);
  const { code, signal } = await child.ended;
  clearTimeout(timer);
  return { code, signal, stdout: child.stdout, stderr: child.stderr };
}

function assertBuilt(): void {
  if (!existsSync(PROGRAM)) throw new Error('these tests run the built program; run `npm run build` first');
}

export interface RelayOptions extends ProgramOptions {
  /** Arguments after `relay start` and, unless `bare`, `--host 127.0.0.1 --port <port>`. */
  flags?: string[];
  port?: number;
  /** Path of another build of `svc` than this checkout's. */
  program?: string;
  /** Passes neither host nor port on the command line. `port` is then only used to ask for health. */
  bare?: boolean;
  tls?: boolean;
}

export type RelayProcess = Awaited<ReturnType<typeof startRelayProcess>>;

/** Starts the built relay as a child process with its own home and port, healthy, and removes all of it after the test. */
export async function startRelayProcess(options: RelayOptions = {}) {
  assertBuilt();
  const home = options.home ?? (await temporaryHome());
  const port = options.port ?? (await freePort());
  const flags = [...(options.bare ? [] : ['--host', '127.0.0.1', '--port', String(port)]), ...(options.flags ?? [])];
  const env = environment(home, options.env);
  const url = `${options.tls ? 'https' : 'http'}://127.0.0.1:${port}`;
  const lives: Child[] = [];
  let passed = startWatch();
  let startedIn = 0;

  const begin = (): Child => {
    passed = startWatch();
    const child = launchNode([options.program ?? PROGRAM, 'relay', 'start', ...flags], env, options);
    lives.push(child);
    return child;
  };
  const current = (): Child => lives.at(-1) as Child;

  /** Polls `/health` until it answers 200. */
  async function healthy(): Promise<void> {
    const child = current();
    for (const limit = performance.now() + TIMEOUT; performance.now() < limit; ) {
      if (!child.running()) {
        await child.ended;
        throw new Error(`the relay ended before it was healthy\n${child.stdout}\n${child.stderr}`);
      }
      const answer = await ask(`${url}/health`).catch(() => undefined);
      if (answer?.status === 200) {
        startedIn = passed();
        return;
      }
      await new Promise((resolve) => setTimeout(resolve, POLL));
    }
    throw new Error(`the relay did not become healthy\n${child.stdout}\n${child.stderr}`);
  }

  begin();
  await healthy();
  return {
    home,
    port,
    url,
    wsUrl: `${url.replace('http', 'ws')}/ws`,
    /** Milliseconds from the start of the process to its first healthy answer, without those in which others ran. */
    get startedIn() {
      return startedIn;
    },
    /** The current process, or the last one. */
    get child() {
      return current();
    },
    /** Output of all processes so far, on both streams. */
    get output() {
      return lives.map((life) => life.stdout + life.stderr).join('');
    },
    kill: (signal: NodeJS.Signals = 'SIGKILL') => current().kill(signal),
    /** Starts it on the same state and port without waiting for health. */
    begin,
    /** Kills it (SIGKILL), starts it on the same state and port, and waits until it is healthy. */
    async restart(): Promise<void> {
      await current().kill();
      begin();
      await healthy();
    },
    ask: (path: string, request?: HttpRequest) => ask(url + path, request),
    offer: (payload: Record<string, unknown>) => offer(`${url.replace('http', 'ws')}/ws`, payload),
  };
}

/** Path and bytes of every file below a directory. */
export async function filesBelow(directory: string): Promise<{ path: string; bytes: Buffer }[]> {
  const entries = await readdir(directory, { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Promise.all(paths.map(async (path) => ({ path, bytes: await readFile(path) })));
}

import { once } from 'node:events';
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { Agent, get } from 'node:http';
import { connect, createServer } from 'node:net';
import { hostname, networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { connect as connectTls } from 'node:tls';
import { describe, expect, it, onTestFinished, type TestContext } from 'vitest';
import { selfSigned } from '../support/certificate.ts';
import { startWatch } from '../support/cpu.ts';
import { TIMED } from '../support/limits.ts';
import {
  ask,
  closing,
  filesBelow,
  freePort,
  isPortFree,
  offer,
  type RelayProcess,
  runSvc,
  startRelayProcess,
  temporaryHome,
} from '../support/process.ts';
import { randomCode } from '../support/relay.ts';

const LOG_LINE = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \[(?:DEBUG|INFO|WARNING|ERROR)\] [\w.-]+: \S.*$/;

const linesOf = (text: string) => text.split('\n').filter((line) => line !== '');
/** Errors of the program itself, as opposed to log lines. */
const errorsOf = (stderr: string) => linesOf(stderr).filter((line) => /^error:/.test(line));
const isStack = (line: string) => /^\s+at |node:internal/.test(line);

async function pairDevice(relay: RelayProcess, policy: Record<string, unknown> = {}) {
  const code = randomCode();
  const registered = await relay.ask('/pairing/register', { method: 'POST', body: { code, ...policy } });
  expect(registered.status, registered.text).toBe(200);
  const { frame, socket } = await relay.offer({ pairing_code: code, device_id: crypto.randomUUID() });
  expect(frame.type).toBe('auth.ok');
  const { session_token: token, refresh_token: refreshToken } = frame.payload as Record<string, string>;
  return { code, socket, token: token as string, refreshToken: refreshToken as string };
}

const bearer = (token: string) => ({ authorization: `Bearer ${token}` });

/** A start that must fail. Returns its exit code and its one error line. */
async function failingStart(options: Parameters<typeof runSvc>[1] & { flags?: string[] } = {}) {
  const { flags = [], ...rest } = options;
  const { code, stderr, stdout } = await runSvc(['relay', 'start', '--host', '127.0.0.1', ...flags], rest);
  expect(linesOf(stderr).filter(isStack)).toEqual([]);
  expect(stdout).not.toContain('is running');
  const errors = errorsOf(stderr);
  expect(errors, stderr).toHaveLength(1);
  return { code, error: errors[0] as string, stderr };
}

/** Reports when something touches a global that loads Node's own fetch. */
const TELLS_OF_FETCH = `for (const name of ['Request', 'Response', 'Headers', 'FormData']) {
  const { get } = Object.getOwnPropertyDescriptor(globalThis, name);
  Object.defineProperty(globalThis, name, { configurable: true, get() {
    process._rawDebug('fetch loaded by ' + name);
    return get.call(this);
  } });
}`;

describe('what a start loads', () => {
  it("does without Node's own fetch, and answers without it", async () => {
    const file = join(await temporaryHome(), 'tells.cjs');
    await writeFile(file, TELLS_OF_FETCH);
    const relay = await startRelayProcess({ env: { NODE_OPTIONS: `--require ${file}` } });
    expect((await relay.ask('/health')).status).toBe(200);
    expect(relay.child.stderr).not.toContain('fetch loaded');
  });

  /** Paths of the files that a command loads, as counted by V8. */
  async function loadedBy(words: string[]): Promise<string[]> {
    const folder = await temporaryHome();
    await runSvc(words, { env: { NODE_V8_COVERAGE: folder } });
    const [name = ''] = await readdir(folder);
    const { result } = JSON.parse(await readFile(join(folder, name), 'utf8')) as { result: { url: string }[] };
    return result.flatMap(({ url }) => (url.startsWith('file:') ? url.split('/').slice(-2).join('/') : []));
  }

  it('is two files for the version, and without the database for a command that asks a relay', async () => {
    const version = (await loadedBy(['--version'])).map((path) => path.replace(/^[0-9a-f]{16}/, 'build'));
    expect(version).toEqual(['cli/svc.js', 'build/svc.js', 'build/program.js']);
    const devices = await loadedBy(['devices', '--json']);
    expect(devices.join()).toContain('/devices-');
    expect(devices.join()).not.toContain('libsql');
  });
});

describe('a first start (01 §9.2, issue: works without any configuration)', () => {
  it('needs no configuration, and prints its address, its state file and the next step', async (context) => {
    if (!(await isPortFree(8767))) return context.skip('the default port 8767 is taken on this machine');
    const relay = await startRelayProcess({ bare: true, port: 8767 });
    await relay.child.prints(/Stop with/);
    const { stdout, stderr } = relay.child;
    expect(stdout).toContain('http://127.0.0.1:8767');
    expect(stdout).toContain('ws://127.0.0.1:8767/ws');
    expect(stdout).toContain(join(relay.home, 'svc-relay/state.db'));
    expect(stdout).toMatch(/svc pair/);
    expect(stderr).not.toContain('[ERROR]');
  });

  it('logs the profiles it finds, without credentials in URLs (07 §5.1)', async () => {
    const home = await temporaryHome();
    await writeFile(join(home, 'config.yaml'), 'model: m\n');
    await mkdir(join(home, 'profiles/work'), { recursive: true });
    await writeFile(join(home, 'profiles/work/config.yaml'), '');
    const env = { RELAY_WEBAPI_URL: 'http://me:hunter2@127.0.0.1:8642/?key=hunter2' };
    const { child } = await startRelayProcess({ home, env });
    await child.prints(/\[INFO\] profiles: profiles: default, work\n/);
    await child.prints(/agent API server: http:\/\/127\.0\.0\.1:8642;/);
    expect(child.stderr).not.toContain('hunter2');
    const off = await startRelayProcess({ env: { RELAY_PROFILE_DISCOVERY_ENABLED: '0' } });
    await off.child.prints(/profile discovery: off/);
  });

  it('is healthy within two seconds', TIMED, async () => {
    const times: number[] = [];
    for (let round = 0; round < 3; round++) {
      const relay = await startRelayProcess();
      times.push(relay.startedIn);
      await relay.kill();
    }
    const best = Math.min(...times);
    process.stdout.write(`start to first healthy answer: ${times.map((time) => time.toFixed(0)).join(', ')} ms\n`);
    expect(best).toBeLessThan(2_000);
  });

  it('makes its state private to the owner: files 0600, directories 0700 (01 §6.7)', async () => {
    const home = join(await temporaryHome(), 'deep', 'home');
    const relay = await startRelayProcess({ home });
    await pairDevice(relay);
    await relay.ask('/pairing/mint', { method: 'POST', body: { host: '192.0.2.9' } });
    const files = await filesBelow(home);
    expect(files.map((file) => file.path)).toContain(join(home, 'svc-relay/state.db'));
    for (const { path } of files) expect((await stat(path)).mode & 0o777, path).toBe(0o600);
    expect((await stat(join(home, 'svc-relay'))).mode & 0o777).toBe(0o700);
  });
});

describe('addresses', () => {
  it('of every network are named where it listens on all', async (context) => {
    const own = Object.values(networkInterfaces()).flatMap((found) => found ?? []);
    const outer = own.find(({ internal, family, mac }) => !internal && family === 'IPv4' && !/^[0:]+$/.test(mac));
    if (!outer) return context.skip('this machine has no network');
    const port = await freePort();
    const relay = await startRelayProcess({ bare: true, port, flags: ['--port', String(port)] });
    await relay.child.prints(/Stop with/);
    expect(relay.child.stdout).toContain(`http://127.0.0.1:${port}  (ws://127.0.0.1:${port}/ws)\n`);
    expect(relay.child.stdout).toContain(`http://${outer.address}:${port}  (ws://${outer.address}:${port}/ws)\n`);
    // A QR code is drawn on request only.
    expect(relay.child.stdout).not.toMatch(/[█▀▄]/);
  });

  it('--qr draws one, --open opens one in a browser', async () => {
    const programs = await temporaryHome();
    const opened = join(programs, 'opened');
    const script = `#!/bin/sh\nprintf %s "$1" > '${opened}.new' && mv '${opened}.new' '${opened}'\n`;
    for (const name of ['xdg-open', 'open']) await writeFile(join(programs, name), script, { mode: 0o755 });
    const env = { PATH: `${programs}:${process.env.PATH}`, NO_COLOR: '1' };
    const relay = await startRelayProcess({ env, flags: ['--qr', '--open'] });
    await relay.child.prints(/(?:[█▀▄ ]{20,}\n){10}/);
    await expect.poll(() => readFile(opened, 'utf8').catch(() => '')).toBe(relay.url);
    expect((await relay.ask('/health')).status).toBe(200);
  });

  it('--open without any browser: a warning, and the relay runs', async () => {
    const relay = await startRelayProcess({ env: { PATH: await temporaryHome() }, flags: ['--open'] });
    await relay.child.prints(/\[WARNING\] relay: no browser could be opened/);
    expect((await relay.ask('/health')).status).toBe(200);
  });

  it('a port that browsers refuse: exit 2, one line', async (context) => {
    if (!(await isPortFree(6667))) return context.skip('port 6667 is taken on this machine');
    const { code, error } = await failingStart({ flags: ['--port', '6667'] });
    expect([code, error]).toEqual([2, expect.stringContaining('6667')]);
  });
});

describe('help (07 §5)', () => {
  it.each([
    ['svc', ['--help'], /svc <command>/],
    ['svc relay', ['relay', '--help'], /svc relay <command>/],
    ['svc pair', ['pair', '--help'], /Examples:\n +\S*.*svc pair/],
    ['svc relay start', ['relay', 'start', '--help'], /Examples:\n +\S*.*svc relay start/],
    ['svc relay insecure-api-key', ['relay', 'insecure-api-key', '--help'], /Examples:\n +.*insecure-api-key/],
    ['svc relay operator-token', ['relay', 'operator-token', '--help'], /Examples:\n +.*operator-token/],
  ])('%s --help explains itself and exits 0', async (_name, words, expected) => {
    const { code, stdout, stderr } = await runSvc(words);
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^(?:.*\n)*Usage:/);
    expect(stdout).toMatch(expected);
  });

  it.each([
    ['an unknown option', ['relay', 'start', '--nonsense'], /--nonsense/],
    ['an invalid port', ['relay', 'start', '--port', 'x'], /--port/],
    ['a port that is too big', ['relay', 'start', '--port', '65536'], /--port/],
    ['an unknown level', ['relay', 'start', '--log-level', 'LOUD'], /--log-level/],
    ['a relative shell', ['relay', 'start', '--shell', 'bash'], /--shell/],
    ['an invalid URL', ['relay', 'start', '--webapi-url', 'localhost:8642'], /--webapi-url/],
    ['a word too many', ['relay', 'start', 'now'], /now/],
    ['an unknown command', ['relay', 'begin'], /begin/],
  ])('%s: exit 2, one line of error and where help is (01 §9.2)', async (_name, words, expected) => {
    const { code, stdout, stderr } = await runSvc(words);
    expect([code, stdout]).toEqual([2, '']);
    const [error, ...rest] = linesOf(stderr);
    expect(error).toMatch(/^error: /);
    expect(error).toMatch(expected);
    expect(rest).toEqual([expect.stringMatching(/^Run 'svc.* --help' for help\.$/)]);
  });
});

describe('a failing start (01 §9.1, §9.2)', () => {
  it.each(['abc', '12.5', '0x10', '70000', '-1'])('RELAY_PORT=%s: exit 2, naming it', async (RELAY_PORT) => {
    const home = await temporaryHome();
    const { code, stderr, stdout } = await runSvc(['relay', 'start'], { home, env: { RELAY_PORT } });
    expect([code, stdout]).toEqual([2, '']);
    expect(linesOf(stderr)).toEqual([expect.stringMatching(/^error: .*RELAY_PORT/)]);
    expect(await readdir(home)).toEqual([]);
  });

  it.each([
    ['--pairing-code', ['--pairing-code', 'ABC-12'], {}],
    ['--pairing-code, too short', ['--pairing-code', 'ABC12'], {}],
    ['RELAY_PAIRING_CODE', [], { RELAY_PAIRING_CODE: 'ABCDEFG' }],
  ])('a bad %s: exit 2 before anything is opened', async (_name, flags, env) => {
    const home = await temporaryHome();
    const port = await freePort();
    const { code, stderr } = await failingStart({ home, env, flags: ['--port', String(port), ...flags] });
    expect(code).toBe(2);
    expect(stderr).not.toContain('listens on');
    expect(await readdir(home), 'no state was made').toEqual([]);
  });

  it('a port in use: exit 1, one line', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    onTestFinished(() => void server.close());
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    const { code, error } = await failingStart({ flags: ['--port', String(port)] });
    expect(code).toBe(1);
    expect(error).toContain(String(port));
    expect(error).toContain('in use');
  });

  it('an address of another machine: exit 1, one line', async () => {
    // An address of the documentation range, which nobody has.
    const words = ['relay', 'start', '--host', '203.0.113.77', '--port', String(await freePort())];
    const { code, stderr } = await runSvc(words);
    expect(code).toBe(1);
    expect(errorsOf(stderr)).toEqual([expect.stringContaining('203.0.113.77')]);
  });

  it('a state path that cannot be opened: exit 1, one line', async () => {
    const home = await temporaryHome();
    await mkdir(join(home, 'state.db'));
    const { code } = await failingStart({
      home,
      env: { RELAY_STATE_FILE: join(home, 'state.db') },
      flags: ['--port', String(await freePort())],
    });
    expect(code).toBe(1);
  });

  it('a second relay on the same state: exit 1, and the first keeps running (issue)', async () => {
    const first = await startRelayProcess();
    const device = await pairDevice(first);
    const { code, error, stderr } = await failingStart({
      home: first.home,
      flags: ['--port', String(await freePort())],
    });
    expect(code).toBe(1);
    expect(error).toMatch(/another relay/);
    expect(error, 'names it, and says how to see and stop it').toContain(
      `(process ${first.child.pid}, port ${first.port})`,
    );
    expect(stderr).toContain(`ps -f -p ${first.child.pid}`);
    expect(stderr).toContain(`kill ${first.child.pid}`);
    expect((await first.ask('/sessions', { headers: bearer(device.token) })).status).toBe(200);
    const next = await pairDevice(first);
    expect((await first.ask('/health')).json.readiness.checks.session_store).toBe('ok');
    await first.restart();
    for (const { token } of [device, next]) {
      expect((await first.ask('/sessions', { headers: bearer(token) })).status).toBe(200);
    }
  });
});

/** A self-signed certificate and its key. Skips the test, with a reason, where they cannot be created. */
async function selfSignedHome(context: TestContext) {
  const home = await temporaryHome();
  const { cert, key } = await selfSigned(context, home);
  return { home, RELAY_SSL_CERT: cert, RELAY_SSL_KEY: key };
}

describe('TLS (01 §9.2)', () => {
  const handshake = (port: number, version: 'TLSv1.1' | 'TLSv1.2' | 'TLSv1.3') =>
    new Promise<string>((resolve) => {
      const socket = connectTls({
        host: '127.0.0.1',
        port,
        rejectUnauthorized: false,
        minVersion: version,
        maxVersion: version,
        // Without this, the client itself would not offer the old version.
        ciphers: 'DEFAULT@SECLEVEL=0',
      });
      socket.once('secureConnect', () => {
        resolve(socket.getProtocol() ?? 'none');
        socket.destroy();
      });
      socket.once('error', (error: NodeJS.ErrnoException) => resolve(error.code ?? error.message));
    });

  it('serves https and wss with TLS 1.2 and later only', async (context) => {
    const { home, ...env } = await selfSignedHome(context);
    const relay = await startRelayProcess({ home, env, tls: true });
    await relay.child.prints(/Stop with/);
    expect(relay.child.stdout).toContain(`https://127.0.0.1:${relay.port}`);
    expect(relay.child.stderr).not.toContain('without TLS');
    const device = await pairDevice(relay);
    const { frame, socket } = await relay.offer({ session_token: device.token });
    expect(frame.payload.transport_hint).toBe('wss');
    socket.terminate();
    device.socket.terminate();
    expect(await handshake(relay.port, 'TLSv1.2')).toBe('TLSv1.2');
    expect(await handshake(relay.port, 'TLSv1.3')).toBe('TLSv1.3');
    expect(await handshake(relay.port, 'TLSv1.1')).toBe('ERR_SSL_TLSV1_ALERT_PROTOCOL_VERSION');
    expect((await relay.ask('/health')).status).toBe(200);
    expect(await relay.kill('SIGTERM')).toEqual({ code: 0, signal: null });
  });

  it('--no-ssl serves plain http even with a certificate', async (context) => {
    const { home, ...env } = await selfSignedHome(context);
    const relay = await startRelayProcess({ home, env, flags: ['--no-ssl'] });
    await relay.child.prints(/Stop with/);
    expect(relay.child.stdout).toContain(`http://127.0.0.1:${relay.port}`);
  });

  it.each(['RELAY_SSL_CERT', 'RELAY_SSL_KEY'])('only %s: plain http and a warning', async (name) => {
    const relay = await startRelayProcess({ env: { [name]: '/nonexistent.pem' } });
    await relay.child.prints(/\[WARNING\] relay: .*RELAY_SSL_CERT and RELAY_SSL_KEY/);
  });

  it('neither: plain http and a line about it, which --no-ssl suppresses (11 §5)', async () => {
    const plain = await startRelayProcess();
    await plain.child.prints(/\[INFO\] relay: serving without TLS/);
    expect(plain.child.stderr).not.toContain('[WARNING]');
    const meant = await startRelayProcess({ flags: ['--no-ssl'] });
    await meant.kill('SIGTERM');
    expect(meant.child.stderr).not.toMatch(/TLS/);
  });

  it('a missing or invalid certificate, or one for another key: exit 1, one line', async (context) => {
    const { home, ...env } = await selfSignedHome(context);
    const other = await selfSignedHome(context);
    await writeFile(join(home, 'garbage.pem'), 'no certificate');
    const broken = [
      { ...env, RELAY_SSL_CERT: join(home, 'missing.pem') },
      { ...env, RELAY_SSL_KEY: join(home, 'missing.pem') },
      { ...env, RELAY_SSL_CERT: home },
      { ...env, RELAY_SSL_CERT: join(home, 'garbage.pem') },
      { ...env, RELAY_SSL_KEY: join(home, 'garbage.pem') },
      { ...env, RELAY_SSL_KEY: other.RELAY_SSL_KEY },
    ];
    for (const wrong of broken) {
      const { code, error } = await failingStart({ env: wrong, flags: ['--port', String(await freePort())] });
      expect(code, error).toBe(1);
      expect(error).toMatch(/certificate|key/i);
    }
  });
});

describe('stopping (01 §9.2)', () => {
  it.each(['SIGTERM', 'SIGINT'] as const)(
    '%s: sockets end with 1001, exit 0 within 5 s, even if clients hang on',
    async (signal) => {
      const relay = await startRelayProcess();
      const polite = await pairDevice(relay);
      // A client that has stopped reading and so never answers the closing handshake.
      const stalled = await pairDevice(relay);
      stalled.socket.pause();
      // A kept-alive connection without a request.
      const agent = new Agent({ keepAlive: true });
      onTestFinished(() => agent.destroy());
      const response = await new Promise<{ resume(): void }>((resolve, reject) => {
        get(`${relay.url}/health`, { agent }, resolve).on('error', reject);
      });
      response.resume();
      // A connection that has not sent anything yet.
      const silent = createConnectionTo(relay.port);
      await once(silent, 'connect');

      const passed = startWatch();
      const ended = closing(polite.socket);
      relay.child.signal(signal);
      expect(await ended).toEqual({ code: 1001, reason: 'server shutting down' });
      expect(await relay.child.ended).toEqual({ code: 0, signal: null });
      expect(passed()).toBeLessThan(5_000);
      stalled.socket.terminate();
      expect(relay.child.stderr).not.toContain('[ERROR]');

      relay.begin();
      await relay.child.prints(/is running/);
      for (const { token } of [polite, stalled]) {
        expect((await relay.ask('/sessions', { headers: bearer(token) })).status).toBe(200);
      }
    },
  );

  it('refuses new connections and writes last_seen', async () => {
    const relay = await startRelayProcess();
    const device = await pairDevice(relay);
    const rows = await relay.ask('/sessions', { headers: bearer(device.token) });
    const seen = rows.json.sessions[0].last_seen;
    expect(await relay.kill('SIGTERM')).toEqual({ code: 0, signal: null });
    await expect(relay.ask('/health')).rejects.toThrow(/ECONNREFUSED/);
    await relay.restart();
    const after = await relay.ask('/sessions', { headers: { 'x-svc-operator': '1' } });
    expect(after.json.sessions[0].last_seen).toBeGreaterThanOrEqual(seen);
  });

  it('ends at once on a second signal', async () => {
    const relay = await startRelayProcess();
    // Delays the orderly stop.
    const stalled = await pairDevice(relay);
    stalled.socket.pause();
    relay.child.signal('SIGTERM');
    await relay.child.prints(/SIGTERM: stopping/);
    relay.child.signal('SIGINT');
    const { code } = await relay.child.ended;
    stalled.socket.terminate();
    expect(code).toBe(1);
    expect(relay.child.stderr).not.toMatch(/: stopped$/m);
  });
});

function createConnectionTo(port: number) {
  const socket = connect(port, '127.0.0.1');
  socket.on('error', () => {});
  onTestFinished(() => void socket.destroy());
  return socket;
}

describe('state (01 §6.7)', () => {
  const corruptOf = async (home: string) =>
    (await readdir(join(home, 'svc-relay'))).filter((name) => /^state\.db\.corrupt-\d+$/.test(name));

  it.each<[string, (whole: Buffer) => Buffer]>([
    ['garbage', () => Buffer.from('this is no database at all. '.repeat(500))],
    ['cut in the middle', (whole) => whole.subarray(0, Math.floor(whole.length / 2))],
    [
      'overwritten in the middle',
      (whole) => Buffer.concat([whole.subarray(0, 4096), Buffer.alloc(whole.length - 4096, 7)]),
    ],
  ])('a state file that is %s is set aside byte for byte, and the relay starts empty', async (_name, damage) => {
    const relay = await startRelayProcess();
    const devices = [];
    for (let count = 0; count < 12; count++) devices.push(await pairDevice(relay));
    for (const { socket } of devices) socket.terminate();
    await relay.kill('SIGTERM');
    const path = join(relay.home, 'svc-relay/state.db');
    const whole = await readFile(path);
    expect(whole.length).toBeGreaterThan(12_000);
    const damaged = damage(whole);
    await writeFile(path, damaged);
    const before = Math.floor(Date.now() / 1000);

    await relay.restart();
    const aside = await corruptOf(relay.home);
    expect(aside).toHaveLength(1);
    const [name = ''] = aside;
    expect(Number(name.split('-').at(-1))).toBeGreaterThanOrEqual(before);
    expect((await readFile(join(relay.home, 'svc-relay', name))).equals(damaged)).toBe(true);
    expect((await stat(join(relay.home, 'svc-relay', name))).mode & 0o777).toBe(0o600);
    await relay.child.prints(/corrupt-.*\n/);
    const warning = linesOf(relay.child.stderr).filter((line) => line.includes('corrupt-'));
    expect(warning).toEqual([expect.stringMatching(/\[WARNING\] state: .*damaged/)]);
    expect((await relay.ask('/health')).json).toMatchObject({
      sessions: 0,
      readiness: { checks: { session_store: 'ok' } },
    });

    // The new state works as usual, and the old one stays where it was moved.
    const { token } = await pairDevice(relay);
    await relay.restart();
    expect((await relay.ask('/sessions', { headers: bearer(token) })).status).toBe(200);
    expect(await corruptOf(relay.home)).toEqual(aside);
  });

  it("RELAY_STATE_FILE='' keeps everything in memory", async () => {
    const relay = await startRelayProcess({ env: { RELAY_STATE_FILE: '' } });
    await relay.child.prints(/Stop with/);
    const device = await pairDevice(relay);
    expect((await relay.ask('/health')).json.readiness.checks.session_store).toBe('memory');
    expect(relay.child.stdout).toContain('memory');
    expect((await filesBelow(relay.home)).map((file) => file.path).filter((path) => path.includes('.db'))).toEqual([]);
    await relay.restart();
    expect((await relay.ask('/sessions', { headers: bearer(device.token) })).status).toBe(401);
  });
});

describe('sources of settings (01 §9.1)', () => {
  it('<agent_home>/.env overrides the environment, and a flag overrides both', async () => {
    const home = await temporaryHome();
    const [fromFile, fromEnvironment, fromFlag] = [await freePort(), await freePort(), await freePort()];
    await writeFile(
      join(home, '.env'),
      `# comment\nexport RELAY_PORT="${fromFile}"\nRELAY_HOST='127.0.0.1'\nRELAY_LOG_LEVEL=DEBUG\n`,
    );
    const env = { RELAY_PORT: String(fromEnvironment), RELAY_HOST: '0.0.0.0', RELAY_LOG_LEVEL: 'ERROR' };
    const file = await startRelayProcess({ home, env, bare: true, port: fromFile });
    await file.child.prints(/is running/);
    await file.child.prints(new RegExp(`listens on 127\\.0\\.0\\.1:${fromFile}`));
    await file.kill('SIGTERM');
    const flags = ['--port', String(fromFlag), '--log-level', 'WARNING'];
    const flag = await startRelayProcess({ home, env, bare: true, port: fromFlag, flags });
    expect(flag.child.stderr).not.toContain('[INFO]');
  });

  it('a .env in Latin-1 is read too', async () => {
    const home = await temporaryHome();
    const port = await freePort();
    await writeFile(
      join(home, '.env'),
      Buffer.from(`# caf\u00e9\nRELAY_PORT=${port}\nRELAY_HOST=127.0.0.1\n`, 'latin1'),
    );
    await startRelayProcess({ home, bare: true, port });
  });

  it.each(['LOCALHOST', hostname(), '0', '::0', '0:0:0:0:0:0:0:0'])(
    '--host %s, is served exactly once on loopback',
    async (host) => {
      const port = await freePort();
      const relay = await startRelayProcess({ bare: true, port, flags: ['--host', host, '--port', String(port)] });
      expect((await ask(`http://127.0.0.1:${port}/health`)).status).toBe(200);
      expect(await relay.kill('SIGTERM')).toEqual({ code: 0, signal: null });
    },
  );

  it('a relay on a specific address also listens on loopback, where alone the operator is accepted (01 §1.3)', async () => {
    const port = await freePort();
    const specific = await startRelayProcess({
      bare: true,
      port,
      flags: ['--host', '127.0.0.2', '--port', String(port)],
    });
    const code = randomCode();
    const register = (host: string) =>
      ask(`http://${host}:${port}/pairing/register`, { method: 'POST', body: { code } });
    expect((await register('127.0.0.1')).status).toBe(200);
    // The caller's own address is still 127.0.0.1, but the host it asks for is not loopback.
    expect((await register('127.0.0.2')).status).toBe(403);
    const { frame, socket } = await offer(`ws://127.0.0.2:${port}/ws`, { pairing_code: code });
    expect(frame.type).toBe('auth.ok');
    socket.terminate();
    expect(await specific.kill('SIGTERM')).toEqual({ code: 0, signal: null });
  });
});

describe('logs (01 §10)', () => {
  it('share one format and never contain a code, token or key', async () => {
    const apiKey = 'sk-SECRET-4f1b7d2c9e';
    const relay = await startRelayProcess({
      env: { API_SERVER_KEY: apiKey },
      flags: ['--log-level', 'DEBUG', '--pairing-code', 'Q7W8E9'],
    });
    const secrets = [apiKey, 'Q7W8E9', 'Z9Y8X7', 'wrong-token-5d2', 'wrong-refresh-8c1'];
    const { frame, socket } = await relay.offer({ pairing_code: 'q7w8e9', device_id: 'first' });
    const first = frame.payload as { session_token: string; refresh_token: string };
    const device = await pairDevice(relay, { ttl_seconds: 4000, grants: { bridge: 60 } });
    const mint = await relay.ask('/pairing/mint', { method: 'POST', body: { host: '192.0.2.9' } });
    expect(mint.status, mint.text).toBe(200);
    const anonymous = await relay.ask('/pairing', { method: 'POST' });
    secrets.push(first.session_token, first.refresh_token, device.code, device.token, device.refreshToken);
    secrets.push(mint.json.code, mint.json.qr_payload, mint.json.pairing_url, anonymous.json.code);

    for (const payload of [
      { session_token: device.token, refresh_token: device.refreshToken },
      { refresh_token: first.refresh_token, device_id: 'first' },
      { session_token: 'wrong-token-5d2', refresh_token: 'wrong-refresh-8c1' },
      { pairing_code: 'Z9Y8X7' },
    ]) {
      const entered = await relay.offer(payload);
      const { session_token, refresh_token } = entered.frame.payload;
      for (const secret of [session_token, refresh_token]) if (typeof secret === 'string') secrets.push(secret);
      entered.socket.send('{"channel":"nonsense","type":"x","payload":{"note":"frame-body-7e3"}}');
      entered.socket.send('frame-body-7e3, no JSON');
      entered.socket.terminate();
    }
    secrets.push('frame-body-7e3');
    socket.send('frame-body-7e3, no JSON');
    const headers = bearer(device.token);
    const path = `/sessions/${device.token.slice(0, 8)}`;
    expect((await relay.ask(path, { method: 'PATCH', headers, body: { ttl_seconds: 1000 } })).status).toBe(200);
    expect((await relay.ask(`/sessions/${device.token}`, { headers: bearer('wrong-token-5d2') })).status).toBe(405);
    expect((await relay.ask(path, { method: 'DELETE', headers })).status).toBe(200);
    expect((await relay.ask('/sessions', { headers })).status).toBe(401);
    expect((await relay.ask('/relay/security', { headers: { 'x-forwarded-for': '203.0.113.5' } })).status).toBe(403);
    await relay.kill('SIGTERM');

    const { stdout, stderr } = relay.child;
    const lines = linesOf(stderr);
    expect(lines.length).toBeGreaterThan(10);
    expect(lines.filter((line) => !LOG_LINE.test(line))).toEqual([]);
    for (const secret of secrets) expect(typeof secret).toBe('string');
    expect(secrets.filter((secret) => (stdout + stderr).includes(secret))).toEqual([]);
    const named = String.raw`[0-9a-f]{8} of .+ \(.+\)`;
    expect(stderr).toMatch(/\[INFO\] sessions: session [0-9a-f]{8} created for .+ \(first\)/);
    expect(stderr).toMatch(new RegExp(`\\[INFO\\] sessions: session ${named} reduced`));
    expect(stderr).toMatch(new RegExp(`\\[INFO\\] sessions: session ${named} revoked`));
    expect(stderr).toMatch(new RegExp(`\\[INFO\\] sessions: session ${named} refreshed`));
    expect(stderr).toMatch(/\[INFO\] pairing: registered pairing code Q7\S*: lifetime default/);
    expect(stderr).toMatch(/\[INFO\] pairing: consumed pairing code Q7\S*: lifetime default/);
    expect(stderr).toMatch(/\[INFO\] pairing: consumed pairing code \S+: lifetime 4000 s, grants bridge=60 s/);
    const anonymousCode = new RegExp(`registered pairing code ${anonymous.json.code.slice(0, 2)}`);
    expect(stderr).toMatch(anonymousCode);
    expect(stderr).toMatch(/\[WARNING\] \w+: refused an operator call/);
    for (const { path, bytes } of await filesBelow(relay.home)) {
      expect(
        secrets.filter((secret) => bytes.includes(secret)),
        path,
      ).toEqual([]);
    }
  });
});

describe('few descriptors (issue 11 §3)', () => {
  it('starts with 64 of them, pairs a device, and outlives more connections than it can accept', async () => {
    const home = await temporaryHome();
    for (let profile = 0; profile < 100; profile++) {
      await mkdir(join(home, `profiles/p${profile}/skills/c/s`), { recursive: true });
      await writeFile(join(home, `profiles/p${profile}/config.yaml`), 'model: m\n');
    }
    const relay = await startRelayProcess({ home, descriptors: 64 });
    await relay.child.prints(/profiles: p0, .* and 80 more/);
    const { socket } = await pairDevice(relay);
    const opened = await Promise.all(
      Array.from({ length: 100 }, async () => {
        const connection = connect({ port: relay.port, host: '127.0.0.1' }).on('error', () => {});
        await once(connection, 'connect');
        return connection;
      }),
    );
    for (const connection of opened) connection.destroy();
    await expect
      .poll(() =>
        relay.ask('/health').then(
          ({ status }) => status,
          () => 0,
        ),
      )
      .toBe(200);
    expect(socket.readyState).toBe(socket.OPEN);
    socket.terminate();
  });

  it('says how many it needs, with the next step, when there are fewer', async () => {
    for (const descriptors of [63, 40, 26]) {
      const { code, error, stderr } = await failingStart({ descriptors });
      expect(code).toBe(1);
      expect(error).toMatch(
        /^error: (?:this process may open \d+ files, and the relay|too many open files:.*) needs? 64/,
      );
      expect(stderr).toMatch(/ulimit -Hn \d+/);
    }
  });
});

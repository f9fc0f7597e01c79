import { execFile } from 'node:child_process';
import { createHash, createPublicKey, X509Certificate } from 'node:crypto';
import { copyFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { describe, expect, it, vi } from 'vitest';
import { createBridge } from '../../lib/companion/link/commands.ts';
import { createLink, type LinkDeps } from '../../lib/companion/link/link.ts';
import { parsePairing } from '../../lib/companion/link/pairing-url.ts';
import { openSettings } from '../../lib/companion/link/settings.ts';
import type { LinkState } from '../../lib/companion/link/state.ts';
import { dial } from '../../lib/host/node/dial.ts';
import { createFiles } from '../../lib/host/node/files.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { fastClock } from '../support/companion.ts';
import { type FaultKind, startFlakyProxy } from '../support/flaky-proxy.ts';
import { TIMEOUT } from '../support/limits.ts';
import { createTestLog } from '../support/log.ts';
import { ask } from '../support/process.ts';
import { bearer, pair, randomCode, startNodeTarget } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

const pending = cleanups();
/** For reconnects with a token only: a code works once, and an answer that this clock finds late would waste it. */
const clock = fastClock(40);

/** A companion with real settings and real sockets. Its phone answers every command with the path. */
async function companion(path: string, deps: Partial<LinkDeps> = {}) {
  const store = await openSettings({ files: createFiles(), path, clock: systemClock });
  const states: LinkState[] = [];
  const log = createTestLog();
  let commands = 0;
  const link = createLink({
    dial,
    store,
    clock,
    log,
    device: { name: 'Phone' },
    bridge: createBridge({
      phone: {
        async handle(command) {
          commands++;
          return { status: 200, result: { path: command.path } };
        },
        status: () => ({ device: { name: 'Phone' }, bridge: { device_control_supported: true } }),
        onStatusChange: () => () => {},
      },
      clock,
    }),
    onState: (state) => states.push(state),
    ...deps,
  });
  pending.push(() => link.stop());
  const until = (name: LinkState['name']) =>
    vi.waitFor(() => expect(link.state.name, JSON.stringify(states.slice(-5))).toBe(name), {
      interval: 5,
    });
  return { link, store, states, log, until, commands: () => commands };
}

const settingsPath = async () => join(await temporaryDirectory(), 'settings.json');

const offerFor = (url: string, code: string) => parsePairing(JSON.stringify({ svc: 1, relay: { url, code } }));

describe('through a bad network', () => {
  it.each<[number, FaultKind[]]>([
    [1, ['cut', 'reset']],
    [2, ['trickle', 'cut']],
    [3, ['stall', 'half-open', 'cut']],
  ])('seed %d, %j: reconnects, and every call is answered', { timeout: 300_000 }, async (seed, faults) => {
    const relay = await startBuiltTarget();
    pending.push(() => relay.stop());
    const proxy = await startFlakyProxy({ port: relay.port, seed, faults: ['none'], after: [1200, 3000] });
    pending.push(() => proxy.close());
    const code = randomCode();
    await relay.operator('/pairing/register', { method: 'POST', body: JSON.stringify({ code }) });
    const tool = await pair(relay);
    const path = await settingsPath();
    const first = await companion(path, {
      offer: offerFor(`ws://127.0.0.1:${proxy.port}`, code),
      clock: systemClock,
    });
    first.link.start();
    await first.until('online');
    await first.link.stop();

    proxy.plan(faults);
    const { link, store, until, states } = await companion(path);
    link.start();
    const answers = new Map<number, number>();
    // On a busy machine the first fault, or the first answer, takes longer.
    const isProved = () => proxy.strikes.length > 0 && answers.has(200);
    const [enough, limit] = [Date.now() + 5000, Date.now() + TIMEOUT];
    while ((proxy.strikes.length < 4 && Date.now() < enough) || (!isProved() && Date.now() < limit)) {
      const abort = AbortSignal.timeout(500);
      const status = await relay
        .fetch('/ping', { headers: bearer(tool.token), signal: abort })
        .then((response) => response.body?.cancel().then(() => response.status) ?? response.status)
        .catch(() => 0);
      answers.set(status, (answers.get(status) ?? 0) + 1);
      if (status !== 200) await new Promise((resolve) => setImmediate(resolve));
    }
    expect(proxy.strikes.length).toBeGreaterThan(0);
    // 0: this test gave up a call that would have become a 504.
    expect([...answers.keys()].filter((status) => ![0, 200, 502, 503].includes(status))).toEqual([]);
    expect(answers.get(200)).toBeGreaterThan(0);

    proxy.plan(['none']);
    proxy.dropClients();
    await vi.waitFor(async () => {
      await until('online');
      expect((await relay.fetch('/ping', { headers: bearer(tool.token) })).status).toBe(200);
    });
    // It stayed the same device, and the stored token is the one that the relay knows.
    expect(states.filter(({ name }) => name === 'unpaired')).toEqual([]);
    const devices = await (await relay.operator('/bridge/devices')).json();
    expect(devices).toMatchObject({ count: 1, devices: [{ device_id: store.deviceId }] });
    const kept = JSON.parse(await readFile(path, 'utf8')).pairing.session_token;
    expect((await relay.fetch('/sessions', { headers: bearer(kept) })).status).toBe(200);
  });
});

const openssl = (...args: string[]) => promisify(execFile)('openssl', args);

async function makeKey(directory: string, name: string): Promise<string> {
  const path = join(directory, `${name}.key.pem`);
  await openssl('ecparam', '-name', 'prime256v1', '-genkey', '-noout', '-out', path);
  return path;
}

/** A self-signed certificate of this key, at `cert.pem`. */
const certify = (directory: string, key: string, days: number) =>
  openssl(
    'req',
    '-x509',
    '-new',
    '-key',
    key,
    '-subj',
    '/CN=relay',
    '-days',
    String(days),
    '-out',
    join(directory, 'cert.pem'),
  );

const spkiOf = async (key: string) =>
  createHash('sha256')
    .update(createPublicKey(await readFile(key)).export({ type: 'spki', format: 'der' }))
    .digest('hex');

describe('over TLS with a self-signed certificate (spec 2.1)', () => {
  it('pins the key on the first connection; accepts a renewed certificate, and sends nothing to another key until paired again', async () => {
    const directory = await temporaryDirectory();
    const [key, other] = [await makeKey(directory, 'own'), await makeKey(directory, 'other')];
    await certify(directory, key, 30);
    await copyFile(key, join(directory, 'key.pem'));
    const relay = await startNodeTarget({
      env: { RELAY_SSL_CERT: join(directory, 'cert.pem'), RELAY_SSL_KEY: join(directory, 'key.pem') },
    });
    pending.push(() => relay.stop());
    const port = new URL(relay.url).port;
    const register = async () => {
      const code = randomCode();
      const answer = await ask(`https://127.0.0.1:${port}/pairing/register`, { method: 'POST', body: { code } });
      expect(answer.status, answer.text).toBe(200);
      return offerFor(`wss://127.0.0.1:${port}`, code);
    };
    const path = await settingsPath();
    const pairedOnce = async () => {
      const one = await companion(path, { offer: await register(), clock: systemClock });
      one.link.start();
      await one.until('online');
      await one.link.stop();
      return one.store.pairing()?.tofu_pins;
    };
    expect(await pairedOnce()).toEqual({ [`127.0.0.1:${port}`]: await spkiOf(key) });

    // Renewed: another certificate of the same key.
    const before = new X509Certificate(await readFile(join(directory, 'cert.pem'))).fingerprint256;
    await certify(directory, key, 60);
    expect(new X509Certificate(await readFile(join(directory, 'cert.pem'))).fingerprint256).not.toBe(before);
    await relay.restart().catch(() => {});
    const renewed = await companion(path);
    renewed.link.start();
    await renewed.until('online');
    await renewed.link.stop();

    // Somebody else's key.
    await certify(directory, other, 30);
    await copyFile(other, join(directory, 'key.pem'));
    await relay.restart().catch(() => {});
    relay.log.length = 0;
    const fooled = await companion(path);
    fooled.link.start();
    await vi.waitFor(() => expect(fooled.states.filter(({ name }) => name === 'waiting').length).toBeGreaterThan(1));
    await fooled.link.stop();
    expect(fooled.states.map(({ name }) => name)).not.toContain('authenticating');
    expect(fooled.states.find(({ name }) => name === 'waiting')).toMatchObject({
      reason: expect.stringContaining('has changed'),
    });
    expect(relay.log.join('\n')).not.toMatch(/authenticated|refused/);

    expect(await pairedOnce()).toEqual({ [`127.0.0.1:${port}`]: await spkiOf(other) });
  });
});

describe('dial', () => {
  it('reports in words why a socket could not be opened, and never throws', async () => {
    const relay = await startBuiltTarget();
    pending.push(() => relay.stop());
    const end = (url: string) =>
      new Promise((resolve) => {
        dial(url, { open() {}, message() {}, alive() {}, close: resolve });
      });
    expect(await end('ws://127.0.0.1:1/ws')).toMatchObject({ code: 1006, reason: 'nothing is listening there' });
    expect(await end(`ws://127.0.0.1:${relay.port}/nowhere`)).toMatchObject({ code: 1006, status: 404 });
    expect(await end(`wss://127.0.0.1:${relay.port}/ws`)).toMatchObject({
      code: 1006,
      reason: expect.stringMatching(/TLS/),
    });
    expect(await end('ws://')).toMatchObject({ code: 1006, reason: expect.any(String) });
  });
});

import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it, type TestContext } from 'vitest';
import { readConfig } from '../../../../lib/config.ts';
import type { Host } from '../../../../lib/host/index.ts';
import { isReadOnlyIn } from '../../../../lib/host/node/machine.ts';
import type { ProbeResult } from '../../../../lib/host/probe.ts';
import { type Check, ok } from '../../../../lib/operator/doctor/check.ts';
import {
  devicesCheck,
  type MachineDoctor,
  machineChecks,
  nodeCheck,
  serviceCheck,
} from '../../../../lib/operator/doctor/machine.ts';
import { makeIdentity } from '../../../support/certificate.ts';
import { createTestHost } from '../../../support/host.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

const answer = (status: number | null, json?: unknown): ProbeResult => ({
  ...{ ok: status === 200, exists: status !== null, status, method: 'GET', url: 'http://r', json },
  ...(status === null && { error: 'connection refused' }),
});

/** One check of a machine whose parts are real unless they are given. */
async function look(
  id: string,
  {
    host = {},
    env = {},
    ...given
  }: { host?: Partial<Host>; env?: Record<string, string> } & Partial<Omit<MachineDoctor, 'host'>> = {},
): Promise<Check> {
  const agentHome = await temporaryDirectory();
  const { config } = readConfig(env, { home: agentHome, agentHome });
  const checks = machineChecks({
    host: { ...createTestHost({ agentHome, env: { PATH: '' } }), ...host },
    config,
    now: Date.now(),
    relay: { port: 8767, tls: false },
    info: Promise.resolve(answer(200)),
    devices: Promise.resolve(ok('relay-devices', '')),
    push: Promise.resolve(ok('relay-push', '')),
    process: async () => process.pid,
    lifecycle: Promise.resolve(lifecycle({})),
    timeout: 2000,
    ...given,
  });
  const [, check] = checks.find(([name]) => name === id) ?? [];
  if (!check) throw new Error(`no check ${id}`);
  return check;
}

const lifecycle = (service: object): Parameters<typeof serviceCheck>[0] => ({
  service: {
    ...{ systemd: 'ready', unit_path: '/u', installed: true, current: true, enabled: true, active: 'active' },
    linger: true,
    ...service,
  },
});

describe('relay-tls', () => {
  async function withDays(context: TestContext, days: number, now?: number): Promise<Check> {
    const folder = await temporaryDirectory();
    const { cert, key } = await makeIdentity(context, { san: 'DNS:localhost', days });
    const env = { RELAY_SSL_CERT: join(folder, 'c.pem'), RELAY_SSL_KEY: join(folder, 'k.pem') };
    await writeFile(env.RELAY_SSL_CERT, cert);
    await writeFile(env.RELAY_SSL_KEY, key);
    // Not before the certificate, which is new.
    return look('relay-tls', { env, now: now ?? Date.now() });
  }

  it('tells the dates of the certificate', async (context) => {
    expect(await withDays(context, 90)).toMatchObject({
      status: 'ok',
      summary: expect.stringMatching(/valid from \d{4}-\d\d-\d\d until \d{4}-\d\d-\d\d$/),
    });
    expect(await withDays(context, 10)).toMatchObject({ status: 'warn', next: expect.stringContaining('Renew') });
    const later = Date.now() + 30 * 86_400_000;
    expect(await withDays(context, 10, later)).toMatchObject({
      status: 'error',
      summary: expect.stringContaining('ended on'),
    });
    expect(await withDays(context, 10, Date.now() - 86_400_000)).toMatchObject({
      status: 'error',
      summary: expect.stringContaining('not valid before'),
      next: expect.stringContaining('clock'),
    });
  });

  it('finds a file that is missing, damaged, alone or of another key', async (context) => {
    const folder = await temporaryDirectory({ 'broken.pem': 'x' });
    const [one, other] = await Promise.all(['a', 'b'].map((name) => makeIdentity(context, { san: `DNS:${name}` })));
    const [cert, key, broken] = ['c.pem', 'k.pem', 'broken.pem'].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ];
    await writeFile(cert, one?.cert ?? '');
    await writeFile(key, other?.key ?? '');
    const tls = (sslCert: string, sslKey: string) =>
      look('relay-tls', { env: { RELAY_SSL_CERT: sslCert, RELAY_SSL_KEY: sslKey } });
    expect(await tls(cert, key)).toMatchObject({ status: 'error', summary: `${key} is not the key of ${cert}` });
    expect(await tls(broken, key)).toMatchObject({ status: 'error', summary: `${broken}: certificate unreadable` });
    expect(await tls('/none', key)).toMatchObject({ status: 'error', summary: '/none is missing' });
    expect(await tls(cert, '')).toMatchObject({ status: 'warn', next: expect.stringContaining('RELAY_SSL_KEY') });
    expect(await look('relay-tls')).toMatchObject({ status: 'ok' });
  });
});

describe('relay-address', () => {
  const at = (lan: string | null, answers: boolean) => ({
    network: {
      ...createTestHost({ agentHome: '/' }).network,
      lanAddress: async () => lan,
      canConnect: async () => answers,
    },
  });

  it('tries the address that phones use', async () => {
    expect(await look('relay-address', { host: at('10.0.0.7', true) })).toMatchObject({
      status: 'ok',
      summary: expect.stringContaining('http://10.0.0.7:8767'),
    });
    expect(await look('relay-address', { host: at('10.0.0.7', false) })).toMatchObject({
      status: 'warn',
      next: expect.stringContaining('svc relay start --host 0.0.0.0'),
    });
    expect(await look('relay-address', { host: at(null, false) })).toMatchObject({ status: 'warn' });
    const own = await look('relay-address', { host: at('10.0.0.7', false), env: { RELAY_HOST: '127.0.0.1' } });
    expect(own).toMatchObject({ status: 'ok', summary: expect.stringContaining('for this machine alone') });
  });

  it('is not known while no relay runs', async () => {
    const down = { host: at('10.0.0.7', false), info: Promise.resolve(answer(null)) };
    expect(await look('relay-address', down)).toMatchObject({ status: 'warn', isUnknown: true });
  });
});

it('relay-devices: nothing is called connected that is stale (contract 09 §2)', () => {
  const connection = (stale?: boolean) => ({ connections: [{ stale }] });
  const devices = (...rows: object[]) => devicesCheck(answer(200, { devices: rows }));
  expect(devices()).toMatchObject({ status: 'ok', summary: expect.stringContaining('svc pair') });
  expect(devices({ connections: [] }, connection(false))).toMatchObject({
    status: 'ok',
    summary: '1 connected, 1 offline',
  });
  // A relay that does not say so has not proved it.
  for (const stale of [true, undefined]) {
    expect(devices(connection(false), { device_name: 'Pixel 9', ...connection(stale) })).toMatchObject({
      status: 'warn',
      summary: '1 connected, 0 offline, no sign of life for 45 s from Pixel 9',
      next: expect.stringContaining('svc devices watch'),
    });
  }
  expect(devices({ device_name: 'Pixel 9', ends_soon: true, ...connection(false) })).toMatchObject({
    status: 'warn',
    summary: '1 connected, 0 offline; the session of Pixel 9 ends soon',
    next: expect.stringContaining('svc devices extend'),
  });
  for (const none of [answer(null), answer(403, {}), answer(200, {}), answer(200, 'x')]) {
    expect(devicesCheck(none)).toMatchObject({ status: 'warn', isUnknown: true });
  }
});

describe('relay-descriptors', () => {
  const with_ = (limit: number, open: number) => ({
    host: {
      machine: {
        ...createTestHost({ agentHome: '/' }).machine,
        descriptors: async () => ({ limit, open }),
      },
    },
  });

  it.each([
    [20_000, 40, 'ok'],
    [1023, 40, 'warn'],
    [20_000, 16_001, 'warn'],
    [63, 20, 'error'],
  ])('a limit of %i with %i open: %s', async (limit, open, status) => {
    expect(await look('relay-descriptors', with_(limit, open))).toMatchObject({ status });
  });

  it('counts those of a process, and says when it cannot', async () => {
    const { machine } = createTestHost({ agentHome: '/' });
    const own = await machine.descriptors(process.pid);
    expect(own?.open).toBeGreaterThan(3);
    expect(own?.limit).toBeGreaterThanOrEqual(own?.open ?? 0);
    expect(await look('relay-descriptors')).toMatchObject({ summary: expect.stringMatching(/, and has \d+$/) });
    expect(await look('relay-descriptors', { process: async () => null })).toMatchObject({
      summary: expect.stringContaining('a relay started here may open'),
    });
    expect(await look('relay-descriptors', { process: async () => 2 ** 31 - 1 })).toMatchObject({ isUnknown: true });
  });
});

it('relay-disk: free space and a folder that can be written', async () => {
  const { machine, files } = createTestHost({ agentHome: '/' });
  const folder = await temporaryDirectory();
  const env = { RELAY_STATE_FILE: join(folder, 'state.db') };
  const space = (free: number) => ({ machine: { ...machine, space: async () => ({ free, total: 1e12 }) } });
  expect(await look('relay-disk', { env, host: space(5e9) })).toEqual({
    ...{ id: 'relay-disk', status: 'ok' },
    summary: `4 GB free for the state in ${folder}`,
  });
  expect(await look('relay-disk', { env, host: space(1e8) })).toMatchObject({
    status: 'warn',
    next: expect.stringContaining('df -h'),
  });
  expect(await look('relay-disk', { env, host: space(1e6) })).toMatchObject({ status: 'error' });
  expect(await look('relay-disk', { env, host: { machine: { ...machine, isReadOnly: async () => true } } })).toEqual({
    ...{ id: 'relay-disk', status: 'error' },
    summary: `the file system of ${folder} is read-only`,
    next: expect.stringContaining('svc restart'),
  });
  const locked = { files: { ...files, isWritable: async () => false } };
  expect(await look('relay-disk', { env, host: locked })).toMatchObject({
    status: 'error',
    next: expect.stringContaining('ls -ld'),
  });
  await writeFile(env.RELAY_STATE_FILE, '');
  const readOnly = { files: { ...files, isWritable: async (path: string) => path === folder } };
  expect(await look('relay-disk', { env, host: readOnly })).toMatchObject({
    status: 'error',
    summary: `${env.RELAY_STATE_FILE} is not writable`,
  });
  expect(await files.isWritable(env.RELAY_STATE_FILE)).toBe(true);
  expect(await files.isWritable(join(folder, 'missing'))).toBe(false);
  const inFile = { RELAY_STATE_FILE: join(env.RELAY_STATE_FILE, 'state.db') };
  expect(await look('relay-disk', { env: inFile })).toMatchObject({
    status: 'error',
    summary: `${env.RELAY_STATE_FILE} is not a directory`,
  });
  expect(await look('relay-disk', { env: { RELAY_STATE_FILE: '' } })).toMatchObject({ status: 'ok' });
  // A folder that does not exist yet is on the file system of its parents.
  expect((await machine.space(join(folder, 'a/b'))).free).toBeGreaterThan(0);
});

it('a read-only file system is known by its mount, own or of the disk, also after an error of it', async () => {
  const mounts = [
    '20 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw,discard',
    '21 20 0:5 / /home rw,relatime - ext4 /dev/b rw,errors=remount-ro,emergency_ro',
    '22 20 0:6 / /media/my\\040disk ro,nosuid master:2 - ext4 /dev/c rw',
    '23 20 0:7 / /old rw - ext4 /dev/d ro',
    '24 23 0:8 / /old rw - tmpfs tmpfs rw,size=8k',
  ].join('\n');
  const readOnly = ['/home', '/home/ada/.svc', '/media/my disk/x'];
  const writable = ['/', '/homes', '/media', '/old/x', '/root/.svc/svc-relay'];
  expect(readOnly.map((path) => isReadOnlyIn(mounts, path))).toEqual([true, true, true]);
  expect(writable.map((path) => isReadOnlyIn(mounts, path))).toEqual([false, false, false, false, false]);
  const { machine } = createTestHost({ agentHome: '/' });
  expect(await machine.isReadOnly(join(await temporaryDirectory(), 'a/b'))).toBe(false);
  expect(await machine.isReadOnly('/proc/self/nothing')).toBe(false);
});

it('relay-tmux: installed, missing, or off', async () => {
  const children = (path: string | null) => ({
    children: { ...createTestHost({ agentHome: '/' }).children, find: async () => path },
  });
  expect(await look('relay-tmux', { host: children('/bin/tmux') })).toMatchObject({ status: 'ok' });
  expect(await look('relay-tmux', { host: children(null) })).toMatchObject({
    status: 'warn',
    next: expect.stringContaining('tmux'),
  });
  const off = { host: children(null), env: { RELAY_TERMINAL_TMUX: '0' } };
  expect(await look('relay-tmux', off)).toMatchObject({ status: 'ok', summary: expect.stringContaining('off by') });
});

it.each([
  ['20.19.0', 'ok'],
  ['22.1.0', 'ok'],
  ['20.18.3', 'error'],
  ['18.20.0', 'error'],
])('relay-node: %s is %s', (version, status) => expect(nodeCheck(version)).toMatchObject({ status }));

it.each([
  [{}, 'ok', /runs/],
  [{ linger: false }, 'warn', /sign out/],
  [{ current: false }, 'warn', /another program/],
  [{ active: 'inactive' }, 'warn', /inactive/],
  [{ active: 'failed' }, 'error', /failed/],
  [{ active: null, systemd: 'unreachable' }, 'warn', /^not known/],
  [{ installed: false, systemd: 'absent' }, 'ok', /no systemd/],
  [{ installed: false }, 'ok', /svc relay service install/],
  [{ systemd: 'unknown', installed: false }, 'warn', /^not known/],
])('relay-service: %j is %s', (service, status, summary) => {
  expect(serviceCheck(lifecycle(service))).toMatchObject({ status, summary: expect.stringMatching(summary) });
});

it('every row is not known without a valid configuration, except those that need none', async () => {
  for (const id of ['relay-tls', 'relay-address', 'relay-disk']) {
    expect([id, await look(id, { config: undefined })]).toMatchObject([id, { status: 'warn', isUnknown: true }]);
  }
});

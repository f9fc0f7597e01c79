import { readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { terminalQr } from '../../cli/pair/qr.ts';
import { parseEnvFile, setInEnvFile } from '../../lib/kit/env-file.ts';
import { agentHome, fakeRelay, run } from '../support/cli.ts';

const REPORT = {
  schema_version: 1,
  state: 'ready_to_configure',
  url: 'https://192.0.2.7:9443',
  current_url: null,
  host: '192.0.2.7',
  port: 9443,
  checks: [
    { id: 'address', label: 'Address', status: 'ok', detail: 'Fine.' },
    { id: 'dashboard', label: 'Dashboard', status: 'warning', detail: 'Odd \u001b[31m.' },
  ],
  ready_to_enable: true,
  requires_repair: false,
  pair_command: null,
};
const BLOCKED = { ...REPORT, state: 'needs_attention', ready_to_enable: false };

async function relayWith(report: object, envFile?: string) {
  const relay = await fakeRelay(({ path }) =>
    path.startsWith('/secure-link/preflight') ? { body: report } : { status: 404 },
  );
  const home = agentHome(envFile);
  return { relay, home, setting: { env: { SVC_HOME: home, RELAY_PORT: String(relay.port) } } };
}

const envOf = async (home: string) => parseEnvFile(await readFile(join(home, '.env'), 'utf8'));

describe('svc relay secure-link (contract 08 §1)', () => {
  test('prints the report of the running relay', async () => {
    const { relay, setting } = await relayWith(REPORT);
    const { code, stdout } = await run(['relay', 'secure-link', '--host', '192.0.2.7', '--port', '9443'], setting);
    expect(code).toBe(0);
    expect(relay.seen.at(-1)?.path).toBe('/secure-link/preflight?host=192.0.2.7&port=9443');
    expect(stdout).toContain('[OK] Address: Fine.');
    expect(stdout).toContain('svc relay secure-link enable --host 192.0.2.7 --port 9443');
    expect(stdout).not.toContain('\u001b');
    const json = await run(['relay', 'secure-link', 'status', '--json'], setting);
    expect(JSON.parse(json.stdout)).toEqual(REPORT);
    expect(relay.seen.at(-1)?.path).toBe('/secure-link/preflight');
  });

  test('says how to start a relay that does not run', async () => {
    const { code, stderr } = await run(['relay', 'secure-link']);
    expect([code, stderr]).toEqual([1, expect.stringContaining('svc relay start')]);
  });

  test('enable and disable change their variables in .env, and nothing else', async () => {
    const given = '# mine\nAPI_SERVER_KEY="a b"\nexport RELAY_SECURE_LINK_ENABLED=0 # off\n';
    const { home, setting } = await relayWith(REPORT, given);
    const enabled = await run(['relay', 'secure-link', 'enable', '--host', '192.0.2.7'], setting);
    expect(enabled).toMatchObject({ code: 0, stdout: expect.stringContaining('Next: ') });
    expect(await readFile(join(home, '.env'), 'utf8')).toBe(
      '# mine\nAPI_SERVER_KEY="a b"\nRELAY_SECURE_LINK_ENABLED=1\nRELAY_SECURE_LINK_HOST=192.0.2.7\n',
    );
    expect((await run(['relay', 'secure-link', 'disable', '--json'], setting)).code).toBe(0);
    expect((await envOf(home)).RELAY_SECURE_LINK_ENABLED).toBe('0');
  });

  test('commands at the same time lose no change of each other', async () => {
    const { home, setting } = await relayWith(REPORT, 'API_SERVER_KEY=key\n');
    const secureLink = (...words: string[]) => run(['relay', 'secure-link', ...words], setting);
    const ended = await Promise.all([
      secureLink('enable', '--host', '192.0.2.7'),
      secureLink('enable', '--port', '9444'),
      secureLink('enable'),
    ]);
    expect(ended.map(({ code }) => code)).toEqual([0, 0, 0]);
    expect(await envOf(home)).toEqual({
      API_SERVER_KEY: 'key',
      RELAY_SECURE_LINK_ENABLED: '1',
      RELAY_SECURE_LINK_HOST: '192.0.2.7',
      RELAY_SECURE_LINK_PORT: '9444',
    });
  });

  test('enable refuses while a check is blocked, except by force', async () => {
    const { home, setting } = await relayWith(BLOCKED);
    const refused = await run(['relay', 'secure-link', 'enable'], setting);
    expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining('--force') });
    await expect(stat(join(home, '.env'))).rejects.toThrow();
    expect((await run(['relay', 'secure-link', 'enable', '--force'], setting)).code).toBe(0);
    expect((await stat(join(home, '.env'))).mode & 0o777).toBe(0o600);
  });

  test('rotate makes a new identity, never in place of the operator’s own', async () => {
    const { home, setting } = await relayWith(REPORT);
    expect((await run(['relay', 'secure-link', 'rotate'], setting)).code).toBe(2);
    const rotate = async () =>
      JSON.parse((await run(['relay', 'secure-link', 'rotate', '--yes', '--json'], setting)).stdout);
    const [first, second] = [await rotate(), await rotate()];
    expect(first.pin_sha256).toMatch(/^sha256\/.{44}$/);
    expect(second.pin_sha256).not.toBe(first.pin_sha256);
    expect((await stat(join(home, 'relay-secure-link/key.pem'))).mode & 0o777).toBe(0o600);
    await writeFile(join(home, '.env'), 'RELAY_SECURE_LINK_CERT=/c.pem\nRELAY_SECURE_LINK_KEY=/k.pem\n');
    expect((await run(['relay', 'secure-link', 'rotate', '--yes'], setting)).code).toBe(1);
  });

  test.each([
    ['the name that its flags gave', { host: 'relay.example' }, '0.0.0.0', 'relay.example'],
    ['an address of this machine', { host: '127.0.0.1' }, '0.0.0.0', '127.0.0.1'],
    ['what is configured since', { host: 'relay.example' }, '192.0.2.9', '192.0.2.9'],
  ])('rotate keeps the host of the running relay: %s', async (_, report, configured, host) => {
    const { setting } = await relayWith({ ...REPORT, ...report });
    const env = { ...setting.env, RELAY_SECURE_LINK_HOST: configured };
    const { stdout } = await run(['relay', 'secure-link', 'rotate', '--yes', '--json'], { env });
    expect(JSON.parse(stdout).host).toBe(host);
  });

  test('rotate takes no address that this machine no longer has', async () => {
    const { setting } = await relayWith({ ...REPORT, host: '192.0.2.7' });
    const { stdout } = await run(['relay', 'secure-link', 'rotate', '--yes', '--json'], setting);
    expect(JSON.parse(stdout).host).not.toBe('192.0.2.7');
  });

  test.each([
    ['status', '--yes'],
    ['rotate', '--force'],
    ['disable', '--port', '1'],
    ['remove'],
    ['status', '--port', '0'],
  ])('usage: %s %s', async (...words) => {
    expect((await run(['relay', 'secure-link', ...words])).code).toBe(2);
  });
});

test('svc pair makes no code without the relay, also while Reach is enabled (contract 08 §6.2, 11 §1)', async () => {
  const env = { SVC_HOME: agentHome(), RELAY_PORT: '1', RELAY_EXPERIMENTAL_REACH_ENABLED: '1' };
  for (const asked of [env, { ...env, RELAY_SECURE_LINK_BROKER_URL: 'wss://reach.example' }]) {
    expect(await run(['pair'], { env: asked })).toMatchObject({
      code: 1,
      stdout: '',
      stderr: expect.stringContaining('no relay answers'),
    });
  }
});

test('setInEnvFile replaces the assignment that counts', () => {
  expect(setInEnvFile('', { A: '1' })).toBe('A=1\n');
  expect(setInEnvFile('A=0\nA=2\nB=x', { A: '1' })).toBe('A=0\nA=1\nB=x\n');
  // A row within a quoted value is no assignment.
  expect(parseEnvFile(setInEnvFile('B="\nA=0\n"\n', { A: '1' })).A).toBe('1');
});

test('a terminal draws codes up to version 25, and a PNG holds the rest', () => {
  expect(terminalQr('x'.repeat(1273), { colour: false })?.[0]).toHaveLength(119);
  expect(terminalQr('x'.repeat(1274), { colour: false })).toBeNull();
});

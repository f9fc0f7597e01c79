import { chmod, mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { unitText } from '../../lib/operator/service/unit.ts';
import { run } from '../support/cli.ts';
import { temporaryDirectory } from '../support/temp.ts';

/** Behaviour of the fake `systemctl`: `no-bus` cannot reach a manager, `refuses` fails at one verb. */
interface Machine {
  systemd?: 'ready' | 'no-bus' | 'absent';
  refuses?: string;
  active?: string;
  unbuilt?: boolean;
  portTaken?: boolean;
}

/** A machine whose `systemctl` is a small program that records its arguments, one per line. */
async function machine({
  systemd = 'ready',
  refuses = '',
  active = 'inactive',
  unbuilt = false,
  portTaken,
}: Machine = {}) {
  const directory = await temporaryDirectory();
  const home = join(directory, 'my home 100%');
  const bin = join(directory, 'bin');
  const log = join(directory, 'asked');
  await mkdir(home, { recursive: true });
  await mkdir(bin);
  await writeFile(log, '');
  if (systemd !== 'absent') {
    const script = `#!/bin/sh
for word in "$@"; do printf '%s ' "$word" >> '${log}'; done; echo >> '${log}'
[ '${systemd}' = no-bus ] && { echo 'Failed to connect to bus' >&2; exit 1; }
[ "$2" = '${refuses}' ] && exit 1
case "$*" in *ActiveState*) printf 'UnitFileState=enabled\\nActiveState=${active}\\nExecMainStatus=1\\nExecMainExitTimestampMonotonic=5\\n';; esac
exit 0
`;
    await writeFile(join(bin, 'systemctl'), script);
    await chmod(join(bin, 'systemctl'), 0o755);
  }
  const program = join(directory, 'the relay', 'dist/cli/svc-relay.js');
  await mkdir(dirname(program), { recursive: true });
  if (!unbuilt) await writeFile(program, '');
  const env = { HOME: home, SVC_HOME: join(home, '.svc'), PATH: bin, XDG_CONFIG_HOME: '' };
  const unit = join(home, '.config/systemd/user/svc-relay.service');
  return {
    unit,
    env,
    service: (...words: string[]) =>
      run(['relay', 'service', ...words], {
        env,
        portTaken,
        ownPackage: { version: '1.0.0', directory: join(directory, 'the relay') },
      }),
    text: () => readFile(unit, 'utf8').catch(() => null),
    asked: async () => {
      const lines = (await readFile(log, 'utf8')).trimEnd().split('\n');
      await writeFile(log, '');
      return lines.map((text) => text.trimEnd()).filter((text) => text !== '' && !text.startsWith('--user show'));
    },
    expected: unitText({ node: process.execPath, script: program, agentHome: env.SVC_HOME, path: bin }),
  };
}

describe('service install', () => {
  test('writes the unit, enables and starts it, without root and without a shell string', async () => {
    const on = await machine();
    const { code, stdout, stderr } = await on.service('install');
    expect([code, stderr]).toEqual([0, '']);
    expect(stdout).toMatch(/^The relay is a service: enabled and running\n/);
    expect(stdout).toContain('journalctl --user -u svc-relay.service -f');
    expect(await on.text()).toBe(on.expected);
    expect((await stat(on.unit)).mode & 0o777).toBe(0o644);
    expect(await on.asked()).toEqual([
      '--user daemon-reload',
      '--user enable svc-relay.service',
      '--user restart svc-relay.service',
    ]);
  });

  test('the second time writes nothing and leaves the running service alone', async () => {
    const on = await machine({ active: 'active' });
    await on.service('install');
    await on.asked();
    const { stdout } = await on.service('install', '--json');
    expect(JSON.parse(stdout)).toEqual({
      ok: true,
      action: 'install',
      changed: false,
      dry_run: false,
      unit_path: on.unit,
      enabled: true,
      started: true,
      linger: expect.toSatisfy((value) => value === null || typeof value === 'boolean'),
    });
    expect(await on.asked()).toEqual(['--user daemon-reload', '--user enable svc-relay.service']);
  });

  test('resets a failed service first; --no-start only enables; --dry-run does nothing', async () => {
    const failed = await machine({ active: 'failed' });
    await failed.service('install');
    expect((await failed.asked()).slice(2)).toEqual([
      '--user reset-failed svc-relay.service',
      '--user restart svc-relay.service',
    ]);
    const later = await machine();
    expect((await later.service('install', '--no-start')).stdout).toContain('starts at the next sign-in');
    expect(await later.asked()).toHaveLength(2);
    const dry = await machine();
    expect((await dry.service('install', '--dry-run')).stdout).toContain(`Would write ${dry.unit}`);
    expect([await dry.text(), await dry.asked()]).toEqual([null, []]);
  });

  test('installs when its own relay holds the port', async () => {
    const on = await machine({ portTaken: true, active: 'active' });
    expect((await on.service('install')).code).toBe(0);
    const waiting = await machine({ portTaken: true });
    expect((await waiting.service('install', '--no-start')).code).toBe(0);
  });

  test('names variables that are set in this shell only', async () => {
    const on = await machine();
    const env = { ...on.env, RELAY_PORT: '9000' };
    Object.assign(on.env, env);
    const { stdout } = await on.service('install');
    expect(stdout).toContain('Set in this shell only, and not for the service: RELAY_PORT');
    expect(stdout).toContain(`put them into ${on.env.SVC_HOME}/.env`);
  });

  test('a foreign unit: exit 1 without --force', async () => {
    const on = await machine();
    await mkdir(dirname(on.unit), { recursive: true });
    await writeFile(on.unit, '[Unit]\n');
    const refused = await on.service('install');
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toContain('--force');
    expect([await on.text(), await on.asked()]).toEqual(['[Unit]\n', []]);
    expect((await on.service('remove', '--json')).stdout).toContain('"ok":false');
    expect((await on.service('install', '--force')).code).toBe(0);
    expect(await on.text()).toBe(on.expected);
  });

  test.each([
    [{ systemd: 'absent' }, /this machine has no systemd[\s\S]*launchd[\s\S]*svc-relay\.js' start/],
    [{ systemd: 'no-bus' }, /does not answer[\s\S]*sign in as this user[\s\S]*svc relay start/],
    [{ refuses: 'enable' }, /systemctl --user enable svc-relay\.service failed[\s\S]*journalctl --user/],
    [{ unbuilt: true }, /npm run build/],
    [{ portTaken: true }, /something listens on port 8767 already[\s\S]*Ctrl-C[\s\S]*--no-start/],
  ] as const)('where it cannot be: %j', async (given, said) => {
    const on = await machine(given);
    const { code, stdout, stderr } = await on.service('install');
    expect([code, stdout]).toEqual([1, '']);
    expect(stderr).toMatch(said);
    if (!('refuses' in given)) expect(await on.text()).toBeNull();
    const json = await on.service('install', '--json');
    expect([json.code, json.stderr]).toEqual([1, '']);
    expect(JSON.parse(json.stdout)).toEqual({ ok: false, error: expect.any(String), next: expect.any(String) });
  });
});

describe('service status and remove', () => {
  test('status, from nothing to running', async () => {
    const on = await machine({ active: 'active' });
    const before = await on.service();
    expect(before).toMatchObject({ code: 0, stderr: '' });
    expect(before.stdout).toMatch(/Unit +not installed[\s\S]*Next: svc relay service install/);
    await on.service('install');
    expect(JSON.parse((await on.service('status', '--json')).stdout)).toMatchObject({
      schema_version: 1,
      service: 'svc-relay.service',
      systemd: 'ready',
      unit_path: on.unit,
      installed: true,
      managed: true,
      current: true,
      enabled: true,
      active: 'active',
      exit_status: 1,
    });
    await writeFile(on.unit, `${await on.text()}# mine\n`);
    expect((await on.service('status')).stdout).toMatch(/not as this installation writes it[\s\S]*service install/);
  });

  test('a failed service: its exit code and where to look', async () => {
    const on = await machine({ active: 'failed' });
    await on.service('install');
    const { stdout } = await on.service('status');
    expect(stdout).toMatch(/failed \(ended with exit code 1\)[\s\S]*journalctl --user -u svc-relay\.service/);
  });

  test('remove stops it, and does nothing the second time', async () => {
    const on = await machine();
    await on.service('install');
    await on.asked();
    expect(await on.service('remove', '--dry-run')).toMatchObject({ code: 0 });
    expect(await on.text()).not.toBeNull();
    expect((await on.service('remove')).stdout).toBe(`Removed ${on.unit}\n`);
    expect(await on.asked()).toEqual(['--user disable --now svc-relay.service', '--user daemon-reload']);
    expect(await on.text()).toBeNull();
    expect(JSON.parse((await on.service('remove', '--json')).stdout)).toMatchObject({ ok: true, changed: false });
  });

  test('remove without a manager still removes the file', async () => {
    const on = await machine({ systemd: 'no-bus' });
    await mkdir(dirname(on.unit), { recursive: true });
    await writeFile(on.unit, on.expected);
    expect((await on.service('remove')).code).toBe(0);
    expect(await on.text()).toBeNull();
  });

  test.each([
    [['start'], "unknown action 'start': must be status, install or remove"],
    [['status', '--force'], '--force is of use'],
    [['remove', '--no-start'], '--no-start is of use'],
    [['install', 'x'], 'unexpected argument'],
  ])('wrongly asked: %j', async (words, message) => {
    const { code, stderr } = await (await machine()).service(...words);
    expect(code).toBe(2);
    expect(stderr).toContain(message);
  });
});

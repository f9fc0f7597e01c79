import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { isKnownFile } from '../../cli/backup/inventory.ts';
import { createStores } from '../../storage/index.ts';
import { sqlBackend } from '../../storage/sql-backend.ts';
import { openStateFile, readSnapshot } from '../../storage/sqlite.ts';
import { backedUp, emptyHome, endOf, fail, fileOf, HOME, plain, put, rowsOf, stateOf } from '../support/backups.ts';
import { agentHome, run } from '../support/cli.ts';

it('is encrypted, mode 0600, and says what is in it, what is not, and what to do next', async () => {
  const { file, made, base, svc, pw } = await backedUp();
  expect(made.stdout).toMatch(/^The relay with 1 device is in .*relay\.svc \(1 KB\)\.\n/);
  expect(made.stdout).toMatch(/Not in it +.*recordings/);
  expect(made.stdout).toMatch(/Next, on the other machine: svc restore relay\.svc\n$/);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  expect((await readFile(file)).includes('RELAY_HOST')).toBe(false);
  expect((await readdir(base)).filter((name) => name.endsWith('.tmp'))).toEqual([]);
  const again = await svc('backup', file, ...pw, '--json');
  expect([again.code, JSON.parse(again.stdout)]).toEqual([
    1,
    { ok: false, error: `${file} exists already`, next: expect.stringContaining('--force') },
  ]);
  // Under the name of the other program too.
  expect((await svc('relay', 'backup', file, ...pw, '--force')).code).toBe(0);
});

it('refuses --plain without --yes, a short passphrase, and a home without a relay', async () => {
  const { base, svc, pw, env } = await backedUp();
  const other = join(base, 'other.svc');
  expect(await svc('backup', other, '--plain')).toMatchObject({ code: 2, stderr: expect.stringContaining('--yes') });
  await put(join(base, 'short'), 'short\n');
  expect((await svc('backup', other, '--passphrase-file', join(base, 'short'))).stderr).toMatch(/too short/);
  expect((await svc('backup', other)).code).toBe(2);
  const none = await run(['backup', other, ...pw], { env: { ...env, SVC_HOME: join(base, 'none') } });
  expect([none.code, none.stderr]).toEqual([
    1,
    expect.stringMatching(/no relay in .*none yet\nStart one with: svc up/),
  ]);
  expect(existsSync(other)).toBe(false);
});

it('a hostile backup is refused whole, and changes nothing', async () => {
  const to = emptyHome();
  const path = join(agentHome(), 'hostile.svc');
  const names = [
    '../x',
    'agent/../../x',
    '/etc/passwd',
    'agent/config.yaml',
    'agent/startup.d/x.mjs',
    'agent/.ssh/id.key',
  ];
  names.push(
    'relay/../x.pem',
    'agent//x.pem',
    'agent/..pem',
    'other/.env',
    '',
    'agent/a/../b.pem',
    'agent/./a.pem',
    '__proto__',
  );
  const cases: unknown[][] = [
    ...names.map((name) => [HOME, fileOf(name, 'x'), endOf(1, 0)]),
    [HOME, { file: 1, data: '' }, endOf(1, 0)],
    [HOME, { file: { toString: 1 }, data: '' }, endOf(1, 0)],
    [HOME, { file: 'agent/.env', data: 'no base64!' }, endOf(1, 0)],
    [HOME, fileOf('agent/.env', 'x'.repeat(1024 * 1024 + 1)), endOf(1, 0)],
    [HOME, fileOf('agent/.env', 'A=1'), fileOf('agent/.env', 'A=2'), endOf(2, 0)],
    [HOME, fileOf('agent/.env', 'RELAY_PORT=no'), endOf(1, 0)],
    [HOME, { rows: [['sessions', 'a']] }, endOf(0, 1)],
    [HOME, { rows: [['sessions', 'a', '1']] }, endOf(0, 2)],
    [HOME, { rows: 1 }, endOf(0, 0)],
    [{ home: { ...HOME.home, has_state: false } }, { rows: [['sessions', 'a', '1']] }, endOf(0, 1)],
    [HOME],
    [HOME, HOME, endOf(0, 0)],
    [HOME, endOf(0, 0), fileOf('agent/.env', 'A=1')],
    [fileOf('agent/.env', 'A=1'), HOME, endOf(1, 0)],
    [HOME, Array.from({ length: 65 }, (_, at) => at), endOf(0, 0)].flat(),
    [HOME, ...Array.from({ length: 65 }, (_, at) => fileOf(`agent/c${at}.pem`, 'x')), endOf(65, 0)],
    ['x', 1, null],
    [],
  ];
  for (const items of cases) {
    await writeFile(path, plain(items));
    const result = await to.svc('restore', path);
    const shown = JSON.stringify(items).slice(0, 200);
    expect([shown, result.code, result.stderr]).toEqual([shown, 1, expect.stringContaining('nothing was changed')]);
    expect([shown, await readdir(to.base)]).toEqual([shown, []]);
  }
});

it('a backup of an older version restores, without stores that are gone', async () => {
  const to = emptyHome();
  const path = join(agentHome(), 'old.svc');
  const rows = [
    ['sessions', 'a', '{}'],
    ['long-gone', 'b', '{}'],
  ];
  await writeFile(path, plain([HOME, { rows }, endOf(0, 2)], { schema: 0 }));
  const result = await to.svc('restore', path, '--json');
  expect(JSON.parse(result.stdout)).toMatchObject({
    ok: true,
    version: '0.9.0',
    devices: 1,
    ignored_stores: ['long-gone'],
  });
  const at = expect.stringMatching(/^\{"at":\d{10}\}$/);
  expect([...readSnapshot(stateOf(to.home))]).toEqual([
    ['restored', 'restored', at],
    ['sessions', 'a', '{}'],
  ]);
});

it('paths of the other machine become paths of this one, and none leads out of it', async () => {
  const to = emptyHome();
  const path = join(agentHome(), 'moved.svc');
  const restored = async (env: string, ...options: string[]) => {
    await writeFile(path, plain([HOME, fileOf('agent/.env', env), { rows: [['sessions', 'a', '{}']] }, endOf(1, 1)]));
    const result = await to.svc('restore', path, '--json', ...options);
    expect([result.code, result.stderr]).toEqual([0, '']);
    return JSON.parse(result.stdout).settings_changed;
  };
  const text = () => readFile(join(to.home, '.env'), 'utf8');
  const env = 'A=1\nRELAY_STATE_FILE=/home/old/.svc/data/s.db\nRELAY_SSL_KEY=/home/old/.svc/tls/key.pem\n';
  expect(await restored(env)).toEqual({
    RELAY_STATE_FILE: `${to.home}/data/s.db`,
    RELAY_SSL_KEY: `${to.home}/tls/key.pem`,
  });
  expect(await text()).toBe(`A=1\nRELAY_STATE_FILE=${to.home}/data/s.db\nRELAY_SSL_KEY=${to.home}/tls/key.pem\n`);
  expect(rowsOf(`${to.home}/data/s.db`)).toHaveLength(1);
  const away = 'RELAY_STATE_FILE=/home/old/.svc/../../../tmp/x/s.db\nSVC_RELAY_HOME=/root/x\n';
  expect(await restored(away, '--replace', '--yes')).toEqual({
    RELAY_STATE_FILE: stateOf(to.home),
    SVC_RELAY_HOME: join(to.base, '.svc-relay'),
  });
  expect([existsSync('/tmp/x/s.db'), existsSync(`${to.home}/data/s.db`), existsSync(stateOf(to.home))]).toEqual([
    false,
    false,
    true,
  ]);
});

it('a home with a relay needs --replace, and --yes or an answer', async () => {
  const { file, pw, home, svc } = await backedUp();
  const before = await readFile(join(home, '.env'), 'utf8');
  await writeFile(join(home, '.env'), 'RELAY_HOST=127.0.0.2\n');
  const refused = await svc('restore', file, ...pw);
  expect([refused.code, refused.stderr]).toEqual([
    1,
    expect.stringMatching(/has a relay already \(\.env, svc-relay\/state\.db\); nothing was changed\n.*--replace/),
  ]);
  expect(await svc('restore', file, ...pw, '--replace')).toMatchObject({
    code: 2,
    stderr: expect.stringMatching(/--yes/),
  });
  expect(await readFile(join(home, '.env'), 'utf8')).toBe('RELAY_HOST=127.0.0.2\n');
  expect(await readdir(join(home, 'svc-relay'))).toEqual(['state.db']);
  const done = await svc('restore', file, ...pw, '--replace', '--yes');
  expect([done.code, done.stdout]).toEqual([
    0,
    expect.stringMatching(/Old state +.*replaced-\d{8}-\d{6}\n[\s\S]*Next: start it with svc up\n$/),
  ]);
  expect(await readFile(join(home, '.env'), 'utf8')).toBe(before);
  const [aside = ''] = (await readdir(join(home, 'svc-relay'))).filter((name) => name.startsWith('replaced-'));
  expect(await readFile(join(home, 'svc-relay', aside, 'agent/.env'), 'utf8')).toBe('RELAY_HOST=127.0.0.2\n');
});

it('refuses while a relay holds the state, and says how to stop it', async () => {
  const { file, pw, home, svc } = await backedUp();
  const stores = createStores('node', sqlBackend(openStateFile(stateOf(home), fail)));
  const result = await svc('restore', file, ...pw, '--replace', '--yes');
  stores.close();
  expect([result.code, result.stderr]).toEqual([
    1,
    expect.stringMatching(/a relay is running on .*state\.db; nothing.*\nStop it with: svc down/),
  ]);
});

it('one restore at a time', async () => {
  const { file, pw, base } = await backedUp();
  const home = join(base, 'other');
  await mkdir(join(home, 'svc-relay'), { recursive: true });
  const lock = openStateFile(join(home, 'svc-relay/restoring.lock'), fail);
  const other = (...words: string[]) => run(words, { env: { HOME: base, SVC_HOME: home } });
  const refused = await other('restore', file, ...pw);
  expect([refused.code, refused.stderr]).toEqual([
    1,
    expect.stringMatching(/another restore is under way; nothing was changed\n/),
  ]);
  lock.close?.();
  expect((await other('restore', file, ...pw)).code).toBe(0);
  expect(await readdir(join(home, 'svc-relay'))).toEqual(['state.db']);
});

it('knows its own files only', () => {
  expect(['agent/.env', 'relay/config.yaml', 'agent/tls/relay.pem'].map(isKnownFile)).toEqual([true, true, true]);
  expect(['agent/config.yaml', 'relay/.env', 'agent/tls/../x.pem', 'agent/.x.pem'].map(isKnownFile)).toEqual([
    false,
    false,
    false,
    false,
  ]);
});

it('is for the relay of this machine: a relay elsewhere is refused, and one of svc use is named as left out', async () => {
  const { base, svc, pw, env } = await backedUp();
  const other = join(base, 'other.svc');
  for (const command of ['backup', 'restore']) {
    const refused = await svc(command, other, '--relay', 'https://relay.example', '--json');
    expect([refused.code, JSON.parse(refused.stdout)]).toEqual([
      1,
      {
        ok: false,
        error: expect.stringContaining('the secrets of https://relay.example do not leave the machine'),
        next: expect.stringContaining(`ssh -t relay.example svc ${command} relay.svc`),
      },
    ]);
  }
  expect((await svc('backup', other, '--relay', 'ftp://relay.example')).code).toBe(2);
  expect(existsSync(other)).toBe(false);
  const broken = await run(['backup', other, ...pw, '--json'], { env: { ...env, SVC_RELAY: 'no URL' } });
  expect([broken.code, JSON.parse(broken.stdout).left_out]).toEqual([0, []]);
  const words = ['backup', other, ...pw, '--json', '--force'];
  const made = await run(words, { env: { ...env, SVC_RELAY: 'https://relay.example' } });
  expect(JSON.parse(made.stdout).left_out).toContain('the relay https://relay.example, although SVC_RELAY names it');
});

import { chmod, lstat, mkdir, readdir, readFile, stat, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { agentHome, run } from '../support/cli.ts';

const CONFIGS = {
  'config.yaml': '# root\nplugins:\n  disabled: [svc-relay]\n',
  'profiles/on/config.yaml': 'plugins:   {enabled: [svc-relay]}\n',
  'profiles/Work/config.yaml': 'model: x # mine\n',
};

async function home(files: Record<string, string> = CONFIGS) {
  const path = agentHome();
  for (const [name, text] of Object.entries(files)) {
    await mkdir(dirname(join(path, name)), { recursive: true });
    await writeFile(join(path, name), text);
  }
  return {
    path,
    read: (name: string) => readFile(join(path, name), 'utf8').catch(() => null),
    profiles: async (...words: string[]) => {
      const result = await run(['relay', 'profiles', ...words], { env: { SVC_HOME: path, RELAY_PORT: 'bad' } });
      return { ...result, json: words.includes('--json') ? JSON.parse(result.stdout) : undefined };
    },
  };
}

describe('profiles list (07 §5.5)', () => {
  test('the root first, then by name, each with its state', async () => {
    const { path, profiles } = await home();
    const row = (profile: string, name: string, state: string) => ({ profile, path: join(path, name), state });
    for (const words of [['--json'], ['list', '--json']]) {
      const { code, json } = await profiles(...words);
      expect(code).toBe(0);
      expect(json).toEqual({
        profiles: [
          row('(default)', 'config.yaml', 'disabled'),
          row('Work', 'profiles/Work/config.yaml', 'absent'),
          row('on', 'profiles/on/config.yaml', 'enabled'),
        ],
      });
    }
    const { stdout } = await profiles();
    const [head, ...rows] = stdout.split('\n');
    const column = head?.indexOf('STATE') ?? -1;
    for (const [index, state] of ['disabled', 'absent', 'enabled'].entries()) {
      expect(rows[index]?.indexOf(state)).toBe(column);
    }
    expect(stdout).toContain('Next: svc relay profiles enable');
  });

  test('no configs: a message, exit 0', async () => {
    const { profiles } = await home({});
    for (const words of [[], ['enable']]) {
      const { code, stdout } = await profiles(...words);
      expect(code).toBe(0);
      expect(stdout).toContain('No agent configuration');
    }
    expect((await profiles('enable', '--json')).json).toEqual({ action: 'enable', dry_run: false, results: [] });
  });
});

describe('profiles enable (07 §5.5)', () => {
  test('enables all: backs changed configs up, keeps their mode, and leaves enabled ones alone', async () => {
    const { path, read, profiles } = await home();
    await chmod(join(path, 'config.yaml'), 0o640);
    const dry = await profiles('enable', '--dry-run', '--json');
    const { code, json } = await profiles('enable', '--json');
    const results = [
      { profile: '(default)', path: join(path, 'config.yaml'), was: 'disabled', changed: true },
      { profile: 'Work', path: join(path, 'profiles/Work/config.yaml'), was: 'absent', changed: true },
      { profile: 'on', path: join(path, 'profiles/on/config.yaml'), was: 'enabled', changed: false },
    ];
    expect(dry.json).toEqual({ action: 'enable', dry_run: true, results });
    expect([code, json]).toEqual([0, { action: 'enable', dry_run: false, results }]);
    expect(await read('config.yaml')).toBe('# root\nplugins:\n  enabled:\n    - svc-relay\n  disabled: []\n');
    expect(await read('config.yaml.bak')).toBe(CONFIGS['config.yaml']);
    expect(await read('profiles/Work/config.yaml')).toContain('model: x # mine\n');
    expect(await readdir(join(path, 'profiles/on'))).toEqual(['config.yaml']);
    for (const name of ['config.yaml', 'config.yaml.bak'])
      expect((await stat(join(path, name))).mode & 0o777).toBe(0o640);
    expect((await profiles('--json')).json.profiles.every(({ state }: { state: string }) => state === 'enabled')).toBe(
      true,
    );
  });

  test('--dry-run changes nothing', async () => {
    const { path, read, profiles } = await home();
    expect((await profiles('enable', '--dry-run')).stdout).toContain('would be enabled (was disabled)');
    expect(await read('config.yaml')).toBe(CONFIGS['config.yaml']);
    expect((await readdir(path)).sort()).toEqual(['config.yaml', 'profiles']);
  });

  test('by name in any case; an unknown name changes nothing', async () => {
    const { read, profiles } = await home();
    const unknown = await profiles('enable', 'work', 'nobody');
    expect(unknown.code).toBe(1);
    expect(unknown.stderr).toMatch(/^error: no profile is called nobody\nSee what there is with: svc relay profiles\n/);
    expect((await profiles('enable', 'nobody', '--json')).json).toEqual({ ok: false, error: expect.any(String) });
    expect(await read('profiles/Work/config.yaml')).toBe(CONFIGS['profiles/Work/config.yaml']);

    expect((await profiles('enable', 'WORK', '--json')).json.results).toHaveLength(1);
    expect((await profiles('enable', 'Default', '--json')).json.results).toMatchObject([
      { profile: '(default)', changed: true },
    ]);
    expect((await profiles('enable', 'work', '--all', '--json')).json.results).toHaveLength(3);
  });

  test('reports and never rewrites unparseable configs, and edits the others', async () => {
    const bad = 'plugins: [\n  secret: hunter2\n';
    const { path, read, profiles } = await home({ ...CONFIGS, 'profiles/bad/config.yaml': bad });
    await mkdir(join(path, 'profiles/latin'));
    await writeFile(join(path, 'profiles/latin/config.yaml'), Buffer.from('name: caf\xe9\n', 'latin1'));
    const { code, json, stdout } = await profiles('enable', '--json');
    expect(code).toBe(1);
    expect(json.results).toMatchObject([
      { profile: '(default)', changed: true },
      { profile: 'Work', changed: true },
      { profile: 'bad', changed: false, error: expect.stringContaining('not valid YAML') },
      { profile: 'latin', changed: false, error: 'not UTF-8 text' },
      { profile: 'on', changed: false },
    ]);
    expect(stdout).not.toContain('hunter2');
    expect(await read('profiles/bad/config.yaml')).toBe(bad);
    expect(await read('profiles/bad/config.yaml.bak')).toBeNull();
  });

  test('a symlinked config stays a symlink', async () => {
    const { path, profiles } = await home({ 'elsewhere/real.yaml': 'a: 1\n' });
    await symlink(join(path, 'elsewhere/real.yaml'), join(path, 'config.yaml'));
    expect((await profiles('enable')).code).toBe(0);
    expect((await lstat(join(path, 'config.yaml'))).isSymbolicLink()).toBe(true);
    expect(await readFile(join(path, 'elsewhere/real.yaml'), 'utf8')).toContain('svc-relay');
    expect(await readFile(join(path, 'config.yaml.bak'), 'utf8')).toBe('a: 1\n');
  });

  test.each([
    [['disable'], "unknown action 'disable': must be list or enable"],
    [['list', 'work'], "unexpected argument 'work'"],
    [['--all'], '--all is of use with enable only'],
    [['--dry-run'], '--dry-run is of use with enable only'],
  ])('wrongly asked: %j', async (words, message) => {
    const { profiles } = await home();
    const { code, stdout, stderr } = await profiles(...words);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
  });
});

import { mkdir, readdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { run } from '../support/cli.ts';
import { temporaryDirectory } from '../support/temp.ts';

const ENTRY = 'dist/cli/compat/index.js';
const HOOK = 'svc-relay-compat.mjs';

async function setting(entry = 'export const register = (app) => app.addRoute("PUT", "/x", () => {});\n') {
  const directory = await temporaryDirectory();
  const packageDirectory = join(directory, "the 100% 'relay'");
  await mkdir(dirname(join(packageDirectory, ENTRY)), { recursive: true });
  await writeFile(join(packageDirectory, 'package.json'), '{"type":"module"}');
  if (entry !== '') await writeFile(join(packageDirectory, ENTRY), entry);
  const home = join(directory, 'home');
  const hook = join(home, 'startup.d', HOOK);
  return {
    home,
    hook,
    packageDirectory,
    compat: async (...words: string[]) => {
      const result = await run(['relay', 'compat', ...words], {
        env: { SVC_HOME: home },
        ownPackage: { version: '1.0.0', directory: packageDirectory },
      });
      return { ...result, json: words.includes('--json') ? JSON.parse(result.stdout) : undefined };
    },
    put: async (path: string, text: string) => {
      await mkdir(dirname(path), { recursive: true });
      await writeFile(path, text);
    },
  };
}

const file = (path: string, references: boolean, managed: boolean, own: boolean) => ({
  path,
  references_bootstrap: references,
  managed_content: managed,
  plugin_owned_content: own,
});

describe('compat (07 §5.4)', () => {
  test('status is the default action', async () => {
    const { compat, home, packageDirectory } = await setting();
    const { code, json } = await compat('--json');
    expect(code).toBe(0);
    expect(json).toEqual({
      schema_version: 1,
      hook: 'legacy-bootstrap',
      package: { importable: true, path: join(packageDirectory, ENTRY) },
      installed: false,
      hook_files: [],
      hook_dirs: [`${home}/startup.d`],
      default_hook_dir: `${home}/startup.d`,
      standard_path_requires_compat: false,
      recommendation: null,
    });
    expect((await compat('status')).stdout).toContain('not installed');
  });

  test('install writes one file that loads the entry by an absolute URL, and does nothing the second time', async () => {
    const { compat, hook, packageDirectory } = await setting();
    const dry = await compat('install', '--dry-run', '--json');
    const owned = file(hook, true, true, true);
    const own = { importable: true, path: join(packageDirectory, ENTRY) };
    const result = { ok: true, action: 'install', dry_run: false, target: hook, after: owned, package: own };
    expect(dry.json).toEqual({ ...result, dry_run: true, changed: true, before: null });
    await expect(readdir(dirname(hook))).rejects.toThrow('ENOENT');

    expect((await compat('install', '--json')).json).toEqual({ ...result, changed: true, before: null });
    const text = await readFile(hook, 'utf8');
    expect(text.split('\n')[0]).toBe('// managed-by: svc-relay compat v1');
    expect(text).toContain('/the%20100%25%20%27relay%27/'.replaceAll('%27', "'"));
    expect(await readdir(dirname(hook))).toEqual([HOOK]);

    expect((await compat('install', '--json')).json).toEqual({ ...result, changed: false, before: owned });
    expect((await compat('--json')).json).toMatchObject({ installed: true, hook_files: [owned] });

    const added: unknown[] = [];
    const module = await import(pathToFileURL(hook).href);
    await module.register({ addRoute: (...route: unknown[]) => added.push(route.slice(0, 2)) });
    expect(added).toEqual([['PUT', '/x']]);
  });

  test('a removed plugin does not keep the server from starting', async () => {
    const { compat, hook, packageDirectory } = await setting();
    await compat('install');
    await rm(packageDirectory, { recursive: true });
    const said = vi.spyOn(console, 'warn').mockImplementation(() => {});
    onTestFinished(() => said.mockRestore());
    const module = await import(pathToFileURL(hook).href);
    await expect(module.register({})).resolves.toBeUndefined();
    expect(said).toHaveBeenCalledOnce();
    const { json } = await compat('--json');
    expect(json).toMatchObject({ package: { importable: false }, installed: true });
    expect(json.recommendation).toContain('svc relay compat remove');
    expect((await compat('install', '--json')).json).toEqual({ ok: false, error: expect.stringContaining('not load') });
  });

  test('remove --all removes nothing while the profiles cannot be listed', async () => {
    const { compat, home, hook } = await setting();
    await compat('install');
    const profiles = join(home, 'profiles');
    await symlink(profiles, profiles);
    const refused = await compat('remove', '--all');
    expect([refused.code, refused.stdout]).toEqual([1, '']);
    expect(refused.stderr).toMatch(
      /^error: the profiles cannot be listed, and no hook was removed: ELOOP.*\n.*--hook-dir/,
    );
    const error = expect.stringContaining('cannot be listed');
    expect((await compat('remove', '--all', '--json')).json).toEqual({ ok: false, error });
    await expect(readFile(hook, 'utf8')).resolves.toContain('svc-relay compat v1');
    expect((await compat('remove', '--json')).json).toMatchObject({ removed: [hook] });

    // Without profiles, there are none to list.
    await rm(profiles);
    expect((await compat('remove', '--all', '--json')).json).toMatchObject({ ok: true, removed: [] });
  });

  test("somebody else's file: exit 1 and untouched without --force", async () => {
    const { compat, hook, put } = await setting();
    await put(hook, 'export const register = () => {};\n');
    for (const action of ['install', 'remove']) {
      const refused = await compat(action, '--json');
      expect([refused.code, refused.json, refused.stderr]).toEqual([1, { ok: false, error: expect.any(String) }, '']);
      expect((await compat(action)).stderr).toMatch(/^error: .*was not written by[\s\S]*--force/);
    }
    expect(await readFile(hook, 'utf8')).toBe('export const register = () => {};\n');
    const forced = await compat('install', '--force', '--json');
    expect(forced.json).toMatchObject({ changed: true, before: file(hook, false, false, false) });
    await put(hook, 'x');
    expect((await compat('remove', '--force', '--json')).json).toMatchObject({ removed: [hook] });
  });

  test('an older hook is replaced', async () => {
    const { compat, hook, put } = await setting();
    await put(
      hook,
      '// managed-by: svc-relay compat v0\nawait import("file:///old/svc-relay/dist/plugin/compat/index.js");\n',
    );
    const before = file(hook, true, true, false);
    expect((await compat('--json')).json).toMatchObject({ installed: true, hook_files: [before] });
    expect((await compat('status')).stdout).toContain('Next: A hook is of another installation');
    expect((await compat('install', '--json')).json).toMatchObject({ changed: true, before });
  });

  test('remove works on one directory or every known one, all or nothing', async () => {
    const { compat, home, hook, put } = await setting();
    const elsewhere = join(home, 'elsewhere');
    const ofProfile = join(home, 'profiles/work/startup.d', HOOK);
    await compat('install');
    await compat('install', '--hook-dir', elsewhere);
    await compat('install', '--hook-dir', dirname(ofProfile));
    expect((await compat('--json')).json.hook_dirs).toEqual([dirname(hook), dirname(ofProfile)]);

    expect((await compat('remove', '--dry-run', '--json')).json).toMatchObject({ changed: true, removed: [hook] });
    const one = await compat('remove', '--hook-dir', elsewhere, '--json');
    expect(one.json).toEqual({
      ok: true,
      action: 'remove',
      changed: true,
      dry_run: false,
      removed: [join(elsewhere, HOOK)],
      skipped: [],
    });

    const gone = await compat('remove', '--all');
    expect(gone.stdout.trimEnd().split('\n').slice(0, -1)).toEqual([`Removed ${hook}`, `Removed ${ofProfile}`]);
    expect((await compat('remove', '--all')).stdout).toContain(`Not there: ${hook}`);
    expect((await compat('install')).code).toBe(0);

    await put(ofProfile, 'mine');
    expect((await compat('remove', '--all')).code).toBe(1);
    expect((await readFile(hook, 'utf8')).length).toBeGreaterThan(0);
    expect((await compat('remove', '--all', '--force', '--json')).json.removed).toEqual([hook, ofProfile]);
    const none = await compat('remove', '--json');
    expect([none.code, none.json]).toEqual([
      0,
      {
        ok: true,
        action: 'remove',
        changed: false,
        dry_run: false,
        removed: [],
        skipped: [{ path: hook, reason: 'not_found' }],
      },
    ]);
  });

  test('install needs the module', async () => {
    const { compat, hook } = await setting('');
    const { code, stderr } = await compat('install');
    expect(code).toBe(1);
    expect(stderr).toContain('npm run build');
    await expect(readFile(hook)).rejects.toThrow('ENOENT');
    const { compat: other } = await setting('export const nothing = 1;\n');
    expect((await other('--json')).json.package.importable).toBe(false);
  });

  test.each([
    [['enable'], "unknown action 'enable': must be status, install or remove"],
    [['install', '--all'], '--all is of use with remove only'],
    [['--dry-run'], '--dry-run is of use'],
    [['status', '--hook-dir'], '--hook-dir needs a value'],
    [['install', 'x'], "unexpected argument 'x'"],
  ])('usage error: %j', async (words, message) => {
    const { compat } = await setting();
    const { code, stdout, stderr } = await compat(...words);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
  });
});

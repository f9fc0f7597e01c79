import { mkdir, readFile, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { openBackup, sealBackup } from '../../lib/companion/backup.ts';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { agentHome } from '../support/cli.ts';
import { begin, paired, run } from '../support/companion-cli.ts';

const PASSPHRASE = 'correct horse battery';

const pending = cleanups();
let relay: BuiltTarget;
beforeEach(async () => {
  relay = await startBuiltTarget();
  pending.push(() => relay.stop());
});

const settingsOf = (home: string) => readFile(join(home, 'companion/settings.json'), 'utf8');
/** Runs `svc companion export` or `import` with the passphrase on stdin. */
const backup = (home: string, words: string[], passphrase = PASSPHRASE) =>
  run(['companion', ...words, '--passphrase-stdin'], { home, input: `${passphrase}\n` });

/** A companion with a pairing and settings of its own, and its backup. */
async function exported() {
  const home = await paired(relay.port);
  await run(['companion', 'trusted', 'add', 'buy'], { home });
  const file = join(home, 'backup.json');
  const result = await backup(home, ['export', file]);
  expect([result.code, result.stderr]).toEqual([0, '']);
  return { home, file, result };
}

describe('svc companion export and import', () => {
  it('move the phone to another machine, where it goes on with the same session', async () => {
    const { home, file, result } = await exported();
    expect(result.stdout).toMatch(/Settings and pairing are in .*\n.*is this device.*\nNext, on the other machine: /);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const { pairing, device_id: deviceId } = JSON.parse(await settingsOf(home));
    const text = await readFile(file, 'utf8');
    for (const secret of [pairing.session_token, pairing.refresh_token, deviceId, PASSPHRASE]) {
      expect(text + result.stdout).not.toContain(secret);
    }
    expect(await openBackup(text, PASSPHRASE)).toMatchObject({
      deviceId,
      pairing: { session_token: pairing.session_token },
    });

    const other = agentHome();
    const taken = await backup(other, ['import', file]);
    expect([taken.code, taken.stderr]).toEqual([0, '']);
    expect(taken.stdout).toMatch(/^Imported\n {2}Pairing +127\.0\.0\.1:\d+\n[\s\S]*Grants +none[\s\S]*Next: .*run\n$/);
    expect((await stat(join(other, 'companion/settings.json'))).mode & 0o777).toBe(0o600);
    const companion = begin(['companion', 'run', '--json'], { home: other });
    await companion.prints(/"state":"online"/);
    const headers = { authorization: `Bearer ${pairing.session_token}` };
    const { sessions } = await (await relay.fetch('/sessions', { headers })).json();
    expect(sessions).toMatchObject([{ device_id: deviceId, is_current: true }]);
    expect((await run(['companion', 'trusted', '--json'], { home: other })).stdout).toContain('["buy"]');
  });

  it('take the settings of the web app that they share, and name the others', async () => {
    const home = agentHome();
    const file = join(home, 'app.json');
    const settings = { theme: 'dark', tool_display: 'off', bridge_trusted_destructive_verbs: ['send'] };
    await writeFile(file, await sealBackup({ settings, pairing: null, deviceId: null }, PASSPHRASE));
    const { code, stdout } = await backup(home, ['import', file, '--json']);
    expect([code, JSON.parse(stdout)]).toEqual([
      0,
      expect.objectContaining({
        imported: true,
        paired: false,
        settings: ['bridge_trusted_destructive_verbs'],
        ignored: ['theme', 'tool_display'],
        pairing: false,
      }),
    ]);
    expect((await backup(home, ['import', file])).stdout).toMatch(/Left out +theme, tool_display/);
  });

  it('change nothing on a wrong passphrase, a changed or other file, and say what to do', async () => {
    const { home, file } = await exported();
    const before = await settingsOf(home);
    const place = async (name: string, text: string) => {
      await writeFile(join(home, name), text);
      return join(home, name);
    };
    const text = await readFile(file, 'utf8');
    const changed = await place('changed', text.replace(/"data":"..../, '"data":"AAAA'));
    const cases: [file: string, passphrase: string, error: RegExp][] = [
      [file, 'another horse', /not that of this backup, or the file was changed.*\nTry again/],
      [changed, PASSPHRASE, /not that of this backup, or the file was changed.*\nTry again/],
      [
        await place('other', '{}'),
        PASSPHRASE,
        /other is not a backup of svc\nMake a backup with: svc companion export/,
      ],
      [await place('large', text.padEnd(1024 * 1024 + 1)), PASSPHRASE, /larger than any backup\nMake a backup/],
      [join(home, 'none'), PASSPHRASE, /does not exist\nMake a backup/],
      [home, PASSPHRASE, /cannot be read: EISDIR\nMake a backup/],
      [
        await place(
          'foreign',
          await sealBackup({ settings: { blocklist: 1 }, pairing: null, deviceId: null }, PASSPHRASE),
        ),
        PASSPHRASE,
        /cannot be used here: blocklist has no usable value; nothing was changed\nExport it again/,
      ],
    ];
    for (const [path, passphrase, error] of cases) {
      const result = await backup(home, ['import', path, '--yes'], passphrase);
      expect([result.code, result.stdout, result.stderr]).toEqual([1, '', expect.stringMatching(error)]);
      expect(await settingsOf(home)).toBe(before);
    }
    const unasked = await backup(home, ['import', file]);
    expect([unasked.code, unasked.stderr]).toEqual([2, expect.stringMatching(/confirm with --yes/)]);
    expect(await settingsOf(home)).toBe(before);
  });

  it('refuse a short passphrase, a file that exists, and to guess where the passphrase is', async () => {
    const home = agentHome();
    const file = join(home, 'backup.json');
    const short = await backup(home, ['export', file], 'short');
    expect([short.code, short.stderr]).toEqual([
      1,
      expect.stringMatching(/at least 10 characters\nChoose a longer one/),
    ]);
    const nowhere = await run(['companion', 'export', file], { home });
    expect([nowhere.code, nowhere.stderr]).toEqual([2, expect.stringMatching(/no terminal.*--passphrase-file/)]);
    const both = await backup(home, ['export', file, '--passphrase-file', 'x']);
    expect([both.code, both.stderr]).toEqual([2, expect.stringMatching(/not both/)]);
    const lost = await run(['companion', 'export', file, '--passphrase-file', join(home, 'none')], { home });
    expect([lost.code, lost.stderr]).toEqual([1, expect.stringMatching(/none does not exist\nGive another file/)]);
    await expect(stat(file)).rejects.toThrow(/ENOENT/);

    await writeFile(join(home, 'passphrase'), `${PASSPHRASE}\r\nnot this line`);
    const words = ['companion', 'export', file, '--passphrase-file', join(home, 'passphrase')];
    expect(JSON.parse((await run([...words, '--json'], { home })).stdout)).toMatchObject({
      exported: true,
      paired: false,
    });
    const first = await readFile(file, 'utf8');
    const again = await run(words, { home });
    expect([again.code, again.stderr]).toEqual([1, expect.stringMatching(/exists already\n.*--force\.\n$/)]);
    expect(await readFile(file, 'utf8')).toBe(first);
    expect((await run([...words, '--force'], { home })).code).toBe(0);
    expect(await openBackup(await readFile(file, 'utf8'), PASSPHRASE)).toMatchObject({ pairing: null });
    await mkdir(join(home, 'folder'));
    const folder = await run(['companion', 'export', join(home, 'folder'), '--force', ...words.slice(3)], { home });
    expect([folder.code, folder.stderr]).toEqual([
      1,
      expect.stringMatching(/cannot write .*folder: E.*\nChoose another/),
    ]);
  });

  it('ask for the passphrase on a terminal without showing it', async () => {
    const home = agentHome();
    const file = join(home, 'backup.json');
    const typing = begin(['companion', 'export', file], { home, tty: true });
    await typing.prints(/Passphrase: $/);
    expect(typing.raw).toEqual([true]);
    typing.type(`${PASSPHRASE}x\u007f\r`);
    await typing.prints(/The same again: $/);
    typing.type(`${PASSPHRASE}\r`);
    const { code, stdout, stderr } = await typing.ended;
    expect([code, stdout + stderr]).toEqual([0, expect.not.stringContaining('horse')]);
    expect(typing.raw).toEqual([true, false, true, false]);

    const differing = begin(['companion', 'export', file, '--force'], { home, tty: true });
    await differing.prints(/Passphrase: $/);
    differing.type(`${PASSPHRASE}\r`);
    await differing.prints(/again: $/);
    differing.type(`${PASSPHRASE}!\r`);
    expect(await differing.ended).toMatchObject({ code: 1, stderr: expect.stringMatching(/differ\nType the same/) });

    const given = begin(['companion', 'import', file], { home, tty: true });
    await given.prints(/Passphrase: $/);
    given.type('\u0003');
    expect(await given.ended).toMatchObject({ code: 1, stderr: expect.stringMatching(/nothing was changed\n/) });
    expect(given.raw).toEqual([true, false]);
  });
});

import { chmod, chown, mkdir, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { stripVTControlCharacters } from 'node:util';
import { describe, expect, it } from 'vitest';
import { canBeNobody, NOBODY } from '../support/other-user.ts';
import { freePort, launch, runSvc, startRelayProcess, temporaryHome } from '../support/process.ts';
import { openPty } from '../support/pty.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/svc.js', import.meta.url));

/** Commands whose output is sentences and tables. All end by themselves. */
const COMMANDS = [
  '--help',
  'relay',
  'devices --help',
  'relay start --help',
  'completion tcsh',
  'devices revok',
  'status',
  'devices',
  'pair --no-wait',
  'pair --check',
  'relay doctor',
  'relay service',
  'phone list',
];

/** Lines that were not broken between words: longer than the terminal, and neither one word nor a command to copy. */
const badlyBroken = (output: string, columns: number): string[] =>
  stripVTControlCharacters(output)
    .split(/\r?\n/)
    .filter((row) => row.length > columns && row.trim().split(/\s+/).length > 2 && !/^ {2}.*(?:\bsvc | \\$)/.test(row));

describe('in a terminal, as a new user has it (issue 16)', () => {
  it.each([80, 40])('of %i columns, lines break between words', { timeout: 300_000 }, async (cols) => {
    const relay = await startRelayProcess();
    const env = { HOME: relay.home, SVC_HOME: relay.home, RELAY_PORT: String(relay.port), RELAY_HOST: '127.0.0.1' };
    for (const words of COMMANDS) {
      const pty = openPty(process.execPath, [PROGRAM, ...words.split(' ')], { cols, env });
      await pty.ended;
      expect(pty.output, words).not.toBe('');
      expect(badlyBroken(pty.output, cols), words).toEqual([]);
    }
  });

  it('without colours where NO_COLOR says so, and with them otherwise', async () => {
    const home = await temporaryHome();
    const env = { HOME: home, SVC_HOME: home, RELAY_PORT: '1' };
    const coloured = openPty(process.execPath, [PROGRAM, 'status'], { env });
    const plain = openPty(process.execPath, [PROGRAM, 'status'], { env: { ...env, NO_COLOR: '1' } });
    await Promise.all([coloured.ended, plain.ended]);
    expect(coloured.output).toContain('\u001b[');
    expect(plain.output).not.toContain('\u001b');
    expect(plain.output).toBe(stripVTControlCharacters(coloured.output));
  });
});

describe('without what a terminal or a machine may lack', () => {
  it('no terminal: svc pair prints and leaves, and no escape sequence appears', async () => {
    const relay = await startRelayProcess();
    const env = { RELAY_PORT: String(relay.port) };
    for (const words of ['pair', 'status', 'devices', 'relay doctor', '--help', 'relay']) {
      const { code, stdout, stderr } = await runSvc(words.split(' '), { home: relay.home, env });
      expect([words, code]).toEqual([words, 0]);
      expect(stdout).not.toBe('');
      expect(stdout + stderr).not.toContain('\u001b');
    }
  });

  it('no tmux in PATH: the relay starts, and the doctor says what that means', async () => {
    const folder = await temporaryHome();
    await symlink(process.execPath, join(folder, 'node'));
    const relay = await startRelayProcess({ env: { PATH: folder } });
    const { code, stdout } = await runSvc(['relay', 'doctor'], {
      home: relay.home,
      env: { PATH: folder, RELAY_PORT: String(relay.port) },
    });
    expect(code).toBe(0);
    expect(stdout).toMatch(/\[WARN\] relay-tmux: tmux is not installed: shells end with the relay\n +Fix: .*tmux/);
  });

  it.skipIf(!canBeNobody)('another user than the owner of the checkout', { timeout: 300_000 }, async () => {
    const home = await temporaryHome();
    const own = join(home, 'own');
    await mkdir(own);
    await chmod(home, 0o755);
    await chown(own, NOBODY, NOBODY);
    const options = { home: own, uid: NOBODY, env: { RELAY_PORT: String(await freePort()), RELAY_HOST: '127.0.0.1' } };
    expect(await runSvc(['--version'], options)).toMatchObject({ code: 0, stderr: '' });
    const relay = await startRelayProcess({ ...options, port: Number(options.env.RELAY_PORT) });
    const status = await runSvc(['status'], options);
    expect([status.code, status.stdout]).toEqual([0, expect.stringContaining(`process ${relay.child.pid}`)]);
    // A third user is told who may operate it.
    const doctor = await runSvc(['relay', 'doctor'], { ...options, home: await temporaryHome(), uid: NOBODY - 1 });
    expect(doctor.stdout).toMatch(new RegExp(`Fix: Run this as user ${NOBODY}`));
    const stop = launch(
      process.execPath,
      [PROGRAM, 'stop'],
      { PATH: '', HOME: own, SVC_HOME: own, ...options.env },
      { uid: NOBODY },
    );
    expect(await stop.ended).toEqual({ code: 0, signal: null });
  });
});

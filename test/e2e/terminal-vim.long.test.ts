import { spawnSync } from 'node:child_process';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { connect } from '../support/client.ts';
import { startRelayProcess, temporaryHome } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';
import { attach, hasProgram, settled, tmuxSocket } from '../support/terminal.ts';

const editor = ['vim', 'vi'].find(hasProgram);
if (!editor) process.stderr.write('SKIPPED: neither vim nor vi here, no file is edited over the socket\n');
const variants = hasProgram('tmux') ? ['0', '1'] : ['0'];

describe.skipIf(!editor).each(variants)('a shell over the socket, RELAY_TERMINAL_TMUX=%s', (tmux) => {
  test('edits a file, detaches, reconnects, and finds the screen as it was', { timeout: 300_000 }, async () => {
    const home = await temporaryHome();
    const env = { TMUX_TMPDIR: home, LANG: 'C.UTF-8', RELAY_TERMINAL_TMUX: tmux, SHELL: '/bin/bash' };
    // No history file: a shell that ends late would write one into a home that is being removed.
    await writeFile(join(home, '.bash_profile'), 'PS1="ready> "\nHISTFILE=\n');
    const relay = await startRelayProcess({ home, env });
    onTestFinished(() => {
      if (tmux === '1') spawnSync('tmux', ['-L', tmuxSocket(home), 'kill-server'], { env: { ...process.env, ...env } });
    });

    const code = randomCode();
    const body = JSON.stringify({ code });
    const headers = { 'content-type': 'application/json' };
    expect((await fetch(`${relay.url}/pairing/register`, { method: 'POST', body, headers })).status).toBe(200);
    const first = await connect(relay.wsUrl);
    first.send('system', 'auth', { pairing_code: code, device_id: 'tablet' });
    const { payload } = await first.next({ type: 'auth.ok' });

    const shell = await attach(first, 'work');
    await shell.shows('ready>');
    shell.type(`cd ~ && ${editor} -n notes.txt\r`);
    await shell.shows(/~\n~/);
    shell.type('ifirst line\rsecond line 漢字\x1b:w\r');
    await shell.shows(/written|\d+B|\d+L/);
    shell.type('ojust typed, not saved');
    await shell.shows('just typed, not saved');
    // The typed text appears before everything that the editor writes around it.
    const before = await settled(shell.screen.text);
    const cursor = await shell.screen.cursor();
    first.send('terminal', 'terminal.detach', { session_name: 'work' }, 'd');
    expect((await first.next({ id: 'd' })).payload).toEqual({ session_name: 'work', reason: 'client detach' });
    first.close();

    const second = await connect(relay.wsUrl);
    second.send('system', 'auth', { session_token: payload.session_token });
    await second.next({ type: 'auth.ok' });
    const again = await attach(second, 'work');
    expect(again.facts.reattach).toBe(true);
    // The cursor gets its position after the text around it.
    await vi.waitFor(async () =>
      expect([await again.screen.text(), await again.screen.cursor()]).toEqual([before, cursor]),
    );
    again.type(' yet\x1b:wq\r');
    await again.shows(/ready>$/);
    expect(await readFile(join(home, 'notes.txt'), 'utf8')).toBe(
      'first line\nsecond line 漢字\njust typed, not saved yet\n',
    );
    second.send('terminal', 'terminal.kill', { session_name: 'work' }, 'k');
    await second.next({ id: 'k' });
  });
});

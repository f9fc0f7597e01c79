import { execFileSync, spawnSync } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { connect } from '../support/client.ts';
import { startRelayProcess, temporaryHome } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';
import { attach, hasProgram, tmuxSocket } from '../support/terminal.ts';

const hasTmux = hasProgram('tmux');
if (!hasTmux) process.stderr.write('SKIPPED: no tmux here, no shell outlives its relay\n');

test.skipIf(!hasTmux)(
  'a relay killed in a paste: the shell lives on, tmux is as it was, and the shell ends with its device',
  { timeout: 300_000 },
  async () => {
    const home = await temporaryHome();
    const env = { TMUX_TMPDIR: home, LANG: 'C.UTF-8', SHELL: '/bin/bash' };
    // No history file: a shell that ends late would write one into a home that is being removed.
    await writeFile(join(home, '.bash_profile'), 'PS1="ready> "\nHISTFILE=\n');
    const relay = await startRelayProcess({ home, env });
    onTestFinished(
      () => void spawnSync('tmux', ['-L', tmuxSocket(home), 'kill-server'], { env: { ...process.env, ...env } }),
    );
    const patience = () => {
      const args = ['-L', tmuxSocket(home), 'show-options', '-sv', 'escape-time'];
      return Number(execFileSync('tmux', args, { env: { ...process.env, ...env } }));
    };

    const code = randomCode();
    const headers = { 'content-type': 'application/json' };
    expect((await relay.ask('/pairing/register', { method: 'POST', body: { code }, headers })).status).toBe(200);
    const first = await connect(relay.wsUrl);
    first.send('system', 'auth', { pairing_code: code, device_id: 'tablet' });
    const { payload } = await first.next({ type: 'auth.ok' });
    const shell = await attach(first, 'work');
    await shell.shows('ready>');
    shell.type('kept=here; stty -echo; cat > /dev/null\r');
    await shell.has('cat > /dev/null');
    shell.type('some text to be pasted\n'.repeat(1_000));
    // Stopped while it is looked at, so that the paste does not end in between.
    await vi.waitFor(
      () => {
        relay.child.signal('SIGSTOP');
        try {
          expect(patience()).toBeGreaterThan(0);
        } catch (error) {
          relay.child.signal('SIGCONT');
          throw error;
        }
      },
      { interval: 10 },
    );
    await relay.kill();
    expect(patience()).toBeGreaterThan(0);

    await relay.restart();
    const second = await connect(relay.wsUrl);
    second.send('system', 'auth', { session_token: payload.session_token });
    await second.next({ type: 'auth.ok' });
    const again = await attach(second, 'work');
    expect(again.facts.reattach).toBe(true);
    expect(patience()).toBe(0);
    again.type('\x03');
    await again.shows(/ready>$/);
    again.type('stty echo; echo $kept\r');
    await again.shows(/^here$/m);

    // It knows which devices attached the shell before it was killed.
    await relay.kill();
    await relay.restart();
    const path = `/sessions/${String(payload.session_token).slice(0, 8)}`;
    const answer = await relay.ask(path, { method: 'DELETE', headers: { 'x-svc-operator': '1' } });
    expect(answer.status).toBe(200);
    // tmux ends with its last shell.
    await vi.waitFor(() => expect(patience).toThrow());
  },
);

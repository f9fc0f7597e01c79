import { access, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { cleanups } from '../support/built-relay.ts';
import type { Client, Frame } from '../support/client.ts';
import { median, TIMED } from '../support/limits.ts';
import { authenticate, pair } from '../support/relay.ts';
import {
  attach,
  createScreen,
  exists,
  hasProgram,
  pairTerminal,
  reconnect,
  shellsOf,
  startTerminalRelay,
} from '../support/terminal.ts';

const cleanup = cleanups();

async function start({ tmux = false, grace }: { tmux?: boolean; grace?: number } = {}) {
  const env = grace === undefined ? undefined : { RELAY_TERMINAL_GRACE_SECONDS: String(grace) };
  const target = await startTerminalRelay({ tmux, env });
  cleanup.push(() => target.stop());
  return { target, ...(await pairTerminal(target)) };
}

const ask = async (client: Client, type: string, payload: Record<string, unknown> = {}): Promise<Frame> => {
  const id = crypto.randomUUID();
  client.send('terminal', `terminal.${type}`, payload, id);
  return client.next({ channel: 'terminal', id });
};

const ends = (pid: number) => vi.waitFor(() => expect(exists(pid)).toBe(false));

const LINES = 3_000;
const COMMAND = `for i in $(seq 1 ${LINES}); do echo -e "line \\e[3$((i%8))m$i\\e[0m 漢字"; done`;
/** The screen of a terminal that received everything. */
async function expected(cols = 80): Promise<{ text: string; all: string }> {
  const whole = createScreen(cols, 24);
  for (let line = 1; line <= LINES; line++) whole.write(`line \x1b[3${line % 8}m${line}\x1b[0m 漢字\r\n`);
  whole.write('\x1b[?2004hready> ');
  return { text: await whole.text(), all: await whole.all() };
}

describe('a socket that drops during output (contract 02 §3.9)', () => {
  test('without tmux: the same shell with its screen as if nothing had happened', async () => {
    const { client, target, token } = await start();
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type(`${COMMAND}\r`);
    await shell.has('line ');
    client.terminate();
    const again = await reconnect(target, token);
    const next = await attach(again, 'a');
    expect(next.facts).toMatchObject({ pid: shell.facts.pid, reattach: true, shell: '/bin/bash' });
    const wanted = await expected();
    await vi.waitFor(async () => expect(await next.screen.text()).toBe(wanted.text));
    expect(await next.screen.all()).toBe(wanted.all);
    // And once more while idle, with another width.
    next.type('');
    again.terminate();
    const third = await reconnect(target, token);
    const last = await attach(third, 'a', { cols: 100, rows: 24 });
    await vi.waitFor(async () => expect(await last.screen.text()).toBe((await expected(100)).text));
    last.type('stty size\r');
    await last.shows('24 100');
  });

  test.skipIf(!hasProgram('tmux'))('with tmux: the same shell with its screen', async () => {
    const { client, target, token } = await start({ tmux: true });
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type(`echo pid $$; ${COMMAND}\r`);
    // Coloured, to tell it from the echo of the command.
    await shell.has('line \x1b[');
    client.terminate();
    const again = await reconnect(target, token);
    const next = await attach(again, 'a');
    expect(next.facts).toMatchObject({ reattach: true });
    expect(next.facts.replay).toMatch(/line \d+ 漢字/);
    expect(next.facts.replay).not.toContain('\x1b');
    const { text } = await expected();
    await vi.waitFor(async () => expect(await next.screen.text()).toBe(text));
    await vi.waitFor(() => expect(exists(shell.facts.pid)).toBe(false));
  });

  test.skipIf(!hasProgram('tmux'))('with tmux: survives a restart of the relay', async () => {
    const { client, target, token } = await start({ tmux: true });
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('echo before\r');
    await shell.shows(/^before$/m);
    await target.relay.stop();
    expect(target.tmuxRun('capture-pane', '-p', '-t', '=svc-a:')).toContain('before');
    expect(token).toBeTruthy();
  });
});

describe('a parked shell (contract 02 §3.9)', () => {
  test('is left by a detach and given back to the same device', async () => {
    const { client, target } = await start();
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('x=kept; echo first\r');
    await shell.shows(/^first$/m);
    expect(await ask(client, 'detach', { session_name: 'a' })).toMatchObject({
      type: 'terminal.detached',
      payload: { session_name: 'a', reason: 'client detach' },
    });
    const rows = (await ask(client, 'list')).payload.sessions;
    const known = {
      device: 'Phone',
      created_at: expect.any(Number),
      active_at: expect.any(Number),
      last_line: 'ready>',
    };
    expect(rows).toEqual([
      { name: 'a', shell: '/bin/bash', live: false, owned_by_client: false, attached: 0, ...known },
    ]);

    // Not to another device.
    const other = await pair(target);
    expect((await attach(other.client, 'a')).facts.reattach).toBe(false);
    expect((await ask(other.client, 'list')).payload.sessions).toHaveLength(1);

    const again = await attach(client, 'a');
    expect(again.facts).toMatchObject({ reattach: true, pid: shell.facts.pid });
    again.type('echo $x\r');
    await again.shows(/^first\nready> echo \$x\nkept$/m);
  });

  test.each([true, false])(
    'comes back to a device that refreshed its session (first socket closed: %s)',
    async (isClosed) => {
      const target = await startTerminalRelay();
      cleanup.push(() => target.stop());
      const { client, refreshToken } = await pair(target, { device: { device_id: 'tablet' } });
      const shell = await attach(client, 'a');
      await shell.shows('ready>');
      if (isClosed) client.close();
      if (isClosed) await client.closed();
      const { client: again, frame } = await authenticate(target, { refresh_token: refreshToken, device_id: 'tablet' });
      expect(frame.type).toBe('auth.ok');
      expect((await attach(again, 'a')).facts.pid).toBe(shell.facts.pid);
    },
  );

  test('is redrawn for clients that do not show the replay', async () => {
    const { client } = await start();
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('half a command');
    await shell.shows('half a command');
    await ask(client, 'detach', { session_name: 'a' });
    const again = await attach(client, 'a');
    await vi.waitFor(() => expect(again.text).toContain('ready> half a command'));
    expect(await again.screen.text()).toBe('ready> half a command');
  });

  test('keeps running; its output is neither lost nor blocks it', async () => {
    const { client, target } = await start();
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type(`clear; ${COMMAND}; touch done\r`);
    await shell.has('line ');
    await ask(client, 'detach', { session_name: 'a' });
    await vi.waitFor(() => access(join(target.agentHome, 'done')));
    const again = await attach(client, 'a');
    const { text } = await expected();
    await vi.waitFor(async () => expect(await again.screen.text()).toBe(text));
  });

  test('that floods neither grows nor keeps the relay busy', TIMED, async () => {
    const { client } = await start();
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('yes "some text to fill a line with"\r');
    await shell.has('some text');
    await ask(client, 'detach', { session_name: 'a' });
    const before = process.memoryUsage().rss;
    const answers: number[] = [];
    for (const began = performance.now(); performance.now() - began < 2_000; ) {
      const asked = performance.now();
      client.send('system', 'ping', {}, 'p');
      await client.next({ id: 'p' });
      answers.push(performance.now() - asked);
    }
    expect(process.memoryUsage().rss - before).toBeLessThan(100 * 1024 * 1024);
    expect(median(answers)).toBeLessThan(20);
    const again = await attach(client, 'a');
    expect(again.facts.replay).toContain('some text');
    again.type('\x03');
    await again.shows(/\^C.*\nready>$/);
  });

  test('is the most recently parked of several with one name', async () => {
    const { client, target, token } = await start();
    const second = await reconnect(target, token);
    const one = await attach(client, 'a');
    const two = await attach(second, 'a');
    expect(two.facts.reattach).toBe(false);
    expect(two.facts.pid).not.toBe(one.facts.pid);
    await ask(second, 'detach', { session_name: 'a' });
    await ask(client, 'detach', { session_name: 'a' });
    expect((await attach(second, 'a')).facts.pid).toBe(one.facts.pid);
    expect((await attach(client, 'a')).facts.pid).toBe(two.facts.pid);
  });

  test('is also one whose socket only looks open, because its client no longer answers', async () => {
    const { client, target, token } = await start();
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('x=kept\r');
    await shell.shows(/x=kept\nready>$/);
    client.socket.pause();
    const again = await reconnect(target, token);
    const next = await attach(again, 'a');
    expect(next.facts).toMatchObject({ reattach: true, pid: shell.facts.pid });
    next.type('echo $x\r');
    await next.shows(/^kept$/m);
    // It was merely slow: it is notified once and can do everything else.
    client.socket.resume();
    expect((await client.next({ type: 'terminal.detached' })).payload).toEqual({
      session_name: 'a',
      reason: 'client detach',
    });
    expect((await attach(client, 'a')).facts.reattach).toBe(false);
    expect(shell.outputs.join('')).not.toContain('kept\r\nready> kept');
  });

  test('whose program ends is gone', async () => {
    const { client, target } = await start();
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('mkfifo go; : < go; exit\r');
    await shell.has('exit\r\n');
    await ask(client, 'detach', { session_name: 'a' });
    // Blocks until the shell reads it.
    await writeFile(join(target.agentHome, 'go'), '');
    await ends(shell.facts.pid);
    await vi.waitFor(async () => expect((await ask(client, 'list')).payload.sessions).toEqual([]));
    expect((await attach(client, 'a')).facts.reattach).toBe(false);
  });
});

describe('the end of a parked shell (contract 02 §3.9)', () => {
  test('comes with its grace time', async () => {
    const { client } = await start({ grace: 1 });
    const shell = await attach(client, 'a');
    const detached = performance.now();
    await ask(client, 'detach', { session_name: 'a' });
    await ends(shell.facts.pid);
    expect(performance.now() - detached).toBeGreaterThan(900);
    expect((await attach(client, 'a')).facts.reattach).toBe(false);
  });

  test('with a grace time of 0 comes with the end of its socket, or a detach', async () => {
    const { client, target, token } = await start({ grace: 0 });
    const shells = [await attach(client, 'a'), await attach(client, 'b')] as const;
    await ask(client, 'detach', { session_name: 'a' });
    await ends(shells[0].facts.pid);
    client.terminate();
    await ends(shells[1].facts.pid);
    const again = await reconnect(target, token);
    expect((await attach(again, 'b')).facts.reattach).toBe(false);
  });

  test('comes with a kill, also from another socket', async () => {
    const { client, target, token } = await start();
    const shell = await attach(client, 'a');
    client.close();
    await client.closed();
    const again = await reconnect(target, token);
    expect((await ask(again, 'kill', { session_name: 'a' })).payload).toEqual({
      session_name: 'a',
      reason: 'client kill',
    });
    await ends(shell.facts.pid);
  });

  test('comes with the revocation of its session', async () => {
    const { client, target } = await start();
    const shell = await attach(client, 'a');
    const [session] = target.relay.sessions.list();
    client.close();
    await client.closed();
    if (session) await target.relay.sessions.revoke(session);
    await ends(shell.facts.pid);
  });

  test('comes with the revocation of its session, also while attached', async () => {
    const { client, target } = await start();
    const shell = await attach(client, 'a');
    const [session] = target.relay.sessions.list();
    if (session) await target.relay.sessions.revoke(session);
    expect((await client.closed()).code).toBe(4401);
    await ends(shell.facts.pid);
  });

  test('comes with the end of its grant', async () => {
    const { client, target } = await start();
    const shell = await attach(client, 'a');
    const [session] = target.relay.sessions.list();
    client.close();
    await client.closed();
    if (session) await target.relay.sessions.reduce(session, { grants: { terminal: 3 } });
    expect(exists(shell.facts.pid)).toBe(true);
    await ends(shell.facts.pid);
  });

  test('comes with SIGKILL after a second when the shell stays', async () => {
    const { client } = await start();
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type("exec bash -c \"trap '' HUP; echo u''p; while :; do sleep 0.1; done\"\r");
    await shell.has('up');
    expect((await ask(client, 'kill', { session_name: 'a' })).payload.reason).toBe('client kill');
    expect(shellsOf('a')).not.toContain(shell.facts.pid);
  });

  test('comes with the shutdown of the relay', async () => {
    const { client, target } = await start();
    const shell = await attach(client, 'a');
    client.close();
    await client.closed();
    await target.relay.stop();
    expect(exists(shell.facts.pid)).toBe(false);
  });
});

import { expect, test, vi } from 'vitest';
import type { Client } from '../support/client.ts';
import { TIMED } from '../support/limits.ts';
import { bearer, describeOnNode } from '../support/relay.ts';
import { attach, exists, pairTerminal, reconnect } from '../support/terminal.ts';
import { ask, roundTrip, start, withTmux } from '../support/terminal-flow.ts';

type Row = Record<string, unknown> & { name: string };
const rowsOf = async (client: Client): Promise<Row[]> => (await ask(client, 'list')).payload.sessions as Row[];

describeOnNode.each(withTmux)('watching a shell, tmux: %s (contract 09 §1)', (tmux) => {
  /** A shell of one device, and the socket of another. */
  async function watched(size = { cols: 90, rows: 20 }) {
    const { client, target, token } = await start({ tmux });
    const shell = await attach(client, 'a', size);
    await shell.shows('ready>');
    shell.type('echo o$((1))ne\r');
    await shell.shows(/^o1ne$/m);
    const other = await pairTerminal(target);
    return { client, target, token, shell, other: other.client, size };
  }

  test('shows the screen, then the output, and takes neither input nor size', async () => {
    const { client, shell, other, size } = await watched();
    const watch = await attach(other, 'a', { mode: 'watch', cols: 40, rows: 10 });
    expect(watch.facts).toMatchObject({ session_name: 'a', ...size, reattach: true });
    watch.screen.resize(size.cols, size.rows);
    await watch.shows(/^o1ne\nready>$/m);
    watch.type('echo w$((1))rong\r');
    watch.type('\x03');
    other.send('terminal', 'terminal.resize', { session_name: 'a', cols: 33, rows: 11 });
    shell.type('clear; stty size\r');
    await watch.shows(/^20 90\nready>$/m);
    await shell.shows(/^20 90\nready>$/m);
    // The size of the watcher follows.
    shell.resize(100, 30);
    expect((await other.next({ type: 'terminal.resized' })).payload).toEqual({
      session_name: 'a',
      cols: 100,
      rows: 30,
    });
    watch.screen.resize(100, 30);
    shell.type('clear; stty size\r');
    await watch.shows(/^30 100\nready>$/m);
    expect(`${watch.text}${shell.text}`).not.toContain('w1rong');
    expect(other.frames).toEqual([]);
    // Who leaves changes nothing for the shell, and may come back.
    expect((await ask(other, 'detach', { session_name: 'a' })).payload).toEqual({
      session_name: 'a',
      reason: 'client detach',
    });
    shell.type('clear; stty size; echo t$((1))wo\r');
    await shell.shows(/^30 100\nt1wo$/m);
    const again = await attach(other, 'a', { mode: 'watch' });
    again.screen.resize(100, 30);
    await again.shows(/^t1wo$/m);
    shell.type('exit\r');
    expect((await other.next({ type: 'terminal.detached' })).payload).toMatchObject({ reason: 'eof' });
    expect((await client.next({ type: 'terminal.detached' })).payload).toMatchObject({ reason: 'eof' });
    await vi.waitFor(async () => expect(await rowsOf(client)).toEqual([]));
  });

  test('starts nothing, and a name is the socket’s own or watched', async () => {
    const { client, other } = await watched();
    const missing = await ask(other, 'attach', { session_name: 'none', mode: 'watch' });
    expect(missing).toMatchObject({
      type: 'terminal.error',
      payload: { message: 'no terminal session named none to watch', session_name: 'none' },
    });
    expect((await ask(other, 'attach', { session_name: 'a', mode: 'look' })).payload).toMatchObject({
      message: 'mode must be watch',
      error: 'invalid_request',
    });
    expect((await ask(client, 'attach', { session_name: 'a', mode: 'watch' })).payload).toMatchObject({
      error: 'invalid_request',
      session_name: 'a',
    });
    expect((await ask(other, 'attach', { session_name: 'a', mode: 'watch' })).type).toBe('terminal.attached');
    expect((await ask(other, 'attach', { session_name: 'a' })).payload).toMatchObject({ error: 'invalid_request' });
    // The same watch again is no second one.
    expect((await ask(other, 'attach', { session_name: 'a', mode: 'watch' })).type).toBe('terminal.attached');
    await vi.waitFor(async () => expect(await rowsOf(client)).toMatchObject([{ name: 'a', attached: 2 }]));
    await ask(other, 'detach', { session_name: 'a' });
    if (!tmux) return;
    expect((await ask(other, 'attach', { session_name: 'a' })).type).toBe('terminal.attached');
  });

  test('lasts while the owner is away, until the grant of the watcher ends', async () => {
    const { client, target, shell } = await watched();
    const { client: other, token } = await pairTerminal(target, { grants: { terminal: 15 } });
    const watch = await attach(other, 'a', { mode: 'watch' });
    watch.screen.resize(90, 20);
    shell.type('(sleep 1; echo l$((1))ate) &\r');
    await shell.shows(/\[1\]/);
    client.close();
    await watch.shows(/l1ate$/m);
    expect((await other.next({ type: 'terminal.detached' })).payload).toEqual({
      session_name: 'a',
      reason: 'grant expired',
    });
    const seen = watch.outputs.length;
    const back = await attach(await reconnect(target, token), 'a').catch(() => undefined);
    expect(back).toBeUndefined();
    expect(watch.outputs).toHaveLength(seen);
    await vi.waitFor(() => expect(exists(shell.facts.pid)).toBe(!tmux));
  });

  test(
    'a watcher that never reads does not slow the owner, and one that reads again sees the screen',
    TIMED,
    async () => {
      const { client, shell, target, other } = await watched();
      const flood = async (): Promise<number> => {
        const began = performance.now();
        shell.forget();
        shell.type('clear; seq 1 200000 | tail -c 1400000; echo d$((1))one\r');
        await shell.shows(/^d1one$/m, 60_000);
        return performance.now() - began;
      };
      await flood();
      const alone = await flood();
      const windowed = (await pairTerminal(target)).client;
      const paced = await attach(windowed, 'a', { mode: 'watch', window: 16_384 });
      const stopped = await attach(other, 'a', { mode: 'watch' });
      stopped.screen.resize(90, 20);
      other.socket.pause();
      const watchedTimes = [await flood(), await flood(), await flood(), await flood()];
      expect(Math.min(...watchedTimes)).toBeLessThan(alone * 2 + 500);
      expect(await roundTrip(client)).toBeLessThan(500);
      // The window is the most that waits for the paced one, which acknowledges nothing.
      expect(paced.text.length).toBeLessThanOrEqual(16_384);
      other.socket.resume();
      await stopped.shows(/^200000\nd1one\nready>$/m, 30_000);
      // What waits may be more than one window: a reader acknowledges until it has seen the end.
      await vi.waitFor(() => {
        windowed.send('terminal', 'terminal.ack', { session_name: 'a', chars: paced.text.length });
        expect(paced.text).toContain('d1one');
      }, 30_000);
    },
  );

  test('revoking the device of the shell ends it, although another watches', async () => {
    const { target, other, token, shell } = await watched();
    await attach(other, 'a', { mode: 'watch' });
    const { status } = await fetch(`${target.url}/sessions/${token.slice(0, 8)}`, {
      method: 'DELETE',
      headers: bearer(token),
    });
    expect(status).toBe(200);
    expect((await other.next({ type: 'terminal.detached' })).payload).toMatchObject({ reason: 'eof' });
    await vi.waitFor(() => expect(exists(shell.facts.pid)).toBe(false));
  });

  test('a freeze ends the watch of an agent’s run, and leaves the shell to its owner (§3)', async () => {
    const { target, other, shell } = await watched();
    await attach(other, 'a', { mode: 'watch', runId: 'run-1' });
    await target.operator('/relay/freeze', { method: 'POST' });
    expect((await other.next({ type: 'terminal.detached' })).payload).toMatchObject({ reason: 'frozen' });
    shell.type('clear; echo o$((1))n\r');
    await shell.shows(/^o1n$/m);
  });
});

describeOnNode.each(withTmux)('what a list tells of shells, tmux: %s (contract 09 §1)', (tmux) => {
  test('device, times and the last line, while it is used and after', async () => {
    const { client, target, token } = await start({ tmux });
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    const now = Date.now() / 1000;
    shell.type(`clear; printf 'x%.0s' {1..300}; echo; printf 'make: \\x07d%s\\n\\n' one; sleep 1000\r`);
    await shell.shows(/^make: done$/m);
    await vi.waitFor(async () => expect(await rowsOf(client)).toMatchObject([{ last_line: 'make: done' }]));
    const [row] = await rowsOf(client);
    expect(row).toMatchObject({ name: 'a', device: 'Phone', attached: 1, live: true });
    for (const time of [row?.created_at, row?.active_at]) expect(Math.abs(Number(time) - now)).toBeLessThan(60);
    // A device that attaches last is the one that is named, also when it has gone.
    if (tmux) {
      const { client: laptop } = await pairTerminal(target, {});
      await (await attach(laptop, 'a')).shows(/^make: done$/m);
      laptop.close();
    }
    client.close();
    const next = await reconnect(target, token);
    await vi.waitFor(async () =>
      expect(await rowsOf(next)).toMatchObject([
        { name: 'a', device: 'Phone', attached: 0, live: false, last_line: 'make: done' },
      ]),
    );
  });
});

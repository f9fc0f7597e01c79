import { expect, test, vi } from 'vitest';
import { describeOnNode } from '../support/relay.ts';
import { attach, reconnect } from '../support/terminal.ts';
import { ask, start, withTmux } from '../support/terminal-flow.ts';

describeOnNode.each(withTmux)('terminal input and names, tmux: %s (contract 02 §3)', (tmux) => {
  test('§3.6: a paste of 1 MB arrives whole', async () => {
    const { client, target } = await start({ tmux });
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    // Its output tells that the shell no longer reads the keyboard, and that the terminal does not echo it.
    shell.type('stty -echo; echo go-$((1+1)); cat > paste; sha256sum paste; stty echo\r');
    await shell.has('go-2');
    const line = `${'0123456789 é漢 '.repeat(6)}\n`;
    const text = line.repeat(Math.ceil(1_000_000 / Buffer.byteLength(line)));
    const digest = Buffer.from(await crypto.subtle.digest('SHA-256', Buffer.from(text))).toString('hex');
    for (let at = 0; at < text.length; at += 50_000) shell.type(text.slice(at, at + 50_000));
    shell.type('\x04');
    await shell.shows(digest);
    if (!tmux) return;
    // During a paste tmux waits for the second half of a split character; afterwards Esc is quick again.
    await vi.waitFor(() => expect(target.tmuxRun('show-options', '-s', 'escape-time')).toBe('escape-time 0\n'));
  });

  test.skipIf(!tmux).each(['a;', 'x\\y$HOME', 'C# #{pid}', 'it\'s 漢 "quoted" $(id)', '-t', '=a', '*', 'ü'])(
    'a session named %s is attached, listed and killed by that name',
    async (name) => {
      const { client, target, token } = await start({ tmux });
      await attach(client, 'axe');
      const shell = await attach(client, name);
      await shell.shows('ready>');
      shell.type('printf "<%s>\\n" "$SVC_RELAY_TERMINAL"\r');
      await shell.has(`<${name}>`);
      const other = await reconnect(target, token);
      const rows = (await ask(other, 'list')).payload.sessions as { name: string; live: boolean }[];
      expect(rows).toHaveLength(2);
      expect(rows.find((row) => row.name === name)).toMatchObject({ live: true });
      client.send('terminal', 'terminal.detach', { session_name: name }, 'd');
      await client.next({ id: 'd' });
      expect((await attach(client, name)).facts.reattach).toBe(true);
      expect((await ask(other, 'kill', { session_name: name })).type).toBe('terminal.detached');
      // The tmux client itself ends a moment later.
      await vi.waitFor(async () => {
        const left = (await ask(other, 'list')).payload.sessions as { name: string }[];
        expect(left.map((row) => row.name)).toEqual(['axe']);
      });
    },
  );
});

describeOnNode('terminal input (contract 02 §3)', () => {
  test('input that the program does not read is refused beyond 4 MiB', async () => {
    const { client } = await start();
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('stty raw -echo; echo g$((1))o; sleep 100\r');
    await shell.has('g1o');
    for (let part = 0; part < 6; part++) shell.type('x'.repeat(1024 * 1024 - 10));
    expect((await client.next({ type: 'terminal.error' })).payload).toEqual({
      message: 'input queue full',
      session_name: 'a',
    });
  });
});

import { expect, onTestFinished, test, vi } from 'vitest';
import { describeMatrix, describeOnNode, pair } from '../support/relay.ts';
import {
  attach,
  exists,
  pairTerminal,
  processesWith,
  reconnect,
  shellsOf,
  startTerminalRelay,
} from '../support/terminal.ts';
import { ask, start, withTmux } from '../support/terminal-flow.ts';

describeOnNode.each(withTmux)('terminal, tmux: %s (contract 02 §3)', (tmux) => {
  test('§3.2: attach describes the session, then output follows', async () => {
    const { client, target } = await start({ tmux });
    const shell = await attach(client, 'my tab', { cols: 100, rows: 30 });
    expect(shell.facts).toMatchObject({
      session_name: 'my tab',
      shell: '/bin/bash',
      cols: 100,
      rows: 30,
      tmux_available: tmux,
      reattach: false,
    });
    expect(exists(shell.facts.pid)).toBe(true);
    await shell.shows('ready>');
    shell.type('stty size; echo "$SVC_RELAY_TERMINAL,$COLORTERM,$TERM,$PWD"; shopt -q login_shell && echo login\r');
    await shell.shows('30 100');
    await shell.shows(`my tab,truecolor,${tmux ? 'tmux-256color' : 'xterm-256color'},${target.agentHome}`);
    await shell.shows(/^login$/m);
    expect(target.log.join('\n')).not.toContain('stty size');
  });

  test('§10.4: attach and input in the same tick', async () => {
    const { client } = await start({ tmux });
    const attached = attach(client, 'a');
    client.send('terminal', 'terminal.input', { session_name: 'a', data: 'echo o$((1))k\r' });
    await (await attached).shows(/^o1k$/m);
  });

  test('§3.9: Ctrl-C in the tick of a reattach reaches the program', async () => {
    const { client } = await start({ tmux });
    let shell = await attach(client, 'a');
    await shell.shows('ready>');
    for (let round = 0; round < 5; round++) {
      // Once it prints, the program has the terminal: a shell that is still starting one may lose the signal.
      shell.type(`clear; sh -c 'echo u"p"${round}; exec sleep 1000'\r`);
      await shell.shows(`up${round}`);
      await ask(client, 'detach', { session_name: 'a' });
      const attached = attach(client, 'a');
      client.send('terminal', 'terminal.input', { session_name: 'a', data: '\x03' });
      shell = await attached;
      await shell.shows(/\^C\nready>$/);
    }
  });

  test('§10.5: five attaches in one tick yield four sessions, and an error that names the fifth', async () => {
    const { client } = await start({ tmux });
    const names = ['a', 'b', 'c', 'd', 'e'];
    for (const name of names) client.send('terminal', 'terminal.attach', { session_name: name }, name);
    for (const id of names.slice(0, 4)) expect((await client.next({ id })).type).toBe('terminal.attached');
    expect(await client.next({ id: 'e' })).toMatchObject({
      type: 'terminal.error',
      payload: {
        message: 'Session cap reached (4). Detach an existing session first.',
        error: 'session_limit',
        session_name: 'e',
      },
    });
    const again = await ask(client, 'attach', { session_name: 'b', cols: 90, rows: 20 });
    expect(again).toMatchObject({ type: 'terminal.attached', payload: { reattach: true, cols: 90, rows: 20 } });
    expect(again.payload).not.toHaveProperty('replay');
    // `b` is now the most recently attached.
    expect((await ask(client, 'detach')).payload).toMatchObject({ session_name: 'b', reason: 'client detach' });
    expect((await ask(client, 'attach', { session_name: 'e' })).type).toBe('terminal.attached');
  });

  test('§3.6: exit is reported once with its code, after the last output', async () => {
    const { client } = await start({ tmux });
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('echo b$((1))ye; exit 7\r');
    const { payload } = await client.next({ type: 'terminal.detached' });
    expect(payload).toEqual({ session_name: 'a', reason: 'eof', exit_code: tmux ? 0 : 7 });
    if (!tmux) expect(shell.text).toContain('b1ye');
    expect((await ask(client, 'list')).payload.sessions).toEqual([]);
    const fresh = await attach(client, 'a');
    expect(fresh.facts.reattach).toBe(false);
    expect(client.frames.filter(({ type }) => type === 'terminal.detached')).toEqual([]);
  });

  test('§3.6: kill -9 of the shell is reported', async () => {
    const { client } = await start({ tmux });
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('kill -9 $$\r');
    const { payload } = await client.next({ type: 'terminal.detached' });
    expect(payload).toMatchObject({ reason: 'eof', exit_code: tmux ? 0 : 137 });
    await vi.waitFor(() => expect(exists(shell.facts.pid)).toBe(false));
  });

  test('§3.6: the program sees the window size and its changes', async () => {
    const { client } = await start({ tmux });
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type(`stty size; bash -c 'trap "stty size" WINCH; trap exit INT; echo u"p"; while :; do sleep 0.05; done'\r`);
    await shell.shows(/^24 80\nup$/m);
    shell.resize(120, 40);
    await shell.shows(/^40 120$/m);
    // Invalid sizes are ignored.
    client.send('terminal', 'terminal.resize', { session_name: 'a', cols: '90', rows: 30 });
    client.send('terminal', 'terminal.resize', { session_name: 'nobody', cols: 90, rows: 30 });
    shell.type('\x03clear; stty size\r');
    await shell.shows(/^40 120\nready>/);
  });

  test('§3.2: job control works: Ctrl-Z, fg, Ctrl-C', async () => {
    const { client } = await start({ tmux });
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('sleep 1000\r');
    await shell.has('sleep 1000\r\n');
    await vi.waitFor(() => {
      shell.type('\x1a');
      return shell.shows('Stopped', 300);
    });
    shell.forget();
    shell.type('fg\r');
    await shell.has('sleep 1000\r\n');
    await vi.waitFor(() => {
      shell.type('\x03');
      return shell.has('ready> ', 300);
    });
    shell.type('jobs; echo no$((1))ne\r');
    await shell.shows(/jobs; echo no\S+\nno1ne/);
  });

  test('§3.6: wide characters arrive whole, also when split over reads', async () => {
    const { client } = await start({ tmux });
    const shell = await attach(client, 'a', { cols: 60 });
    await shell.shows('ready>');
    shell.type('echo "漢字 é 🎈 ｗｉｄｅ"\r');
    await shell.shows(/^漢字 é 🎈 ｗｉｄｅ$/m);
    const bytes = [...Buffer.from('é漢🎈')].map((byte) => `printf '\\x${byte.toString(16)}'; sleep 0.03; `).join('');
    shell.forget();
    shell.type(`clear; ${bytes} echo; echo e'n'd\r`);
    await shell.shows(/^é漢🎈$/m);
    expect(shell.text).not.toContain('\ufffd');
  });

  test('§10.6: kill ends the shell and is reported once', async () => {
    const { client, target } = await start({ tmux });
    const shell = await attach(client, 'ab');
    await attach(client, 'abc');
    await shell.shows('ready>');
    const killed = await ask(client, 'kill', { session_name: 'ab' });
    expect(killed).toMatchObject({
      type: 'terminal.detached',
      payload: { session_name: 'ab', reason: 'client kill' },
    });
    // Only `abc` has that prefix now.
    const none = await ask(client, 'kill', { session_name: 'ab' });
    expect(none).toMatchObject({ type: 'terminal.error', payload: { session_name: 'ab' } });
    expect(none.payload.message).toBe(`no ${tmux ? 'tmux' : 'terminal'} session named ab`);
    expect(none.payload.reason).toBe(tmux ? 'client kill' : undefined);
    const { payload } = await ask(client, 'list');
    expect((payload.sessions as { name: string }[]).map(({ name }) => name)).toEqual(['abc']);
    await vi.waitFor(() => expect(exists(shell.facts.pid)).toBe(false));
    await vi.waitFor(() => expect(shellsOf('ab')).toEqual([]));
    expect(client.frames.filter(({ type }) => type === 'terminal.detached')).toEqual([]);
    if (tmux) expect(target.tmuxRun('list-sessions', '-F', '#{session_name}')).toBe('svc-abc\n');
  });

  test.skipIf(!tmux)('§3.7: after a kill by another device the attached one gets eof', async () => {
    const { client, target } = await start({ tmux });
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    const other = await pairTerminal(target);
    expect(await ask(other.client, 'kill', { session_name: 'a' })).toMatchObject({
      type: 'terminal.detached',
      payload: { session_name: 'a', reason: 'client kill' },
    });
    expect((await client.next({ type: 'terminal.detached' })).payload).toMatchObject({
      session_name: 'a',
      reason: 'eof',
    });
  });

  test.skipIf(!tmux)(
    '§3.5: two sockets share a tmux session, also under names that normalise to the same',
    async () => {
      const { client, target, token } = await start({ tmux });
      const shell = await attach(client, 'my tab');
      await shell.shows('ready>');
      const other = await attach(await reconnect(target, token), 'my.tab');
      expect(other.facts.reattach).toBe(true);
      other.type('echo sha$((1))red\r');
      await shell.shows(/^sha1red$/m);
      await other.shows(/^sha1red$/m);
    },
  );

  test('§1.8: attach, kill and close in one tick leave nothing behind', async () => {
    const { client, target, token } = await start({ tmux });
    for (let round = 0; round < 5; round++) {
      const socket = await reconnect(target, token);
      socket.send('terminal', 'terminal.attach', { session_name: `x${round}` });
      socket.send('terminal', 'terminal.kill', { session_name: `x${round}` });
      if (round % 2 === 0) socket.close();
      else await socket.next({ type: 'terminal.detached' });
    }
    await vi.waitFor(async () => expect((await ask(client, 'list')).payload.sessions).toEqual([]), {
      interval: 100,
    });
    await vi.waitFor(() => expect(processesWith('HOME', target.agentHome)).toEqual([]));
  });

  test('§3.8: lists sessions', async () => {
    const { client, target, token } = await start({ tmux });
    const shell = await attach(client, 'my tab');
    await shell.shows('ready>');
    const own = (await ask(client, 'list')).payload;
    expect(own.tmux_available).toBe(tmux);
    const { pid } = shell.facts;
    const row = { name: 'my tab', pid, shell: '/bin/bash', live: true, owned_by_client: true };
    const known = {
      created_at: expect.any(Number),
      active_at: expect.any(Number),
      device: 'Phone',
      last_line: 'ready>',
    };
    if (!tmux) {
      expect(own.sessions).toEqual([{ ...row, ...known, attached: 1 }]);
      const other = await reconnect(target, token);
      expect((await ask(other, 'list')).payload.sessions).toEqual([]);
      return;
    }
    const server = { tmux_name: 'svc-my_tab', attached: 1, windows: 1, ...known };
    expect(own.sessions).toEqual([{ ...row, ...server }]);
    target.tmuxRun('new-session', '-d', '-s', 'private');
    const other = await reconnect(target, token);
    expect((await ask(other, 'list')).payload.sessions).toEqual([{ ...row, ...server, owned_by_client: false }]);
    client.send('terminal', 'terminal.detach', { session_name: 'my tab' });
    await client.next({ type: 'terminal.detached' });
    await vi.waitFor(async () =>
      expect((await ask(other, 'list')).payload.sessions).toEqual([
        { name: 'my_tab', ...server, attached: 0, shell: '/bin/bash', live: false, owned_by_client: false },
      ]),
    );
  });

  test('§10.3: a lost grant ends the attachment within 5 s, without another byte', async () => {
    const target = await startTerminalRelay({ tmux });
    onTestFinished(() => target.stop());
    const { client } = await pairTerminal(target, { grants: { terminal: 5 } });
    const shell = await attach(client, 'a');
    await shell.shows('ready>');
    shell.type('yes\r');
    const { payload } = await client.next({ type: 'terminal.detached' });
    expect(payload).toEqual({ session_name: 'a', reason: 'grant expired' });
    const seen = shell.outputs.length;
    for (const type of ['attach', 'list', 'kill']) {
      client.send('terminal', `terminal.${type}`, { session_name: 'a' }, type);
      expect(await client.next({ channel: 'system', id: type })).toMatchObject({
        payload: {
          message: 'Terminal grant expired for this device',
          error: 'permission_denied',
          channel: 'terminal',
        },
      });
      expect(await client.next({ channel: 'terminal', id: type })).toMatchObject({
        type: 'terminal.error',
        payload: {
          message: 'Terminal grant expired for this device',
          error: 'permission_denied',
          session_name: 'a',
        },
      });
    }
    for (const type of ['input', 'resize', 'detach']) {
      client.send('terminal', `terminal.${type}`, { session_name: 'a', data: 'x' }, type);
      await client.next({ channel: 'system', type: 'error', id: type });
    }
    expect(client.frames.filter(({ channel }) => channel === 'terminal')).toEqual([]);
    expect(shell.outputs).toHaveLength(seen);
    if (tmux) expect(target.tmuxRun('list-sessions', '-F', '#{session_name}')).toBe('svc-a\n');
    else await vi.waitFor(() => expect(processesWith('HOME', target.agentHome)).toEqual([]));
  });

  test('§3.6: shutdown notifies every session and leaves only what tmux keeps', async () => {
    const { client, target } = await start({ tmux });
    const shells = [await attach(client, 'to be kept'), await attach(client, 'b')];
    for (const shell of shells) await shell.shows('ready>');
    await target.relay.stop();
    expect(await client.closed()).toEqual({ code: 1001, reason: 'server shutting down' });
    for (const shell of shells) expect(shell.detached?.payload).toMatchObject({ reason: 'server shutdown' });
    for (const shell of shells) expect(exists(shell.facts.pid)).toBe(false);
    const left = shellsOf('to be kept').length;
    expect(left).toBe(tmux ? 1 : 0);
  });
});

describeOnNode('invalid terminal messages (contract 02 §1.4, 3)', () => {
  test.each([
    ['attach', { session_name: 'a\n' }, 'invalid_request'],
    ['attach', { session_name: 5 }, 'invalid_request'],
    ['attach', { session_name: 'x'.repeat(129) }, 'invalid_request'],
    ['attach', { session_name: 'a', cols: 'wide' }, 'invalid_request'],
  ])('%s %j', async (type, payload, error) => {
    const { client } = await start();
    const answer = await ask(client, type, payload);
    expect(answer).toMatchObject({ type: 'terminal.error', payload: { error } });
    if (typeof payload.session_name === 'string') expect(answer.payload.session_name).toBe(payload.session_name);
  });

  test('unknown types, oversized input and payloads that are not objects', async () => {
    const { client } = await start();
    expect((await ask(client, 'fly', { session_name: 'a' })).payload).toMatchObject({
      message: 'Unknown terminal message type: terminal.fly',
      session_name: 'a',
    });
    client.send('terminal', 'terminal.attach', [1], 'array');
    expect((await client.next({ id: 'array' })).payload.message).toBe('payload must be a JSON object');
    expect((await ask(client, 'kill')).payload.message).toBe('no terminal session');
    expect((await ask(client, 'input', { data: 'x'.repeat(1024 * 1024 + 1) })).type).toBe('terminal.error');
    // Ignored, with neither an answer nor an effect.
    client.send('terminal', 'terminal.input', { data: 5 });
    client.send('terminal', 'terminal.input', { session_name: 'none', data: 'x' });
    client.send('terminal', 'terminal.detach', {});
    expect((await ask(client, 'list')).payload).toEqual({ sessions: [], tmux_available: false });
    expect(client.frames).toEqual([]);
  });

  test('a session without a name gets one, and a missing shell is replaced', async () => {
    const { client } = await start();
    const { payload } = await ask(client, 'attach', { session_name: '', shell: 'relative/sh', cols: 5000, rows: 0 });
    expect(payload).toMatchObject({ cols: 1000, rows: 24, shell: '/bin/bash' });
    expect(payload.session_name).toMatch(/^shell-[0-9a-f]{8}$/);
    expect((await ask(client, 'attach', { session_name: 'sh', shell: '/bin/sh' })).payload.shell).toBe('/bin/sh');
  });
});

describeMatrix(
  'terminal without a host (contract 02 §3)',
  (startTarget) => {
    test('answers that this relay has no host', async () => {
      const target = await startTarget();
      const { client } = await pair(target);
      for (const type of ['attach', 'list', 'kill']) {
        const answer = await ask(client, type, { session_name: 'a' });
        expect(answer).toMatchObject({
          type: 'terminal.error',
          payload: { message: 'Terminal is not available: this relay has no host', session_name: 'a' },
        });
      }
    });
  },
  ['edge'],
);

import { describe, expect, test } from 'vitest';
import type { Command, Host } from '../../../lib/host/index.ts';
import { childEnvironment, resolveShell, workingDirectory } from '../../../lib/terminal/environment.ts';
import { listRows } from '../../../lib/terminal/list.ts';
import type { Session } from '../../../lib/terminal/session.ts';
import { createTmux } from '../../../lib/terminal/tmux.ts';

function fakeHost({ writable = true, stdout = '', code = 0 as number | null, showsFirst = false } = {}) {
  const commands: Command[] = [];
  const written: { path: string; text: string; mode: number }[] = [];
  const host = {
    env: { PATH: '/bin', TMUX: '/tmp/other,1,0', SECRET: 'x' },
    files: {
      readText: async () => null,
      writeAtomic: async (path: string, bytes: Uint8Array, mode: number) => {
        if (!writable) throw new Error('EROFS');
        written.push({ path, text: new TextDecoder().decode(bytes), mode });
      },
    },
    children: {
      run: async (command: Command) => {
        // Every use begins with this call, which has a test of its own.
        if (!showsFirst && command.args.includes('escape-time')) return { code: 1, stdout: '' };
        commands.push(command);
        return { code, stdout };
      },
    },
  } as unknown as Host;
  return { host, commands, written, tmux: createTmux('/usr/bin/tmux', { host, agentHome: '/home/a' }) };
}

describe('tmux commands (contract 02 §3.5)', () => {
  test('name their target exactly, on a server of their own', async () => {
    const { tmux, commands } = fakeHost();
    await tmux.exists('svc-ab');
    await tmux.kill('svc-ab');
    await tmux.capture('svc-ab');
    const server = ['-L', 'svc-relay', '-f', '/home/a/svc-relay-tmux.conf', '-u'];
    expect(commands.map(({ args }) => args)).toEqual([
      [...server, 'has-session', '-t', '=svc-ab'],
      [...server, 'kill-session', '-t', '=svc-ab'],
      [...server, 'capture-pane', '-p', '-S', '-200', '-t', '=svc-ab:'],
    ]);
    expect(commands[0]?.env.TMUX).toBeUndefined();
  });

  test('write the configuration once, for the owner only', async () => {
    const { tmux, written } = fakeHost();
    await Promise.all([tmux.list(), tmux.list()]);
    expect(written).toHaveLength(1);
    expect(written[0]).toMatchObject({ path: '/home/a/svc-relay-tmux.conf', mode: 0o600 });
    for (const line of ['escape-time 0', 'default-terminal tmux-256color', 'history-limit 10000', 'status off']) {
      expect(written[0]?.text).toContain(line);
    }
  });

  test('reset the escape-time of a running server, which a relay killed during a paste may have left', async () => {
    const { tmux, commands } = fakeHost({ showsFirst: true, code: 1 });
    await Promise.all([tmux.exists('svc-a'), tmux.list()]);
    const first = [
      '-L',
      'svc-relay',
      '-f',
      '/home/a/svc-relay-tmux.conf',
      '-u',
      'set-option',
      '-s',
      'escape-time',
      '0',
    ];
    expect(commands[0]?.args).toEqual(first);
    expect(commands).toHaveLength(3);
  });

  test('omit a configuration that cannot be written', async () => {
    const { tmux, commands } = fakeHost({ writable: false });
    await tmux.exists('svc-a');
    expect(commands[0]?.args).toEqual(['-L', 'svc-relay', '-u', 'has-session', '-t', '=svc-a']);
  });

  test('escape names that would end a command or be a format', async () => {
    const { tmux } = fakeHost();
    const args = await tmux.attachArguments('svc-#(id);', '#(id);', '/bin/bash');
    expect(args.slice(5)).toEqual([
      'new-session',
      '-A',
      '-s',
      'svc-##(id)\\;',
      'env',
      'SVC_RELAY_TERMINAL=#(id)\\;',
      '/bin/bash',
      '-l',
    ]);
  });

  test('list sessions with any characters in their names', async () => {
    const { tmux } = fakeHost({ stdout: '1 2 1700000000 svc-a b\n0 1 5 svc-x\\\\y\\$z\nnonsense\n' });
    expect(await tmux.list()).toEqual([
      { name: 'svc-a b', attached: 1, windows: 2, createdAt: 1_700_000_000 },
      { name: 'svc-x\\y$z', attached: 0, windows: 1, createdAt: 5 },
    ]);
  });

  test('return an empty list and no replay on failure', async () => {
    const { tmux } = fakeHost({ code: 1, stdout: 'x' });
    expect(await tmux.list()).toEqual([]);
    expect(await tmux.capture('svc-a')).toBe('');
    expect(await tmux.exists('svc-a')).toBe(false);
  });

  test('trim a replay at its end, to at most 65,536 characters', async () => {
    expect(await fakeHost({ stdout: '  a\n\n  \n\n' }).tmux.capture('svc-a')).toBe('  a');
    expect(await fakeHost({ stdout: 'x'.repeat(70_000) }).tmux.capture('svc-a')).toHaveLength(65_536);
  });
});

describe('environment (contract 02 §3.3)', () => {
  test('is the relay’s, with terminal variables and without secrets', () => {
    const env = {
      A: '1',
      NONE: undefined,
      TERM: 'dumb',
      TMUX: 'x',
      TMUX_PANE: '%1',
      RELAY_PAIRING_CODE: 'AAAAAA',
      RELAY_SECURE_LINK_BROKER_HOST_TOKEN: 'x',
    };
    expect(childEnvironment(env, 'my shell')).toEqual({
      A: '1',
      TERM: 'xterm-256color',
      COLORTERM: 'truecolor',
      SVC_RELAY_TERMINAL: 'my shell',
    });
  });

  test.each([
    ['/home/a', 'directory', '/home/a'],
    ['/home/a', 'file', '.'],
    ['relative', 'directory', '.'],
    [undefined, 'directory', '.'],
  ])('HOME %s, a %s: working directory %s', async (HOME, kind, expected) => {
    const files = { stat: async () => ({ kind }) } as unknown as Host['files'];
    expect(await workingDirectory({ env: { HOME }, files })).toBe(expected);
  });
});

describe('shell (contract 02 §3.4)', () => {
  const children = (...there: string[]) => ({ find: async (file: string) => (there.includes(file) ? file : null) });
  test.each([
    [['/bin/zsh', undefined, '/bin/fish'], ['/bin/zsh', '/bin/fish'], '/bin/zsh'],
    [['zsh', '/missing', '/bin/fish'], ['zsh', '/bin/fish'], '/bin/fish'],
    [[undefined], ['/bin/bash', '/bin/sh'], '/bin/bash'],
    [['./sh'], ['./sh', '/bin/sh'], '/bin/sh'],
    [['/bin/zsh'], [], undefined],
  ])('of %j, with %j on the host: %s', async (candidates, there, expected) => {
    expect(await resolveShell(children(...there), candidates)).toBe(expected);
  });
});

describe('listing (contract 02 §3.8)', () => {
  const session = (name: string, pid: number, tmuxName?: string) =>
    ({ name, pid, tmuxName, shell: '/bin/bash' }) as unknown as Session;

  test('tmux: one row per session, merged with live ones, by name', () => {
    const mine = session('my tab', 1, 'svc-my_tab');
    const alias = session('my_tab', 2, 'svc-my_tab');
    const starting = session('soon', 3, 'svc-soon');
    const listed = ['svc-zz', 'svc-my_tab', 'private'].map((name) => ({ name, attached: 1, windows: 1, createdAt: 7 }));
    const rows = listRows({
      listed,
      live: [alias, mine, starting],
      own: new Set([mine]),
      parked: new Set(),
      shell: '/bin/sh',
    });
    const tmux = { attached: 1, windows: 1, created_at: 7 };
    expect(rows).toEqual([
      {
        name: 'my tab',
        tmux_name: 'svc-my_tab',
        ...tmux,
        pid: 1,
        shell: '/bin/bash',
        live: true,
        owned_by_client: true,
      },
      { name: 'soon', tmux_name: 'svc-soon', pid: 3, shell: '/bin/bash', live: true, owned_by_client: false },
      { name: 'zz', tmux_name: 'svc-zz', ...tmux, shell: '/bin/sh', live: false, owned_by_client: false },
    ]);
  });

  test('without tmux: sessions of the socket, and parked ones of its device', () => {
    const own = session('b', 1);
    const parked = session('a', 2);
    const live = [own, parked, session('other', 3)];
    expect(listRows({ live, own: new Set([own]), parked: new Set([parked]), shell: '' })).toEqual([
      { name: 'a', shell: '/bin/bash', live: false, owned_by_client: false },
      { name: 'b', pid: 1, shell: '/bin/bash', live: true, owned_by_client: true },
    ]);
  });
});

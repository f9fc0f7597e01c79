import { describe, expect, test } from 'vitest';
import type { Command, Host } from '../../../lib/host/index.ts';
import { childEnvironment, resolveShell, workingDirectory } from '../../../lib/terminal/environment.ts';
import { listRows } from '../../../lib/terminal/list.ts';
import type { Session } from '../../../lib/terminal/session.ts';
import { createTmux, type Tmux } from '../../../lib/terminal/tmux.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

const clock = createTestClock();
const OWNER = { family: 'f'.repeat(16), device: 'd'.repeat(16) };

interface FakeHostOptions {
  writable?: boolean;
  stdout?: string;
  stderr?: string;
  code?: number | null;
  /** Errno of every look at a real path. */
  unresolved?: string;
  /** Whether the first command is recorded, too. */
  showsFirst?: boolean;
  home?: string;
  /** Its configuration file, as an earlier version left it. */
  config?: string;
}

function fakeHost(options: FakeHostOptions = {}) {
  const { writable = true, stdout = '', stderr = '', code = 0, showsFirst = false } = options;
  const { home = '/home/a/.svc', config = null, unresolved } = options;
  const log = createTestLog();
  const commands: Command[] = [];
  const written: { path: string; text: string; mode: number }[] = [];
  const host = {
    env: { PATH: '/bin', TMUX: '/tmp/other,1,0', SECRET: 'x', HOME: '/home/a' },
    files: {
      readText: async () => config,
      realPath: async (path: string) => {
        if (unresolved) throw Object.assign(new Error(`${unresolved}: injected`), { code: unresolved });
        return path;
      },
      writeAtomic: async (path: string, bytes: Uint8Array, mode: number) => {
        if (!writable) throw new Error('EROFS');
        written.push({ path, text: new TextDecoder().decode(bytes), mode });
      },
    },
    children: {
      run: async (command: Command) => {
        // Every use begins with this call, which has a test of its own.
        if (!showsFirst && command.args.includes('escape-time'))
          return { code: 1, stdout: '', stderr: 'no server running on /tmp/tmux-0/svc-relay' };
        commands.push(command);
        return { code, stdout, stderr };
      },
    },
  } as unknown as Host;
  return { host, log, commands, written, tmux: createTmux('/usr/bin/tmux', { host, agentHome: home, clock, log }) };
}

async function configOf(home: string): Promise<string> {
  const { tmux, written } = fakeHost({ home });
  await tmux.list();
  return written[0]?.text ?? '';
}

describe('what a revoke must know of tmux (contract 02 §1.5)', () => {
  const questions = [
    ['shells', (tmux: Tmux) => tmux.shells()],
    ['origin', (tmux: Tmux) => tmux.origin('$3')],
    ['end', (tmux: Tmux) => tmux.end('$3')],
  ] as const;

  test.each([
    ['no server', 'no server running on /tmp/tmux-0/svc-relay\n'],
    ['no socket', 'error connecting to /tmp/tmux-0/svc-relay (No such file or directory)\n'],
    ['no session', "can't find session: $3\n"],
    ['a server without a session', 'no current target\n'],
    ['no session of the options', 'no such session: $3\n'],
  ])('%s: no shells', async (_, stderr) => {
    for (const [name, ask] of questions) {
      const nothing = name === 'shells' ? [] : undefined;
      expect(await ask(fakeHost({ code: 1, stderr }).tmux), name).toEqual(nothing);
    }
  });

  test('a server that ends before it has answered is asked again: it may have a successor', async () => {
    for (const [name, ask] of questions) {
      const ending = fakeHost({ code: 1, stderr: 'server exited unexpectedly\n' });
      await expect(ask(ending.tmux), name).rejects.toThrow('server exited unexpectedly');
      expect(ending.commands.length, name).toBeGreaterThan(2);
    }
  });

  test.each<[string, FakeHostOptions]>([
    ['tmux did not run', { code: null }],
    ['tmux failed', { code: 1 }],
    ['the socket is refused', { code: 1, stderr: 'error connecting to /tmp/tmux-0/x (Permission denied)\n' }],
    ['the server was lost', { code: 1, stderr: 'server exited unexpectedly\n' }],
    ['no descriptors are left for the path of the home', { unresolved: 'EMFILE' }],
    ['the disk fails under the home', { unresolved: 'EIO' }],
  ])('%s: nobody knows, which throws', async (_, options) => {
    for (const [name, ask] of questions) await expect(ask(fakeHost(options).tmux), name).rejects.toThrow('tmux');
  });

  test('owners that cannot be read throw: the shell is not taken for nobody\u2019s', async () => {
    const { host, log } = fakeHost({ stdout: '$3 svc-a\n' });
    const run = host.children.run;
    host.children.run = async (command, timeout) =>
      command.args.includes('show-options') ? { code: null, stdout: '', stderr: '' } : run(command, timeout);
    const tmux = createTmux('/usr/bin/tmux', { host, agentHome: '/home/a/.svc', clock, log });
    await expect(tmux.shells()).rejects.toThrow('show-options');
  });

  test('a home whose path could not be told is looked up again', async () => {
    const { host, log } = fakeHost({ stdout: '' });
    const { realPath } = host.files;
    host.files.realPath = async () => Promise.reject(Object.assign(new Error('EMFILE'), { code: 'EMFILE' }));
    const tmux = createTmux('/usr/bin/tmux', { host, agentHome: '/home/a/.svc', clock, log });
    await expect(tmux.shells()).rejects.toThrow('EMFILE');
    host.files.realPath = realPath;
    expect(await tmux.shells()).toEqual([]);
  });
});

describe('tmux commands (contract 02 §3.5)', () => {
  test('name their target exactly, on a server of their own', async () => {
    const { tmux, commands } = fakeHost();
    await tmux.exists('svc-ab');
    await tmux.kill('svc-ab');
    await tmux.capture('svc-ab');
    const server = ['-L', 'svc-relay', '-f', '/home/a/.svc/svc-relay-tmux.conf', '-u'];
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
    expect(written[0]).toMatchObject({ path: '/home/a/.svc/svc-relay-tmux.conf', mode: 0o600 });
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
      '/home/a/.svc/svc-relay-tmux.conf',
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
    const args = await tmux.attachArguments('svc-#(id);', {
      name: '#(id);',
      shell: '/bin/bash',
      owner: OWNER,
      ofRun: false,
    });
    expect(args.slice(5)).toEqual([
      'new-session',
      '-A',
      '-s',
      'svc-##(id)\\;',
      'env',
      'SVC_RELAY_TERMINAL=#(id)\\;',
      '/bin/bash',
      '-l',
      ';',
      'set-option',
      `@svc-device-${OWNER.family}`,
      OWNER.device,
      ';',
      'set-option',
      '@svc-last',
      OWNER.family,
    ]);
  });

  test('every home but the default one has a server of its own', async () => {
    const socketOf = async (home: string): Promise<unknown> => {
      const { tmux, commands, written } = fakeHost({ home });
      await tmux.exists('svc-a');
      expect(written[0]?.text.split('\n')[0]).toContain(`(tmux -L ${commands[0]?.args[1]})`);
      return commands[0]?.args[1];
    };
    expect(await socketOf('/home/a/.svc')).toBe('svc-relay');
    // The first 8 hex digits of the SHA-256 of its real path.
    expect(await socketOf('/srv/agent')).toBe('svc-relay-5ecc1654');
    expect(await socketOf('/home/b/.svc')).not.toBe('svc-relay');
  });

  test('a home that is the default one by HOME alone has a server of its own', async () => {
    const socketOf = async (home: string, passwd: string | null): Promise<unknown> => {
      const { host, commands, log } = fakeHost();
      const users = { home: passwd } as Host['users'];
      const tmux = createTmux('/usr/bin/tmux', {
        host: { ...host, users, env: { HOME: '/srv/b' } },
        agentHome: home,
        clock,
        log,
      });
      await tmux.exists('svc-a');
      return commands[0]?.args[1];
    };
    expect(await socketOf('/srv/b/.svc', '/home/a')).toMatch(/^svc-relay-[0-9a-f]{8}$/);
    expect(await socketOf('/home/a/.svc', '/home/a')).toBe('svc-relay');
    expect(await socketOf('/srv/b/.svc', null)).toMatch(/^svc-relay-[0-9a-f]{8}$/);
  });

  test('shells on the server that homes once shared are named in the log, once', async () => {
    const old = (await configOf('/home/a/.svc')).replace('mouse on', 'mouse off');
    const stdout = 'svc-main\nprivate\nsvc-build\n';
    const { tmux, log, commands, written } = fakeHost({ home: '/srv/agent', config: old, stdout, showsFirst: true });
    await tmux.exists('svc-a');
    await tmux.exists('svc-b');
    expect(commands.filter(({ args }) => args[1] === 'svc-relay')).toHaveLength(1);
    expect(log.lines).toHaveLength(1);
    expect(log.lines[0]).toMatch(/tmux -L svc-relay attach.*: svc-main, svc-build$/);
    // What is written then no longer names that server, so that the next start does not look there again.
    const again = fakeHost({ home: '/srv/agent', config: written[0]?.text, stdout, showsFirst: true });
    await again.tmux.exists('svc-a');
    expect(again.log.lines).toEqual([]);
    expect(again.commands.filter(({ args }) => args[1] === 'svc-relay')).toEqual([]);
    const other = fakeHost({ home: '/srv/agent', config: old, stdout: 'private\n' });
    await other.tmux.exists('svc-a');
    expect(other.log.lines).toEqual([]);
  });

  test('shells with the devices that attached them, and where their programs come from', async () => {
    const listing = fakeHost({ stdout: `$3 svc-a b\n@svc-device-${OWNER.family} -\n@svc-device-x y\nstatus off\n` });
    expect(await listing.tmux.shells()).toEqual([{ id: '$3', name: 'svc-a b', owners: [{ ...OWNER, device: '' }] }]);
    expect(listing.commands[1]?.args.slice(-3)).toEqual(['show-options', '-t', '$3']);
    const { tmux } = fakeHost({ stdout: '77 9 /tmp/tmux-0/svc relay\n78 9 /tmp/tmux-0/svc relay\n' });
    expect(await tmux.origin('$3')).toEqual({ leaders: [77, 78], marks: ['TMUX=/tmp/tmux-0/svc relay,9,3'] });
    expect(await fakeHost({ code: 1, stderr: "can't find session: $3\n" }).tmux.origin('$3')).toBeUndefined();
  });

  test('list sessions with any characters in their names', async () => {
    const { tmux } = fakeHost({
      stdout: `1 2 1700000000 1700000009 ${OWNER.family} svc-a b\n0 1 5 6  svc-x\\\\y\\$z\nnonsense\n`,
    });
    const known = { lastLine: '' };
    expect(await tmux.list()).toEqual([
      {
        name: 'svc-a b',
        attached: 1,
        windows: 2,
        createdAt: 1_700_000_000,
        activeAt: 1_700_000_009,
        last: OWNER.family,
        ...known,
      },
      { name: 'svc-x\\y$z', attached: 0, windows: 1, createdAt: 5, activeAt: 6, last: '', ...known },
    ]);
  });

  test('list looks at a screen once more after its last output, and then no more', async () => {
    const { host, log } = fakeHost();
    const sessions = [
      { name: 'svc-a', activeAt: 10, screen: '$ make\n\x07done\n\n\n' },
      { name: 'svc-b', activeAt: 5, screen: '\n' },
    ];
    const captured: string[][] = [];
    host.children.run = async ({ args }) => {
      if (args.includes('list-sessions')) {
        const rows = sessions.map(({ name, activeAt }) => `0 1 1 ${activeAt}  ${name}\n`);
        return { code: 0, stdout: rows.join(''), stderr: '' };
      }
      if (!args.includes('capture-pane')) return { code: 0, stdout: '', stderr: '' };
      const asked = args.flatMap((arg) => /^=(.+):$/.exec(arg)?.[1] ?? []);
      captured.push(asked);
      const mark = args[args.indexOf('display-message') + 2];
      // The second of them has ended meanwhile, and with it the command.
      const screens = asked.slice(0, 1).map((name) => sessions.find((session) => session.name === name)?.screen);
      return { code: 1, stdout: screens.map((screen) => `${screen}${mark}\n`).join(''), stderr: '' };
    };
    const tmux = createTmux('/usr/bin/tmux', { host, agentHome: '/home/a/.svc', clock, log });
    const lines = async () => (await tmux.list()).map(({ lastLine }) => lastLine);
    expect(await lines()).toEqual(['done', '']);
    clock.advance(1_000);
    expect(await lines()).toEqual(['done', '']);
    clock.advance(1_000);
    expect(await lines()).toEqual(['done', '']);
    clock.advance(1_000);
    await lines();
    expect(captured).toEqual([['svc-a', 'svc-b'], ['svc-a', 'svc-b'], ['svc-b'], ['svc-b']]);
    sessions[0] = { name: 'svc-a', activeAt: 11, screen: 'new\n' };
    expect(await lines()).toEqual(['new', '']);
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
    const facts = { attached: 1, windows: 1, createdAt: 7, activeAt: 8 };
    const listed = ['svc-zz', 'svc-my_tab', 'private'].map((name) => ({
      name,
      ...facts,
      last: name === 'svc-zz' ? 'gone' : 'hash',
      lastLine: name === 'svc-zz' ? '' : 'make: done',
    }));
    const rows = listRows({
      listed,
      live: [alias, mine, starting],
      own: new Set([mine]),
      parked: new Set(),
      shell: '/bin/sh',
      deviceOf: () => 'Laptop',
      deviceOfFamily: (hash) => (hash === 'hash' ? 'Pixel' : undefined),
    });
    const tmux = { attached: 1, windows: 1, created_at: 7, active_at: 8 };
    expect(rows).toEqual([
      {
        name: 'my tab',
        tmux_name: 'svc-my_tab',
        ...tmux,
        device: 'Pixel',
        last_line: 'make: done',
        pid: 1,
        shell: '/bin/bash',
        live: true,
        owned_by_client: true,
      },
      {
        name: 'soon',
        tmux_name: 'svc-soon',
        device: 'Laptop',
        pid: 3,
        shell: '/bin/bash',
        live: true,
        owned_by_client: false,
      },
      { name: 'zz', tmux_name: 'svc-zz', ...tmux, shell: '/bin/sh', live: false, owned_by_client: false },
    ]);
  });

  test('without tmux: sessions of the socket, and parked ones of its device', () => {
    const times = { createdAt: 7_900, activeAt: 8_900 };
    const own = Object.assign(session('b', 1), { ...times, attached: 2, lastLine: 'make: done' });
    const parked = Object.assign(session('a', 2), { ...times, attached: 0, lastLine: '' });
    const live = [own, parked, session('other', 3)];
    const rows = listRows({
      live,
      own: new Set([own]),
      parked: new Set([parked]),
      shell: '',
      deviceOf: () => 'Pixel',
      deviceOfFamily: () => undefined,
    });
    const row = { shell: '/bin/bash', created_at: 7, active_at: 8, device: 'Pixel' };
    expect(rows).toEqual([
      { ...row, name: 'a', attached: 0, live: false, owned_by_client: false },
      { ...row, name: 'b', pid: 1, attached: 2, last_line: 'make: done', live: true, owned_by_client: true },
    ]);
  });
});

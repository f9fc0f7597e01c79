import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Host } from '../../../lib/host/index.ts';
import { createNodeHost } from '../../../lib/host/node/index.ts';
import { planCommand, type Wish } from '../../../lib/tui/command.ts';
import { clampEdge } from '../../../lib/tui/size.ts';
import { temporaryDirectory } from '../../support/temp.ts';

interface Setup {
  files?: Record<string, string>;
  env?: Record<string, string | undefined>;
  tuiCommand?: string;
  wish?: Wish;
}

/** A host where every program is found; `$` in texts is the directory with its files. */
async function plan({ files = {}, env = {}, tuiCommand, wish = {} }: Setup) {
  const home = await temporaryDirectory(files);
  const inPlace = Object.fromEntries(Object.entries(env).map(([name, value]) => [name, value?.replaceAll('$', home)]));
  const real = createNodeHost({ agentHome: join(home, 'agent'), env: { HOME: home, ...inPlace } });
  const host: Host = { ...real, children: { ...real.children, find: async (file) => file } };
  const planned = await planCommand({ host, config: { tuiCommand, home: '/elsewhere' } }, wish);
  return JSON.parse(JSON.stringify(planned).replaceAll(home, '$')) as typeof planned;
}

async function command(setup: Setup) {
  const planned = await plan(setup);
  if (planned.kind !== 'command') throw new Error(JSON.stringify(planned));
  return planned.command;
}

const module = { 'agent/svc-agent/tui_gateway/entry.py': '' };

describe('contract 02 §4.2: which program is started', () => {
  it('RELAY_TUI_COMMAND comes first, module or not', async () => {
    const given = { tuiCommand: `gate 'a b' --x`, env: { PYTHONPATH: '/p' } };
    expect(await command(given)).toEqual({
      file: 'gate',
      args: ['a b', '--x'],
      cwd: '$',
      env: {
        HOME: '$',
        PYTHONPATH: '/p',
        SVC_PYTHON_SRC_ROOT: '$/agent/svc-agent',
        SVC_PYTHON: 'python3',
        SVC_CWD: '$',
      },
    });
    expect(await command({ ...given, files: module })).toMatchObject({ file: 'gate', cwd: '$/agent/svc-agent' });
  });

  it('a malformed RELAY_TUI_COMMAND is an error, not a reason to look elsewhere', async () => {
    const broken = { tuiCommand: `gate 'a`, files: module };
    expect(await plan(broken)).toEqual({ kind: 'failed', reason: 'RELAY_TUI_COMMAND is malformed' });
  });

  it('else the gateway module of the agent', async () => {
    expect(await command({ files: module })).toEqual({
      file: 'python3',
      args: ['-m', 'tui_gateway.entry'],
      cwd: '$/agent/svc-agent',
      env: {
        HOME: '$',
        PYTHONPATH: '$/agent/svc-agent',
        SVC_PYTHON_SRC_ROOT: '$/agent/svc-agent',
        SVC_PYTHON: 'python3',
        SVC_CWD: '$/agent/svc-agent',
      },
    });
  });

  it('no source root, or a file in its place: not installed', async () => {
    expect(await plan({})).toEqual({ kind: 'not-installed' });
    expect(await plan({ files: { 'agent/svc-agent': '' } })).toEqual({ kind: 'not-installed' });
    expect(await plan({ files: module, env: { SVC_PYTHON_SRC_ROOT: '$/other' } })).toEqual({ kind: 'not-installed' });
  });

  it('the source root of SVC_PYTHON_SRC_ROOT', async () => {
    const { cwd, env } = await command({
      files: { 'src/a': '' },
      env: { SVC_PYTHON_SRC_ROOT: '$/src', PYTHONPATH: '/one:/two' },
    });
    expect(cwd).toBe('$/src');
    expect(env).toMatchObject({ SVC_PYTHON_SRC_ROOT: '$/src', PYTHONPATH: '$/src:/one:/two' });
  });

  it.each([
    [{ SVC_PYTHON: '/py', PYTHON: '/other' }, ['.venv/bin/python'], '/py'],
    [{ SVC_PYTHON: '', PYTHON: 'pypy' }, ['.venv/bin/python'], 'pypy'],
    [{}, ['venv/bin/python3', 'venv/bin/python', '.venv/bin/python3', '.venv/bin/python'], '.venv/bin/python'],
    [{}, ['venv/bin/python3', 'venv/bin/python', '.venv/bin/python3'], '.venv/bin/python3'],
    [{}, ['venv/bin/python3', 'venv/bin/python'], 'venv/bin/python'],
    [{}, ['venv/bin/python3'], 'venv/bin/python3'],
    [{}, [], 'python3'],
  ])('the interpreter with %j and %j is %s', async (env, present, expected) => {
    const files = Object.fromEntries(present.map((name) => [`agent/svc-agent/${name}`, '']));
    const { file, env: given } = await command({ files: { ...module, ...files }, env });
    const path = expected.includes('venv') ? `$/agent/svc-agent/${expected}` : expected;
    expect(file).toBe(path);
    expect(given.SVC_PYTHON).toBe(path);
  });

  it('the working directory of SVC_CWD, when it is one', async () => {
    expect((await command({ files: module, env: { SVC_CWD: '$/agent' } })).cwd).toBe('$/agent');
    const { cwd, env } = await command({ files: module, env: { SVC_CWD: '$/missing' } });
    expect([cwd, env.SVC_CWD]).toEqual(['$/agent/svc-agent', '$/missing']);
    expect((await command({ tuiCommand: 'gate', env: { HOME: undefined } })).cwd).toBe('/elsewhere');
  });

  it('a program that is not there', async () => {
    const home = await temporaryDirectory();
    await mkdir(join(home, 'svc-agent'));
    const host = createNodeHost({ agentHome: home, env: { PATH: home } });
    expect(await planCommand({ host, config: { home } }, {})).toEqual({
      kind: 'failed',
      reason: 'the program was not found or is not executable',
    });
  });
});

describe('contract 02 §4.2: environment', () => {
  it("is the relay's, without its secrets, and with what the client wishes", async () => {
    const { env } = await command({
      tuiCommand: 'gate',
      env: {
        A: 'b',
        RELAY_PAIRING_CODE: 'ABCDEF',
        RELAY_SECURE_LINK_BROKER_HOST_TOKEN: 't',
        COLUMNS: '1',
        GAP: undefined,
      },
      wish: { profile: 'work', resume_session_id: 's/1', cols: 132.9, rows: 100_000 },
    });
    expect(env).toMatchObject({ A: 'b', SVC_PROFILE: 'work', SVC_TUI_RESUME: 's/1', COLUMNS: '132', LINES: '1000' });
    for (const name of ['RELAY_PAIRING_CODE', 'RELAY_SECURE_LINK_BROKER_HOST_TOKEN', 'GAP', 'PYTHONPATH']) {
      expect(env).not.toHaveProperty(name);
    }
  });

  it('null, empty and missing wishes are absent', async () => {
    const wish = { profile: null, resume_session_id: '', cols: 0, rows: null };
    const { env } = await command({ tuiCommand: 'gate', wish });
    for (const name of ['SVC_PROFILE', 'SVC_TUI_RESUME', 'COLUMNS', 'LINES']) expect(env).not.toHaveProperty(name);
  });

  it.each([
    { profile: '../etc' },
    { profile: 'a\nb' },
    { profile: 'x'.repeat(129) },
    { profile: 7 },
    { resume_session_id: 'a\0' },
    { resume_session_id: 'x'.repeat(257) },
    { resume_session_id: {} },
  ])('refuses %j', async (wish) => {
    expect(await plan({ tuiCommand: 'gate', wish })).toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining(Object.keys(wish)[0] as string),
    });
  });

  it('allows names of full length', async () => {
    const wish = { profile: 'x'.repeat(128), resume_session_id: 'y'.repeat(256) };
    expect((await plan({ tuiCommand: 'gate', wish })).kind).toBe('command');
  });
});

it.each([
  [80, 80],
  [1.9, 1],
  [0.5, 1],
  [-4, 1],
  [1e9, 1000],
  [Number.POSITIVE_INFINITY, 1000],
  [0, undefined],
  [null, undefined],
  ['80', undefined],
])('a window edge of %j is %j', (value, expected) => expect(clampEdge(value)).toBe(expected));

import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Host } from '../../../lib/host/index.ts';
import { type AttachPayload, clampEdge, parseCommand, planCommand } from '../../../lib/tui/command.ts';
import { createTestHost } from '../../support/host.ts';
import { runs } from '../../support/runs.ts';
import { temporaryDirectory } from '../../support/temp.ts';

interface Setup {
  files?: Record<string, string>;
  env?: Record<string, string | undefined>;
  tuiCommand?: string;
  payload?: AttachPayload;
}

/** A host that finds every program; `$` in strings stands for the directory of its files. */
async function plan({ files = {}, env = {}, tuiCommand, payload = {} }: Setup) {
  const home = await temporaryDirectory(files);
  const inPlace = Object.fromEntries(Object.entries(env).map(([name, value]) => [name, value?.replaceAll('$', home)]));
  const real = createTestHost({ agentHome: join(home, 'agent'), env: { HOME: home, ...inPlace } });
  const host: Host = { ...real, children: { ...real.children, find: async (file) => file } };
  const planned = await planCommand({ host, config: { tuiCommand, home: '/elsewhere' } }, payload);
  return JSON.parse(JSON.stringify(planned).replaceAll(home, '$')) as typeof planned;
}

async function command(setup: Setup) {
  const planned = await plan(setup);
  if (planned.kind !== 'command') throw new Error(JSON.stringify(planned));
  return planned.command;
}

const module = { 'agent/svc-agent/tui_gateway/entry.py': '' };

describe('contract 02 §4.2: program', () => {
  it('prefers RELAY_TUI_COMMAND, with or without the module', async () => {
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

  it('reports a malformed RELAY_TUI_COMMAND instead of falling back', async () => {
    const broken = { tuiCommand: `gate 'a`, files: module };
    expect(await plan(broken)).toEqual({ kind: 'failed', reason: 'RELAY_TUI_COMMAND is malformed' });
  });

  it('falls back to the gateway module of the agent', async () => {
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

  it('is not installed without a source root, or with a file in its place', async () => {
    expect(await plan({})).toEqual({ kind: 'not-installed' });
    expect(await plan({ files: { 'agent/svc-agent': '' } })).toEqual({ kind: 'not-installed' });
    expect(await plan({ files: module, env: { SVC_PYTHON_SRC_ROOT: '$/other' } })).toEqual({ kind: 'not-installed' });
  });

  it('takes the source root from SVC_PYTHON_SRC_ROOT', async () => {
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

  it('takes the working directory from SVC_CWD if it exists', async () => {
    expect((await command({ files: module, env: { SVC_CWD: '$/agent' } })).cwd).toBe('$/agent');
    const { cwd, env } = await command({ files: module, env: { SVC_CWD: '$/missing' } });
    expect([cwd, env.SVC_CWD]).toEqual(['$/agent/svc-agent', '$/missing']);
    expect((await command({ tuiCommand: 'gate', env: { HOME: undefined } })).cwd).toBe('/elsewhere');
  });

  it('reports a missing program', async () => {
    const home = await temporaryDirectory();
    await mkdir(join(home, 'svc-agent'));
    const host = createTestHost({ agentHome: home, env: { PATH: home } });
    expect(await planCommand({ host, config: { home } }, {})).toEqual({
      kind: 'failed',
      reason: 'the program was not found or is not executable',
    });
  });
});

describe('contract 02 §4.2: environment', () => {
  it("is the relay's, without its secrets, and with the client's values", async () => {
    const { env } = await command({
      tuiCommand: 'gate',
      env: {
        A: 'b',
        RELAY_PAIRING_CODE: 'ABCDEF',
        RELAY_SECURE_LINK_BROKER_HOST_TOKEN: 't',
        COLUMNS: '1',
        GAP: undefined,
      },
      payload: { profile: 'work', resume_session_id: 's/1', cols: 132.9, rows: 100_000 },
    });
    expect(env).toMatchObject({ A: 'b', SVC_PROFILE: 'work', SVC_TUI_RESUME: 's/1', COLUMNS: '132', LINES: '1000' });
    for (const name of ['RELAY_PAIRING_CODE', 'RELAY_SECURE_LINK_BROKER_HOST_TOKEN', 'GAP', 'PYTHONPATH']) {
      expect(env).not.toHaveProperty(name);
    }
  });

  it('treats null, empty and missing values as absent', async () => {
    const payload = { profile: null, resume_session_id: '', cols: 0, rows: null };
    const { env } = await command({ tuiCommand: 'gate', payload });
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
  ])('refuses %j', async (payload) => {
    expect(await plan({ tuiCommand: 'gate', payload })).toMatchObject({
      kind: 'invalid',
      message: expect.stringContaining(Object.keys(payload)[0] as string),
    });
  });

  it('allows names of maximum length', async () => {
    const payload = { profile: 'x'.repeat(128), resume_session_id: 'y'.repeat(256) };
    expect((await plan({ tuiCommand: 'gate', payload })).kind).toBe('command');
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

describe('contract 02 §4.2.1: RELAY_TUI_COMMAND', () => {
  it.each([
    ['python3 -m gateway', ['python3', '-m', 'gateway']],
    ['a \\ ', ['a', ' ']],
    ['  a\t b \n c ', ['a', 'b', 'c']],
    [`'a b' "c d" e\\ f`, ['a b', 'c d', 'e f']],
    [`a'b'"c"d`, ['abcd']],
    [`a '' ""`, ['a', '', '']],
    [`a "q\\"q" "b\\\\s" "k\\n" '\\n'`, ['a', 'q"q', 'b\\s', 'k\\n', '\\n']],
    ['a $HOME `id` *.ts ~ a;b|c && d > e # f', 'a $HOME `id` *.ts ~ a;b|c && d > e # f'.split(' ')],
    ['["/a b", "", "\\n"]', ['/a b', '', '\n']],
    [' ["a"]', ['a']],
    ['a b\\  ', ['a', 'b ']],
    ['a \\\t', ['a', '\t']],
  ])('%j', (text, words) => expect(parseCommand(text)).toEqual(words));

  it.each([
    '',
    '   ',
    `a 'b`,
    'a "b',
    'a\\',
    `"a'`,
    `"" b`,
    '[]',
    '["a"',
    '[""]',
    '["a", 1]',
    '["a\\u0000"]',
    '[["a"]]',
  ])('is malformed: %j', (text) => expect(parseCommand(text)).toBeNull());

  it('restores quoted words', () => {
    const word = fc.string({ unit: 'binary' }).map((text) => text.replaceAll('\0', ''));
    const quotes = [
      (text: string) => `'${text.replaceAll("'", `'\\''`)}'`,
      (text: string) => `"${text.replace(/["\\]/g, '\\$&')}"`,
      (text: string) => (text === '' ? "''" : text.replace(/./gs, '\\$&')),
      (text: string) => text,
    ];
    const quoted = fc.tuple(word, fc.nat(2)).map(([text, quote]) => ({ text, quoted: quotes[quote]?.(text) ?? '' }));
    fc.assert(
      fc.property(fc.array(quoted), (words) => {
        const line = ['program', ...words.map((word) => word.quoted)].join(' ');
        expect(parseCommand(line)).toEqual(['program', ...words.map((word) => word.text)]);
        expect(parseCommand(JSON.stringify(['program', ...words.map((word) => word.text)]))).toEqual(
          parseCommand(line),
        );
      }),
      { numRuns: runs(100) },
    );
  });

  it('never throws', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('a', ' ', '"', "'", '\\', '[', ']', ',') }), (text) => {
        const words = parseCommand(text);
        expect(words === null || words.length > 0).toBe(true);
      }),
    );
  });
});

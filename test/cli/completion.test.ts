import { spawnSync } from 'node:child_process';
import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { completionNodes } from '../../cli/completion/nodes.ts';
import { agentHome, fakeRelay, run } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { runSvc, temporaryHome } from '../support/process.ts';
import { openPty } from '../support/pty.ts';
import { hasProgram } from '../support/terminal.ts';

/** A command line up to the cursor, and its completions. */
const OFFERED: [line: string, words: string[]][] = [
  ['svc re', ['reach', 'relay', 'restart', 'restore']],
  ['svc restore no', ['note.wav']],
  ['svc relay backup no', ['note.wav']],
  ['/usr/local/bin/svc rel', ['relay']],
  ['svc relay st', ['start']],
  ['svc relay insecure-api-bearer e', ['enable']],
  ['svc-relay ser', ['service']],
  ['svc devices re', ['reduce', 'rename', 'revoke']],
  ['svc devices --json rev', ['revoke']],
  ['svc devices revoke --y', ['--yes']],
  ['svc relay start --p', ['--pairing-code', '--port']],
  // The value of an option is no command.
  ['svc logs --relay stop --fol', ['--follow']],
  ['svc completion ', ['bash', 'fish', 'zsh']],
  ['svc voice transcribe no', ['note.wav']],
  ['svc relay start --config no', ['note.wav']],
  ['svc companion tr', ['triggers', 'trusted']],
  ['svc companion triggers k', ['kill']],
  ['svc companion import no', ['note.wav']],
  ['svc relay zz', []],
  ['svc pair --mode ', ['auto', 'lan', 'public', 'tailscale']],
  ['svc companion run --approve al', ['always']],
  ['svc voice talk --provider x', ['xai_realtime']],
  ['svc mcp install cl', ['claude']],
  ['svc help dev', ['devices']],
  ['svc help companion tru', ['trusted']],
  ['svc relay help doc', ['doctor']],
  // No file where a value is meant.
  ['svc pair --name no', []],
  ['svc pair --mode no', []],
];

const NOTHING = { code: 0, stdout: '', stderr: '' };

async function script(shell: string): Promise<{ text: string; file: string; home: string }> {
  const home = await temporaryHome();
  const { code, stdout, stderr } = await runSvc(['completion', shell], { home });
  expect([code, stderr]).toEqual([0, '']);
  const file = join(home, 'completion');
  await mkdir(join(home, 'work'));
  await writeFile(join(home, 'work', 'note.wav'), '');
  await writeFile(file, stdout);
  return { text: stdout, file, home };
}

const has = (shell: string): boolean => {
  const found = hasProgram(shell);
  if (!found) process.stderr.write(`SKIPPED: ${shell} is not installed\n`);
  return found;
};

describe('svc completion (issue 16)', () => {
  test('bash offers what the commands declare', async () => {
    const { file, home } = await script('bash');
    /** Asks the function as readline does. */
    const ask = (lines: string[]): string[][] => {
      const asked = lines.map((line) => `ask ${line.replaceAll('=', ' = ')}${line.endsWith(' ') ? "''" : ''}`);
      const program = `source "$0"
        compopt() { [[ $* == '-o default' ]] && COMPREPLY=($(compgen -f -- "\${COMP_WORDS[COMP_CWORD]}")) && compopt=1; }
        ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); local compopt=
          _svc_relay; local kept=("\${COMPREPLY[@]}"); printf '%s ' "\${kept[@]}"; echo; }
        ${asked.join('\n')}`;
      const result = spawnSync('bash', ['--norc', '-c', program, file], { cwd: join(home, 'work'), encoding: 'utf8' });
      expect([result.status, result.stderr]).toEqual([0, '']);
      return result.stdout
        .slice(0, -1)
        .split('\n')
        .map((row) => row.split(' ').filter(Boolean).sort());
    };
    expect(ask(OFFERED.map(([line]) => line))).toEqual(OFFERED.map(([, words]) => words));
    const joined = ['svc relay start --config=no', 'svc relay start --port=80 --ho', 'svc pair --mode=ta'];
    expect(ask(joined)).toEqual([['note.wav'], ['--host'], ['tailscale']]);

    const nodes = await completionNodes();
    expect(nodes.length).toBeGreaterThan(40);
    const sorted = (words: { word: string }[]) => words.map(({ word }) => word).sort();
    const beginnings = nodes.map(({ path }) => path.replaceAll('/', ' '));
    expect(ask(beginnings.map((line) => `${line} -`))).toEqual(nodes.map(({ options }) => sorted(options)));
    const groups = nodes.filter(({ words }) => words.length > 0);
    expect(ask(groups.map(({ path }) => `${path.replaceAll('/', ' ')} `))).toEqual(
      groups.map(({ words }) => sorted(words)),
    );
  });

  test.skipIf(!has('zsh'))('zsh completes in a terminal', { timeout: 60_000 }, async () => {
    const { home } = await script('zsh');
    const env = { HOME: home, ZDOTDIR: home, LANG: 'C.UTF-8' };
    await writeFile(
      join(home, '.zshrc'),
      "PS1='> '\nLISTMAX=1000\nautoload -Uz compinit && compinit -u -D\nsource ~/completion\nzstyle ':completion:*' list-separator --\n",
    );
    const shell = openPty('zsh', ['-i'], { cols: 120, rows: 40, cwd: join(home, 'work'), env });
    await shell.shows(/^>$/m);
    for (const [line, words] of OFFERED) {
      // Ctrl-U and Ctrl-L: an empty line on an empty screen.
      shell.type(`\u0015\u000c${line}\t`);
      const [only] = words;
      if (words.length === 1) {
        await shell.shows(new RegExp(`^> ${line.slice(0, line.lastIndexOf(' ') + 1)}${only}( |$)`, 'm'));
        continue;
      }
      // A second Tab lists what the first one left open.
      if (words.length > 1) shell.type('\t');
      for (const word of words) await shell.shows(new RegExp(`^(?!>).*(?<![\\w-])${word}(?![\\w-])`, 'm'));
    }
    // As a file in $fpath.
    shell.type(
      '\u0015\u000cunfunction _svc _svc_node; mkdir ~/f; cp ~/completion ~/f/_svc; fpath=(~/f $fpath); compinit -u -D; echo rea""dy\r',
    );
    await shell.shows(/^ready/m);
    shell.type('\u000csvc reach tok\t');
    await shell.shows(/^> svc reach token/m);
  });

  test.skipIf(!has('fish'))('fish offers the same, with summaries', async () => {
    const { file, home } = await script('fish');
    const asked = OFFERED.map(([line]) => `complete -C '${line}'; echo ==`).join('\n');
    const env = { PATH: process.env.PATH, HOME: home, LANG: 'C.UTF-8' };
    const { status, stdout, stderr } = spawnSync('fish', ['-c', `source ${file}\n${asked}`], {
      cwd: join(home, 'work'),
      env,
      encoding: 'utf8',
    });
    expect([status, stderr]).toEqual([0, '']);
    const offered = stdout
      .split('==\n')
      .slice(0, -1)
      .map((text) => text.split('\n').filter(Boolean).sort());
    expect(offered.map((rows) => rows.map((row) => row.split('\t')[0]))).toEqual(OFFERED.map(([, words]) => words));
    expect(offered[4]).toEqual(['start\trun the relay in the foreground']);
  });

  test('words for a value are those that the help of its option names', async () => {
    const named = (await completionNodes()).flatMap(({ path, options }) =>
      options.flatMap(({ word, summary, values }) => (Array.isArray(values) ? [{ path, word, summary, values }] : [])),
    );
    const chosen = named.filter(({ path, values }) => values.length > 0 && path !== 'svc/voice/doctor');
    expect(chosen.length).toBeGreaterThan(10);
    for (const { path, word, summary, values } of chosen) {
      for (const value of values) expect(summary.split(/[^\w]+/), `${path} ${word}`).toContain(value);
    }
  });

  test('values of now: names in one line, sessions for other devices, and nothing without a relay', async () => {
    const rows = ['Pixel 9', 'Tablet', 'tablet', '-rf', 'Two\nlines', '$(touch x)'];
    const devices = rows.map((device_name, at) => ({ device_name, token_prefix: `prefix0${at}` }));
    const messages = [{ message_id: '3f9a1c0d77e2' }, { message_id: null }, {}];
    const question = { kind: 'message', question: true };
    const items = [
      { ...question, message_id: 'open', state: 'shown' },
      { ...question, message_id: 'later', state: 'sent' },
      { ...question, message_id: 'answered', state: 'answered' },
      { kind: 'message', message_id: 'plain', state: 'sent' },
      { ...question, message_id: '3f9a1c0d77e2', state: 'queued' },
    ];
    const { port } = await fakeRelay(({ path }) => ({
      body: path === '/relay/devices' ? { devices } : { items, messages: path === '/phone/outbound' ? messages : [] },
    }));
    const values = (kind: string, env = { SVC_HOME: agentHome(), RELAY_PORT: String(port) }) =>
      run(['completion', 'bash', '--values', kind], { env });
    expect(await values('devices')).toEqual({
      code: 0,
      stdout: 'Pixel 9\nprefix01\nprefix02\nprefix03\nTwo lines\n$(touch x)\n',
      stderr: '',
    });
    expect((await values('messages')).stdout).toBe('3f9a1c0d77e2\nlater\nopen\n');
    const nobody = { SVC_HOME: agentHome(), RELAY_PORT: String(await closedPort()) };
    for (const kind of ['devices', 'messages', 'mcp', 'profiles']) {
      expect(await values(kind, nobody)).toEqual(NOTHING);
    }
    expect(await values('files')).toMatchObject({ code: 2, stdout: '' });
  });

  test('another shell is a usage error', async () => {
    const { code, stdout, stderr } = await runSvc(['completion', 'fsh']);
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain("must be bash, zsh or fish; did you mean 'zsh'?");
  });
});

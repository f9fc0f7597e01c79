import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, test, vi } from 'vitest';
import { cleanups } from '../support/built-relay.ts';
import { attach, hasProgram, pairTerminal, settled, startTerminalRelay } from '../support/terminal.ts';

const cleanup = cleanups();
const TEXT = Array.from({ length: 300 }, (_, line) => `line ${line} with 漢字 and é ${'-'.repeat(line % 60)}\n`).join(
  '',
);

interface Program {
  name: string;
  command: string;
  /** Keys, each with the text that shows once it has worked. */
  keys: [string, RegExp][];
  /** Normalises parts of the screen that may differ. */
  normalise?(text: string): string;
}

const numbersAway = (text: string) =>
  text
    // The first line of top says the hours of its machine in other words than the minutes.
    .replace(/^top - .*$/m, 'top')
    .replace(/[\d.,:+-]+/g, '#')
    .replace(/ *(# *)+/g, '#')
    .replace(/ +/g, ' ')
    // Process states change from one look to the next.
    .replace(/ [DRS] /g, ' ? ');

const programs: Program[] = [
  {
    name: 'vim',
    command: 'vim -u NONE -c "set noswapfile viminfo= nomore ruler" text',
    keys: [
      ['', /line 0/],
      ['100G', /line 99/],
      ['ihello \x1b', /hello line 99/],
      [':split\r', /hello line 99[\s\S]*hello line 99/],
      ['\x17jgg', /line 0/],
    ],
  },
  {
    name: 'less',
    command: 'less -R text',
    keys: [
      ['', /line 0/],
      ['/line 50\r', /line 50/],
      ['b', /line 3\d/],
      ['G', /line 299/],
    ],
  },
  {
    name: 'top',
    command: 'top -d 100 -p 1',
    keys: [['', /COMMAND[\s\S]*root/]],
    normalise: numbersAway,
  },
];

/** Runs the same program in tmux itself, without a relay. */
async function underTmux({ command, keys }: Program, directory: string): Promise<string> {
  const env = {
    PATH: process.env.PATH ?? '',
    HOME: directory,
    LANG: 'C.UTF-8',
    TMUX_TMPDIR: directory,
    LESSHISTFILE: '-',
  };
  const tmux = (...args: string[]) =>
    execFileSync('tmux', ['-L', 'reference', '-u', '-f', '/dev/null', ...args], {
      env,
      encoding: 'utf8',
      cwd: directory,
    });
  const size = ['-x', '80', '-y', '24'];
  tmux(
    'new-session',
    '-d',
    ...size,
    'env',
    'TERM=xterm-256color',
    'sh',
    '-c',
    command,
    ';',
    'set',
    '-g',
    'status',
    'off',
  );
  cleanup.push(() => tmux('kill-server'));
  tmux('resize-window', ...size);
  const capture = () => tmux('capture-pane', '-p').trimEnd();
  for (const [key, sign] of keys) {
    for (const part of key) tmux('send-keys', '-H', ...[...Buffer.from(part)].map((byte) => byte.toString(16)));
    await vi.waitFor(() => expect(capture()).toMatch(sign), { interval: 20 });
  }
  return settled(async () => capture());
}

const text = (screen: string) =>
  screen
    .split('\n')
    .map((line) => line.trimEnd())
    .join('\n');

describe.each(programs)('full-screen $name (contract 02 §3.9)', (program) => {
  const missing = [program.name, 'tmux'].filter((name) => !hasProgram(name));
  if (missing.length > 0)
    process.stderr.write(`SKIPPED: ${missing.join(' and ')} missing: no full-screen ${program.name}\n`);

  test.skipIf(missing.length > 0).each([false, true])(
    'looks as in tmux itself (relay with tmux: %s), also after a reattach',
    async (tmux) => {
      const normalise = program.normalise ?? ((same: string) => same);
      const directory = mkdtempSync(join(tmpdir(), 'svc-programs-'));
      cleanup.push(() => rmSync(directory, { recursive: true, force: true }));
      writeFileSync(join(directory, 'text'), TEXT);
      const reference = normalise(text(await underTmux(program, directory)));

      const target = await startTerminalRelay({ tmux });
      cleanup.push(() => target.stop());
      const { client } = await pairTerminal(target);
      const shell = await attach(client, 'a');
      await shell.shows('ready>');
      shell.type(`cd ${directory}; clear; ${program.command}\r`);
      for (const [keys, sign] of program.keys) {
        shell.type(keys);
        await shell.shows(sign);
      }
      const shown = await settled(shell.screen.text);
      expect(normalise(text(shown))).toBe(reference);
      const modes = shell.screen.terminal.modes;
      const cursor = await shell.screen.cursor();

      client.send('terminal', 'terminal.detach', { session_name: 'a' }, 'd');
      await client.next({ id: 'd' });
      const again = await attach(client, 'a');
      expect(again.facts.reattach).toBe(true);
      if (!tmux) {
        // The replay alone, before the program redraws anything.
        const { createScreen } = await import('../support/terminal.ts');
        const replayed = createScreen(80, 24);
        replayed.write(again.facts.replay ?? '');
        expect(text(await replayed.text())).toBe(text(shown));
        expect(await replayed.cursor()).toEqual(cursor);
        expect(replayed.terminal.modes).toEqual(modes);
        expect(replayed.terminal.buffer.active.type).toBe(shell.screen.terminal.buffer.active.type);
      }
      await vi.waitFor(async () => expect(normalise(text(await again.screen.text()))).toBe(reference));
    },
    300_000,
  );
});

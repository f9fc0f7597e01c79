import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { cac } from 'cac';
import { expect, test } from 'vitest';
import { type CommandEntry, nestedPrograms, programs } from '../../cli/commands.ts';

/** Sources whose texts advise people what to type. */
const FOLDERS = ['lib/operator/doctor', 'cli/pair', 'cli/devices', 'cli/companion', 'cli/reach'];
const FILES = ['cli/pair.ts', 'cli/devices.ts', 'cli/operator-relay.ts', 'cli/connect-once.ts', 'cli/doctor.ts'];

const root = join(import.meta.dirname, '../..');
const sources = [
  ...FOLDERS.flatMap((folder) => readdirSync(join(root, folder)).map((name) => `${folder}/${name}`)),
  ...FILES,
];

/** `svc ...` in a text, with the words and options after it. */
const ADVICE = /\bsvc ((?:[a-z][a-z-]+ ?)+)((?:(?:--[a-z-]+|<[a-z]+>|[\w.:/]+)[ ,]?)*)/g;

function advised(): { source: string; words: string[]; options: string[] }[] {
  return sources.flatMap((source) =>
    readFileSync(join(root, source), 'utf8')
      .split('\n')
      // Only texts that name a command to type: after a colon, or in quotes.
      .flatMap((row) => [...row.matchAll(/(?:: |'|`)(svc [^'`.;,)]*)/g)].map(([, text]) => text as string))
      .flatMap((text) => [...text.matchAll(ADVICE)])
      .map(([, words = '', rest = '']) => ({
        source,
        words: words.trim().split(' '),
        options: rest.match(/--[a-z-]+/g) ?? [],
      })),
  );
}

function entryOf(words: string[]): CommandEntry | undefined {
  const nested = nestedPrograms[words[0] as string];
  const [commands, name] = nested ? [nested.commands, words[1]] : [programs.svc.commands, words[0]];
  return commands.find(({ usage, alias }) => usage.split(' ')[0] === name || alias === name);
}

test('every command and option that a fix names exists (issue 16)', async () => {
  const found = advised();
  // The scan itself works.
  expect(found.length).toBeGreaterThan(15);
  const wrong: string[] = [];
  for (const { source, words, options } of found) {
    const entry = entryOf(words);
    if (!entry) {
      wrong.push(`${source}: svc ${words.join(' ')}`);
      continue;
    }
    const command = cac('svc').command(entry.usage, entry.summary);
    (await entry.load()).define(command);
    const known = command.options.flatMap(({ rawName }) => rawName.match(/--[a-z-]+/g) ?? []);
    for (const option of options)
      if (!known.includes(option)) wrong.push(`${source}: svc ${words.join(' ')} ${option}`);
  }
  expect(wrong).toEqual([]);
});

import { cac } from 'cac';
import { describe, expect, it } from 'vitest';
import { nestedPrograms, programs } from '../../cli/commands.ts';
import { asInvoked, isRunByNpm, withInvokedNames } from '../../cli/invocation.ts';
import { line, quote, sentence } from '../../cli/output.ts';

const NPX = { npx: true };

describe('commands in messages', () => {
  const relay = 'https://relay.example';
  it.each([
    ['svc devices revoke 3f9c --yes', { relay }, `svc devices revoke --relay ${relay} 3f9c --yes`],
    ["Type again: 'svc pair --check'", { relay }, `Type again: 'svc pair --relay ${relay} --check'`],
    ['svc relay doctor', { relay, npx: true }, `npx svc relay doctor --relay ${relay}`],
    ['svc doctor, svc stop, svc companion run', { relay }, `svc doctor --relay ${relay}, svc stop, svc companion run`],
    [
      'svc pair | svc companion pair -',
      { settings: 'a b.json' },
      "svc pair | svc companion pair --settings 'a b.json' -",
    ],
    ['svc phones, svc pairing', { relay }, 'svc phones, svc pairing'],
  ])('%j name the relay and the settings that were given (11 §1)', (text, more, expected) => {
    const invocation = { npx: false, ...more };
    expect(asInvoked(text, invocation)).toBe(expected);
    expect(asInvoked(expected, invocation)).toBe(expected);
  });

  it.each([20, 25, 30, 60, 80, 120])(
    'stay in one piece at %i columns, within them where they fit (11 §1, §4)',
    (columns) => {
      const written: string[] = [];
      const stream = { isTTY: true, columns, write: (text: string) => written.push(text) };
      const named = withInvokedNames(stream, { npx: true, relay });
      const text = "See which devices are connected with: svc devices, or make a new code with 'svc pair' and scan it.";
      sentence(named, text);
      expect(written.join('').trim().split(/\s+/).join(' ')).toBe(asInvoked(text, { npx: true, relay }));
      expect(written.join('')).not.toMatch(/(npx|svc)\n/);
      for (const row of written)
        if (row.trim().split(' ').length > 3) expect(row.trimEnd().length).toBeLessThanOrEqual(columns);
    },
  );

  it('a line of a list goes on below its own indent, and stays whole in a pipe (11 §4)', () => {
    const print = (text: string, columns?: number) => {
      const written: string[] = [];
      line({ isTTY: columns !== undefined, columns, write: (row: string) => written.push(row) }, text);
      return written.join('');
    };
    const text = '  Key  missing: set ONE or ANOTHER';
    expect(print(text)).toBe(`${text}\n`);
    expect(print(text, text.length)).toBe(`${text}\n`);
    expect(print(text, text.length - 1)).toBe('  Key  missing: set ONE or\n    ANOTHER\n');
    expect(print('  whole-word-of-thirty-characters', 25)).toBe('  whole-word-of-thirty-characters\n');
  });

  it('the table of commands knows which take --relay and --settings', async () => {
    const commands = [...Object.values(programs), ...Object.values(nestedPrograms)].flatMap(({ commands }) => commands);
    for (const { usage, target, load } of commands) {
      const command = cac('svc').command(usage, '');
      (await load()).define(command);
      const option = (name: string) => command.options.some(({ rawName }) => rawName.startsWith(`--${name} <`));
      const takes = option('settings')
        ? 'settings'
        : // That of `mirror` names the edge beside the relay of this machine, and those of backups refuse it.
          option('relay') && !/^(backup|restore|mcp|mirror|operator-token)/.test(usage)
          ? 'relay'
          : undefined;
      expect([usage, target]).toEqual([usage, takes]);
    }
  });

  it.each([
    ['Start it with: svc relay start', 'Start it with: npx svc relay start'],
    ["Run 'svc --help' for help.", "Run 'npx svc --help' for help."],
    ['Next: run \u001b[1msvc pair\u001b[22m.', 'Next: run \u001b[1mnpx svc pair\u001b[22m.'],
    ['svc pair | svc companion pair -', 'npx svc pair | npx svc companion pair -'],
    ['a\nsvc-relay start', 'a\nnpx svc-relay start'],
  ])('%j are named as npx calls them', (text, expected) => {
    expect(asInvoked(text, NPX)).toBe(expected);
    expect(asInvoked(expected, NPX)).toBe(expected);
  });

  it.each(['svc-relay 1.0.0 is running', '/home/svc relay', 'svc is old', '~/.svc pair', 'svc-relay://pair?x'])(
    '%j names none',
    (text) => expect(asInvoked(text, NPX)).toBe(text),
  );

  it.each([
    ['/c/node_modules/.bin/svc', {}, true],
    ['/c/dist/cli/svc.js', { npm_lifecycle_event: 'start' }, true],
    ['/c/dist/cli/svc.js', {}, false],
    // In a shell of a relay that npm started.
    ['/usr/local/bin/svc', { npm_lifecycle_event: 'start' }, false],
  ])('%s with %j: by npm %s', (script, env, expected) => expect(isRunByNpm(script, env)).toBe(expected));

  it('a stream keeps everything else', () => {
    const written: string[] = [];
    const stream = { isTTY: true, columns: 40, write: (text: string) => written.push(text) };
    const named = withInvokedNames(stream, NPX);
    line(named, 'svc pair');
    quote(named, 'svc pair');
    expect([written, named.isTTY, named.columns]).toEqual([['npx svc pair\n', 'svc pair\n'], true, 40]);
  });
});

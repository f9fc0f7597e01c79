import { describe, expect, it } from 'vitest';
import { asCalled, isCalledByNpm, namedAsCalled } from '../../cli/called.ts';

describe('commands in messages', () => {
  it.each([
    ['Start it with: svc relay start', 'Start it with: npx svc relay start'],
    ["Run 'svc --help' for help.", "Run 'npx svc --help' for help."],
    ['Next: run \u001b[1msvc pair\u001b[22m.', 'Next: run \u001b[1mnpx svc pair\u001b[22m.'],
    ['svc pair | svc companion pair -', 'npx svc pair | npx svc companion pair -'],
    ['a\nsvc-relay start', 'a\nnpx svc-relay start'],
  ])('%j are named as npx calls them', (text, expected) => {
    expect(asCalled(text)).toBe(expected);
    expect(asCalled(expected)).toBe(expected);
  });

  it.each(['svc-relay 1.0.0 is running', '/home/svc relay', 'svc is old', '~/.svc pair', 'svc-relay://pair?x'])(
    '%j names none',
    (text) => expect(asCalled(text)).toBe(text),
  );

  it.each([
    ['/c/node_modules/.bin/svc', {}, true],
    ['/c/dist/cli/svc.js', { npm_lifecycle_event: 'start' }, true],
    ['/c/dist/cli/svc.js', {}, false],
    // In a shell of a relay that npm started.
    ['/usr/local/bin/svc', { npm_lifecycle_event: 'start' }, false],
  ])('%s with %j: by npm %s', (script, env, expected) => expect(isCalledByNpm(script, env)).toBe(expected));

  it('a stream keeps everything else', () => {
    const written: string[] = [];
    const stream = { isTTY: true, columns: 40, write: (text: string) => written.push(text) };
    const named = namedAsCalled(stream);
    named.write('svc pair');
    expect([written, named.isTTY, named.columns]).toEqual([['npx svc pair'], true, 40]);
  });
});

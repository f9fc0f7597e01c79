import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { cells, clientName, freshName, isName, sizeOf, tmuxName } from '../../../lib/terminal/names.ts';

describe('names (contract 02 §3.5)', () => {
  test.each([
    ['my session:1.2', 'svc-my_session_1_2'],
    [' .: ', 'svc-default'],
    ['', 'svc-default'],
    ['__a__', 'svc-a'],
    ['ab', 'svc-ab'],
    ['漢字', 'svc-漢字'],
    ['svc-device-tab1', 'svc-svc-device-tab1'],
  ])('%j is the tmux session %j', (name, expected) => expect(tmuxName(name)).toBe(expected));

  test('a tmux name maps to itself', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1, maxLength: 128 }), (name) => {
        const tmux = tmuxName(name);
        expect(tmux).not.toMatch(/[\s.:]/);
        expect(tmuxName(clientName(tmux) as string)).toBe(tmux);
      }),
    );
  });

  test('ignores sessions without the prefix', () => {
    expect(clientName('main')).toBeUndefined();
    expect(clientName('svc-')).toBe('default');
  });

  test('a name is 1 to 128 characters without control characters', () => {
    for (const good of ['a', ' ', 'x'.repeat(128), 'é漢🎈']) expect(isName(good)).toBe(true);
    for (const bad of ['', 'x'.repeat(129), 'a\nb', 'a\x7f', 'a\u0085', 1, null, undefined, {}]) {
      expect(isName(bad)).toBe(false);
    }
    expect(freshName()).toMatch(/^shell-[0-9a-f]{8}$/);
  });
});

describe('sizes (contract 02 §3.1)', () => {
  test.each([
    [undefined, 80],
    [null, 80],
    [0, 80],
    [100.9, 100],
    [0.5, 1],
    [-3, 1],
    [5000, 1000],
    ['80', undefined],
    [true, undefined],
    [[], undefined],
  ])('%j columns are %j', (given, expected) => expect(cells(given, 80)).toBe(expected));

  test('one invalid edge invalidates a size', () => {
    expect(sizeOf(undefined, undefined)).toEqual({ cols: 80, rows: 24 });
    expect(sizeOf(1, '2')).toBeUndefined();
  });
});

import { describe, expect, test } from 'vitest';
import {
  type KeyName,
  type ModifierName,
  NO_MODIFIERS,
  parseKeys,
  pressKey,
  tapModifier,
  typeText,
} from '../../../handlers/web/app/terminal/keys.ts';

/** Modifiers after a row of taps. */
const tapped = (...names: ModifierName[]) => names.reduce(tapModifier, NO_MODIFIERS);
const press = (key: KeyName, ...names: ModifierName[]) => pressKey(tapped(...names), key).data;
const type = (text: string, ...names: ModifierName[]) => typeText(tapped(...names), text).data;

describe('the key row of the terminal (contract 09 §1)', () => {
  test('a modifier is on for one key, then locked, then off', () => {
    expect(tapped('ctrl').ctrl).toBe('once');
    expect(tapped('ctrl', 'ctrl').ctrl).toBe('locked');
    expect(tapped('ctrl', 'ctrl', 'ctrl')).toEqual(NO_MODIFIERS);
  });

  test('a key spends the modifiers for one key and keeps locked ones', () => {
    const held = tapped('shift', 'ctrl', 'ctrl', 'alt');
    expect(pressKey(held, 'Tab').modifiers).toEqual({ shift: 'off', ctrl: 'locked', alt: 'off' });
    expect(typeText(held, 'x').modifiers).toEqual({ shift: 'off', ctrl: 'locked', alt: 'off' });
    expect(typeText(held, '').modifiers).toBe(held);
  });

  test.each<[KeyName, string, string]>([
    ['Escape', '\x1b', '\x1b'],
    ['Tab', '\t', '\t'],
    ['Enter', '\r', '\r'],
    ['Backspace', '\x7f', '\x7f'],
    ['ArrowUp', '\x1b[A', '\x1bOA'],
    ['ArrowDown', '\x1b[B', '\x1bOB'],
    ['ArrowRight', '\x1b[C', '\x1bOC'],
    ['ArrowLeft', '\x1b[D', '\x1bOD'],
    ['Home', '\x1b[H', '\x1bOH'],
    ['End', '\x1b[F', '\x1bOF'],
    ['Delete', '\x1b[3~', '\x1b[3~'],
    ['PageUp', '\x1b[5~', '\x1b[5~'],
    ['PageDown', '\x1b[6~', '\x1b[6~'],
  ])('%s, also in application cursor mode', (key, normal, application) => {
    expect(press(key)).toBe(normal);
    expect(pressKey(NO_MODIFIERS, key, { applicationCursor: true }).data).toBe(application);
  });

  test('keys with modifiers, as xterm encodes them', () => {
    expect(press('Tab', 'shift')).toBe('\x1b[Z');
    expect(press('Tab', 'alt')).toBe('\x1b\t');
    expect(press('Escape', 'alt')).toBe('\x1b\x1b');
    expect(press('Backspace', 'ctrl')).toBe('\b');
    expect(press('ArrowRight', 'ctrl')).toBe('\x1b[1;5C');
    expect(press('ArrowUp', 'shift')).toBe('\x1b[1;2A');
    expect(press('Home', 'shift', 'alt', 'ctrl')).toBe('\x1b[1;8H');
    expect(press('PageUp', 'alt')).toBe('\x1b[5;3~');
    expect(pressKey(tapped('ctrl'), 'ArrowLeft', { applicationCursor: true }).data).toBe('\x1b[1;5D');
  });

  test('Ctrl+R and Shift+Tab are two taps each', () => {
    expect(type('r', 'ctrl')).toBe('\x12');
    expect(press('Tab', 'shift')).toBe('\x1b[Z');
  });

  test.each([
    ['@', '\0'],
    [' ', '\0'],
    ['a', '\x01'],
    ['Z', '\x1a'],
    ['[', '\x1b'],
    ['\\', '\x1c'],
    ['|', '\x1c'],
    [']', '\x1d'],
    ['^', '\x1e'],
    ['~', '\x1e'],
    ['_', '\x1f'],
    ['/', '\x1f'],
    ['-', '\x1f'],
    ['?', '\x7f'],
    ['é', 'é'],
    ['漢', '漢'],
  ])('Ctrl with %s', (character, data) => expect(type(character, 'ctrl')).toBe(data));

  test('a modifier for one key applies to the first character of a word, a locked one to all of it', () => {
    expect(type('cat', 'ctrl')).toBe('\x03at');
    expect(type('cat', 'alt')).toBe('\x1bcat');
    expect(type('straße', 'shift')).toBe('Straße');
    expect(type('cat', 'shift', 'shift')).toBe('CAT');
    expect(type('🎈x', 'alt', 'alt')).toBe('\x1b🎈\x1bx');
    expect(type('c', 'ctrl', 'alt')).toBe('\x1b\x03');
    expect(type('\x7f', 'alt')).toBe('\x1b\x7f');
    expect(type('plain')).toBe('plain');
  });
});

describe('function keys', () => {
  test.each([
    ['F1', '\x1bOP', '\x1b[1;5P'],
    ['F4', '\x1bOS', '\x1b[1;5S'],
    ['F5', '\x1b[15~', '\x1b[15;5~'],
    ['F12', '\x1b[24~', '\x1b[24;5~'],
  ] as const)('%s', (key, plain, controlled) => {
    expect(pressKey(NO_MODIFIERS, key).data).toBe(plain);
    expect(pressKey({ ...NO_MODIFIERS, ctrl: 'once' }, key).data).toBe(controlled);
  });
});

describe('own keys', () => {
  const strikes = (text: string) => parseKeys(text).map(({ strike }) => strike);
  const ctrl = { ...NO_MODIFIERS, ctrl: 'once' };

  test('are named, with modifiers, or a text with Enter and spaces', () => {
    expect(strikes('  Ctrl-R f5 Shift-Tab :wq\\n git\\sstatus\\n a\\\\b ')).toEqual([
      { type: 'R', modifiers: ctrl },
      { key: 'F5', modifiers: NO_MODIFIERS },
      { key: 'Tab', modifiers: { ...NO_MODIFIERS, shift: 'once' } },
      { type: ':wq\r', modifiers: NO_MODIFIERS },
      { type: 'git status\r', modifiers: NO_MODIFIERS },
      { type: 'a\\b', modifiers: NO_MODIFIERS },
    ]);
    expect(parseKeys('Ctrl-alt-DEL')).toEqual([
      { text: 'Ctrl-alt-DEL', strike: { key: 'Delete', modifiers: { ...ctrl, alt: 'once' } } },
    ]);
    expect(strikes('Ctrl- -')).toEqual([
      { type: 'Ctrl-', modifiers: NO_MODIFIERS },
      { type: '-', modifiers: NO_MODIFIERS },
    ]);
  });

  test('are few', () => {
    expect(parseKeys('')).toEqual([]);
    expect(parseKeys('x '.repeat(128))).toHaveLength(16);
  });
});

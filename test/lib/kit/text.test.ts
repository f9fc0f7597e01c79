import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  byCodePoint,
  decodeUtf8,
  decodeUtf8Strict,
  visible,
  visibleJson,
  visibleLine,
  visibleName,
} from '../../../lib/kit/text.ts';

const BOM = [0xef, 0xbb, 0xbf];
const bytes = (...parts: number[]) => Uint8Array.from(parts);

describe('byCodePoint', () => {
  it('orders as UTF-8 bytes do', () => {
    const symbols = fc.string({ unit: 'binary' });
    fc.assert(
      fc.property(symbols, symbols, (a, b) => {
        expect(Math.sign(byCodePoint(a, b))).toBe(Buffer.compare(Buffer.from(a), Buffer.from(b)));
      }),
    );
  });
});

describe('UTF-8', () => {
  it('strict decoding refuses invalid bytes', () => {
    expect(decodeUtf8Strict(bytes(0x61, 0xff))).toBeNull();
    expect(decodeUtf8Strict(bytes(0x61, 0xc3))).toBeNull();
    expect(decodeUtf8Strict(bytes(0xed, 0xa0, 0x80))).toBeNull();
    // A refusal must not affect later calls of the shared decoder.
    expect(decodeUtf8Strict(bytes(0x61))).toBe('a');
    expect(decodeUtf8(bytes(0x61, 0xff))).toBe('a\ufffd');
  });

  it('drops a byte-order mark unless told to keep it', () => {
    const marked = bytes(...BOM, 0x61);
    expect(decodeUtf8(marked)).toBe('a');
    expect(decodeUtf8Strict(marked)).toBe('a');
    expect(decodeUtf8Strict(marked, { keepBom: true })).toBe('\ufeffa');
    expect(decodeUtf8Strict(marked, { keepBom: true, isCut: true })).toBe('\ufeffa');
  });

  it('drops a character that was cut, and refuses any other fault', () => {
    expect(decodeUtf8Strict(bytes(0x61, 0xf0, 0x9f), { isCut: true })).toBe('a');
    expect(decodeUtf8Strict(bytes(0x61, 0xff, 0x61), { isCut: true })).toBeNull();
  });
});

const range = (from: number, to: number): string[] =>
  Array.from({ length: to - from + 1 }, (_, at) => String.fromCodePoint(from + at));
/** Characters that contract 01 §3.3 names, and others that show nothing. */
const HIDDEN = [
  ...[...range(0x00, 0x1f), ...range(0x7f, 0x9f), ...range(0x202a, 0x202e), ...range(0x2066, 0x2069)],
  ...[...range(0x200b, 0x200f), ...range(0x2060, 0x2065), ...range(0xfff9, 0xfffb), ...range(0xe0000, 0xe007f)],
  ...['\u00ad', '\u034f', '\u061c', '\u115f', '\u1160', '\u180e', '\u2028', '\u2029', '\u3164', '\ufeff', '\uffa0'],
];

describe('invisible characters (contract 01 §3.3)', () => {
  it('are cut, each of them, and nothing else', () => {
    for (const hidden of HIDDEN) expect(visible(`a${hidden}b`), hidden.codePointAt(0)?.toString(16)).toBe('ab');
    for (const shown of ['Pixel 9', 'Großes Gerät', 'سعيد', '漢字', '👩💻', 'é', '“x” – y…', '\u00a0|', '⠿']) {
      expect(visible(shown)).toBe(shown);
    }
  });

  it('leave one line, words apart', () => {
    expect(visibleLine('a\r\n\tb\u2028c\u202ed\u001b[2J')).toBe('a b cd[2J');
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), (text) => {
        const line = visibleLine(text);
        expect(visible(line)).toBe(line);
        expect(visibleLine(line)).toBe(line);
      }),
    );
  });

  it('do not make a name, nor hide its end', () => {
    for (const none of ['', ' \u200b\u3164 ', '\u202e', 5, null, {}]) expect(visibleName(none)).toBe('');
    expect(visibleName(` \u202eevil\u2066 ${'x'.repeat(200)}`)).toBe(`evil ${'x'.repeat(123)}`);
    expect(visibleName(`${'x'.repeat(127)}😀`)).toBe(`${'x'.repeat(127)}\ufffd`);
  });

  it('are escaped in JSON, which stays the same value', () => {
    fc.assert(
      fc.property(fc.json({ stringUnit: 'binary' }), fc.constantFrom(0, 2), (json, indent) => {
        const value = JSON.parse(json);
        const text = visibleJson(JSON.stringify(value, null, indent));
        expect(JSON.parse(text)).toEqual(value);
        for (const line of text.split('\n')) expect(visible(line)).toBe(line);
      }),
    );
    expect(visibleJson('{"a":"\u202e\u{e0041}"}')).toBe('{"a":"\\u202e\\udb40\\udc41"}');
  });
});

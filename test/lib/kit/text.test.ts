import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { byCodePoint, decodeUtf8, decodeUtf8Strict } from '../../../lib/kit/text.ts';

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

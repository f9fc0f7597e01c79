import fc from 'fast-check';
import { expect, it } from 'vitest';
import { base64, base64url, fromBase64 } from '../../../lib/kit/bytes.ts';

it('writes base64 as everybody else does, and reads it back', () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      const text = base64(bytes);
      expect(text).toBe(Buffer.from(bytes).toString('base64'));
      expect(base64url(bytes)).toBe(Buffer.from(bytes).toString('base64url'));
      expect(fromBase64(text)).toEqual(bytes);
    }),
  );
});

it('writes the base64 of a part of a buffer, and of a large one', () => {
  const bytes = Uint8Array.from({ length: 1_000_001 }, (_, at) => (at * 7) & 0xff);
  expect(base64(bytes)).toBe(Buffer.from(bytes).toString('base64'));
  expect(base64(bytes.subarray(1, 5))).toBe(Buffer.from(bytes.subarray(1, 5)).toString('base64'));
});

it.each(['A', 'AA', 'AAA', 'AAAA=', 'A===', '====', 'AA=A', 'AA AA', 'AA\n=', 'AA-_', 'AAAA====', 'ÄÄÄÄ'])(
  'does not read %j as base64',
  (text) => {
    expect(fromBase64(text)).toBeNull();
  },
);

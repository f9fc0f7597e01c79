import fc from 'fast-check';
import { expect, it } from 'vitest';
import { createByteBuffer } from '../../../lib/kit/byte-buffer.ts';

it('returns what was pushed, up to its limit', () => {
  fc.assert(
    fc.property(fc.array(fc.uint8Array({ maxLength: 50 }), { maxLength: 30 }), fc.nat(300), (chunks, limit) => {
      const buffer = createByteBuffer(limit);
      const whole = Buffer.concat(chunks);
      for (const chunk of chunks) {
        const fits = chunk.length <= limit - buffer.size;
        expect(buffer.push(chunk)).toBe(fits);
      }
      expect(Buffer.from(buffer.bytes())).toEqual(whole.subarray(0, limit));
      expect(buffer.size).toBe(Math.min(whole.length, limit));
    }),
  );
});

it('keeps its own copy, and grows beyond its first size', () => {
  const buffer = createByteBuffer(1024 * 1024);
  const chunk = new Uint8Array(300_000).fill(1);
  expect(buffer.push(chunk)).toBe(true);
  chunk.fill(2);
  expect(buffer.push(chunk)).toBe(true);
  expect(buffer.bytes()[299_999]).toBe(1);
  expect(buffer.bytes()[300_000]).toBe(2);
  expect(buffer.size).toBe(600_000);
});

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { createRing } from '../../../lib/dispatch/ring.ts';

it('the ring keeps the newest, newest first', () => {
  fc.assert(
    fc.property(fc.nat({ max: 40 }), fc.integer({ min: 1, max: 12 }), fc.nat({ max: 20 }), (count, size, limit) => {
      const ring = createRing<number>(size);
      const entries = Array.from({ length: count }, (_, at) => at);
      for (const entry of entries) ring.add(entry);
      expect(ring.list(limit)).toEqual(entries.reverse().slice(0, Math.min(size, limit)));
    }),
  );
});

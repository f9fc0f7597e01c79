import fc from 'fast-check';
import { expect, it } from 'vitest';
import { type Indexed, IndexedSet } from '../../../lib/socket/indexed-set.ts';

it('has the same members as a Set after any additions and removals', () => {
  const step = fc.record({ add: fc.boolean(), which: fc.nat({ max: 9 }) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
      const members: Indexed[] = Array.from({ length: 10 }, () => ({ index: -1 }));
      const set = new IndexedSet<Indexed>();
      const model = new Set<Indexed>();
      for (const { add, which } of steps) {
        const member = members[which] as Indexed;
        if (add && !model.has(member)) set.add(member);
        if (add) model.add(member);
        else expect(set.remove(member)).toBe(model.delete(member));
        expect(new Set(set.snapshot())).toEqual(model);
        expect(set.size).toBe(model.size);
      }
    }),
  );
});

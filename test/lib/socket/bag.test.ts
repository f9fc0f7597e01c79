import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Bag, type Member } from '../../../lib/socket/bag.ts';

it('holds what a set would hold, whatever comes and goes', () => {
  const step = fc.record({ add: fc.boolean(), which: fc.nat({ max: 9 }) });
  fc.assert(
    fc.property(fc.array(step, { maxLength: 100 }), (steps) => {
      const members: Member[] = Array.from({ length: 10 }, () => ({ place: -1 }));
      const bag = new Bag<Member>();
      const model = new Set<Member>();
      for (const { add, which } of steps) {
        const member = members[which] as Member;
        if (add && !model.has(member)) bag.add(member);
        if (add) model.add(member);
        else expect(bag.remove(member)).toBe(model.delete(member));
        expect(new Set(bag.all())).toEqual(model);
        expect(bag.size).toBe(model.size);
      }
    }),
  );
});

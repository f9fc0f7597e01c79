import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Watermark } from '../../../lib/socket/watermark.ts';

function follow(high: number, low: number) {
  const events: string[] = [];
  const watermark = new Watermark({
    high,
    low,
    pause: () => void events.push('pause'),
    resume: () => void events.push('resume'),
  });
  return { watermark, events };
}

it.each([
  ['above the high mark', [101], ['pause']],
  ['not at the high mark', [100], []],
  ['not again while above', [101, 200, 101], ['pause']],
  ['below the low mark', [101, 49], ['pause', 'resume']],
  ['not at the low mark', [101, 50], ['pause']],
  ['not without a pause', [0, 49, 100, 0], []],
  ['again and again', [101, 0, 101, 0], ['pause', 'resume', 'pause', 'resume']],
])('contract 02 §1.7: %s', (_name, levels, expected) => {
  const { watermark, events } = follow(100, 50);
  for (const level of levels) watermark.update(level);
  expect(events).toEqual(expected);
});

it('contract 02 §1.7: pause and resume alternate, whatever the levels, and agree with them', () => {
  fc.assert(
    fc.property(fc.array(fc.nat(150), { maxLength: 200 }), (levels) => {
      const { watermark, events } = follow(100, 50);
      for (const level of levels) {
        const before = events.length;
        watermark.update(level);
        if (events.length > before) expect(events.at(-1)).toBe(level > 100 ? 'pause' : 'resume');
        const paused = events.at(-1) === 'pause';
        if (level > 100) expect(paused).toBe(true);
        if (level < 50) expect(paused).toBe(false);
      }
      expect(events).toEqual(events.map((_, index) => (index % 2 === 0 ? 'pause' : 'resume')));
    }),
  );
});

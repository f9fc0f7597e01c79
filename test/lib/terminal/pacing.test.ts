import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createPacing, isWindow } from '../../../lib/terminal/pacing.ts';

const WINDOW = 16_384;

describe('pacing of output (contract 09 §1)', () => {
  test.each([16_384, 262_144, 1_048_576])('%s is a window', (value) => expect(isWindow(value)).toBe(true));
  test.each([0, -1, 16_383, 1_048_577, 20_000.5, Number.NaN, '16384', true, [], {}])('%s is not', (value) =>
    expect(isWindow(value)).toBe(false),
  );

  test('sends a window, then what is acknowledged', () => {
    const pacing = createPacing(WINDOW);
    expect(pacing.push('a'.repeat(WINDOW + 10))).toHaveLength(WINDOW);
    expect(pacing.isReading).toBe(false);
    expect(pacing.acknowledge(4)).toBe('aaaa');
    expect(pacing.acknowledge(WINDOW + 4)).toBe('aaaaaa');
    expect(pacing.isReading).toBe(true);
  });

  test('reads again below a quarter, not at it', () => {
    const pacing = createPacing(WINDOW);
    pacing.push('a'.repeat(WINDOW));
    pacing.acknowledge(WINDOW - WINDOW / 4);
    expect(pacing.isReading).toBe(false);
    pacing.acknowledge(WINDOW - WINDOW / 4 + 1);
    expect(pacing.isReading).toBe(true);
  });

  test.each([
    ['less than before', 9],
    ['more than sent', 21],
    ['half', 10.5],
    ['text', '15'],
    ['nothing', undefined],
  ])('ignores an acknowledgement of %s', (_, chars) => {
    const pacing = createPacing(WINDOW);
    pacing.push('a'.repeat(20));
    pacing.acknowledge(10);
    expect(pacing.acknowledge(chars)).toBe('');
    // Ten are still counted: exactly so much more fits.
    expect(pacing.push('b'.repeat(WINDOW))).toHaveLength(WINDOW - 10);
  });

  test('returns the held text at the end, once', () => {
    const pacing = createPacing(WINDOW);
    pacing.push(`${'a'.repeat(WINDOW)}rest`);
    expect(pacing.rest()).toBe('rest');
    expect(pacing.rest()).toBe('');
  });

  test('whatever is printed and acknowledged: text stays whole and in order, and the window holds', () => {
    const text = fc
      .tuple(fc.constantFrom('x', 'é', '漢', '🎈'), fc.integer({ min: 0, max: 9_000 }))
      .map(([character, count]) => character.repeat(count));
    const step = fc.oneof(
      text.map((text) => ({ text })),
      // Of what is unacknowledged; at times more than that.
      fc.double({ min: -0.5, max: 1.5, noNaN: true }).map((share) => ({ share })),
      fc.anything().map((chars) => ({ chars })),
    );
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const pacing = createPacing(WINDOW);
        let printed = '';
        let sent = '';
        let rendered = 0;
        let wasReading = true;
        for (const step of steps) {
          let piece: string;
          if ('text' in step) {
            printed += step.text;
            piece = pacing.push(step.text);
          } else {
            const unacknowledged = sent.length - rendered;
            const chars = 'share' in step ? rendered + Math.trunc(unacknowledged * step.share) : step.chars;
            if (Number.isInteger(chars) && Number(chars) >= rendered && Number(chars) <= sent.length) {
              rendered = Number(chars);
              if (sent.length - rendered < WINDOW / 4) wasReading = true;
            }
            piece = pacing.acknowledge(chars);
          }
          sent += piece;
          expect(piece.isWellFormed()).toBe(true);
          expect(printed.startsWith(sent)).toBe(true);
          expect(sent.length - rendered).toBeLessThanOrEqual(WINDOW);
          // At most half of a surrogate pair is held while there is room.
          if (sent.length < printed.length) expect(sent.length - rendered).toBeGreaterThanOrEqual(WINDOW - 1);
          expect(pacing.isReading).toBe(wasReading && printed.length - rendered < WINDOW);
          wasReading = pacing.isReading;
        }
        while (sent.length < printed.length) {
          const piece = pacing.acknowledge(sent.length);
          expect(piece).not.toBe('');
          sent += piece;
        }
        expect(sent).toBe(printed);
      }),
    );
  });
});

import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createBacklog } from '../../../lib/terminal/backlog.ts';
import { runs } from '../../support/runs.ts';
import { createScreen } from '../../support/terminal.ts';

const SCROLLBACK = 10;
const SIZE = { cols: 20, rows: 5 };

/** Distinct lines of a flood, so that a wrong cut shows. */
const flood = fc
  .record({ lines: fc.integer({ min: 1, max: 80 }), from: fc.nat(999), end: fc.constantFrom('\r\n', '\r\n', '\n') })
  .map(({ lines, from, end }) => Array.from({ length: lines }, (_, line) => `line ${from + line}${end}`).join(''));

const sequence = fc.constantFrom(
  '\x1b[31m',
  '\x1b[0m',
  '\x1b[2;4r',
  '\x1b[r',
  '\x1b[3;3H',
  '\x1b[H\x1b[2J',
  '\x1b[?1049h',
  '\x1b[?1049l',
  '\x1b]0;a title',
  '\x07',
  '\x1b\\',
  '\x1bP1$q',
  '\x1b(0',
  '\x1b(B',
  '\x0e',
  '\x0f',
  '\x1b[4h',
  '\x1b[4l',
  '\x1b[?7l',
  '\x1b7',
  '\x1b8',
  '\x1bM',
  '\x1bD',
  '\x1bc',
  '\x1b',
  '\x1b[',
  '\x18',
  '\x9b',
  '漢字',
  'word',
  '\t',
  '\b',
  '\r',
);

const stream = fc
  .array(fc.oneof({ arbitrary: flood, weight: 3 }, sequence), { maxLength: 25 })
  .map((parts) => parts.join(''));

/** The same text, cut into other pieces. */
function* pieces(text: string, cuts: number[]): Generator<string> {
  let at = 0;
  for (let piece = 0; at < text.length; piece++) {
    const end = at + 1 + ((cuts[piece % cuts.length] as number) % 97);
    yield text.slice(at, end);
    at = end;
  }
}

describe('backlog', () => {
  test('trimming does not change the screen', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.tuple(stream, fc.integer({ min: 3, max: 8 })), { minLength: 1, maxLength: 3 }),
        fc.array(fc.nat(96), { minLength: 1, maxLength: 10 }),
        async (parts, cuts) => {
          const whole = createScreen(SIZE.cols, SIZE.rows, SCROLLBACK);
          const trimmed = createScreen(SIZE.cols, SIZE.rows, SCROLLBACK);
          const backlog = createBacklog(SCROLLBACK, SIZE);
          for (const [text, rows] of parts) {
            for (const piece of pieces(text, cuts)) {
              whole.write(piece);
              backlog.text(piece);
            }
            await whole.text();
            whole.resize(SIZE.cols, rows);
            backlog.resize({ cols: SIZE.cols, rows });
            backlog.trim();
          }
          let length = 0;
          for (let next = backlog.take(50); next !== undefined; next = backlog.take(50)) {
            if (typeof next === 'string') {
              trimmed.write(next);
              length += next.length;
            } else {
              await trimmed.text();
              trimmed.resize(next.cols, next.rows);
            }
          }
          expect(backlog.length).toBe(0);
          expect(length).toBeLessThanOrEqual(parts.reduce((sum, [text]) => sum + text.length, 0));
          expect(await trimmed.all()).toBe(await whole.all());
          expect(await trimmed.cursor()).toEqual(await whole.cursor());
        },
      ),
      { numRuns: runs(300) },
    );
  });

  test('trims a flood of plain lines to what can be seen', () => {
    const backlog = createBacklog(200, { cols: 80, rows: 24 });
    backlog.text('\x1b[?2004l\r');
    for (let line = 0; line < 100_000; line++) backlog.text('y\r\n');
    backlog.trim();
    expect(backlog.length).toBeLessThan(1000);
  });

  test.each([
    ['margins are set', '\x1b[2;10r'],
    ['a title has not ended', '\x1b]0;title'],
    ['a device string has not ended', '\x1bP1$q'],
    ['another character set is shifted in', '\x0e'],
  ])('trims nothing while %s', (_, before) => {
    const backlog = createBacklog(10, { cols: 80, rows: 24 });
    backlog.text(before);
    for (let line = 0; line < 1000; line++) backlog.text('y\r\n');
    backlog.trim();
    expect(backlog.length).toBe(before.length + 3000);
  });
});

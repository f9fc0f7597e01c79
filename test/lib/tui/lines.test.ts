import fc from 'fast-check';
import { expect, it } from 'vitest';
import { createLines } from '../../../lib/tui/lines.ts';
import { runs } from '../../support/runs.ts';

const bytes = (text: string) => Buffer.from(text, 'latin1');

/** Output for these chunks: lines, and heads of overlong lines (marked with `!`). */
function split(limit: number, chunks: Uint8Array[]): string[] {
  const out: string[] = [];
  const lines = createLines(limit, {
    line: (line) => out.push(Buffer.from(line).toString('latin1')),
    tooLong: (head) => out.push(`!${Buffer.from(head).toString('latin1')}`),
  });
  for (const chunk of chunks) lines.push(chunk);
  lines.end();
  return out;
}

/** The expected output, computed on the whole text. */
function model(limit: number, text: string): string[] {
  const lines = text.split('\n');
  const last = lines.pop() as string;
  if (last !== '') lines.push(last);
  return lines.map((line) => {
    const bare = line.replace(/\r$/, '');
    return bare.length > limit ? `!${bare.slice(0, limit)}` : bare;
  });
}

it('contract 02 §4.5: both line ends, empty lines, and a last line without an end', () => {
  expect(split(100, [bytes('a\r\n\nb\rc\n\r\nlast')])).toEqual(['a', '', 'b\rc', '', 'last']);
  expect(split(100, [bytes('a\r')])).toEqual(['a']);
  expect(split(100, [])).toEqual([]);
});

it('contract 02 §4.5: a line over the limit is reported once and discarded up to its newline; the next one passes', () => {
  expect(split(4, [bytes('1234\n12345\n1234\r\n12345\r\nok')])).toEqual(['1234', '!1234', '1234', '!1234', 'ok']);
  expect(split(4, ['12', '34', '56', '78', '\n', 'ok\n'].map(bytes))).toEqual(['!1234', 'ok']);
  expect(split(4, ['1234567', '89'].map(bytes))).toEqual(['!1234']);
});

it('contract 02 §4.5: the lines do not depend on the chunks', () => {
  const alphabet = fc.constantFrom('a', 'b', '\n', '\r', '\n', '\xe9');
  const text = fc.array(alphabet, { maxLength: 120 }).map((letters) => letters.join(''));
  fc.assert(
    fc.property(text, fc.array(fc.nat(20), { maxLength: 60 }), fc.integer({ min: 1, max: 9 }), (text, cuts, limit) => {
      const chunks: Uint8Array[] = [];
      let at = 0;
      for (const length of cuts) {
        chunks.push(bytes(text.slice(at, at + length)));
        at += length;
      }
      chunks.push(bytes(text.slice(at)));
      expect(split(limit, chunks)).toEqual(model(limit, text));
    }),
    { numRuns: runs(500) },
  );
});

it('a long line received byte by byte allocates no object per byte', () => {
  const one = bytes('x');
  let length = 0;
  const lines = createLines(8 * 1024 * 1024, { line: (line) => (length = line.length), tooLong: () => {} });
  for (let n = 0; n < 2_000_000; n++) lines.push(one);
  lines.push(bytes('\n'));
  expect(length).toBe(2_000_000);
});

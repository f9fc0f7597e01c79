import { expect, it } from 'vitest';
import { createRefusals } from '../../../lib/access/refusals.ts';
import { createLog } from '../../../lib/log.ts';
import { createTestClock } from '../../support/clock.ts';

function setup() {
  const clock = createTestClock();
  const lines: string[] = [];
  const log = createLog('INFO', (line) => lines.push(line.replace(/^.*\] /, '')));
  return { clock, log, lines, refusals: createRefusals({ clock, log }) };
}

it('writes one line per peer and route in a minute, with a count (contract 01 §9.1a)', () => {
  const { clock, lines, refusals } = setup();
  for (let at = 0; at < 500; at++) refusals.note('a', 'GET /x', 'refused a');
  refusals.note('b', 'GET /x', 'refused b');
  refusals.note('a', 'GET /y', 'refused a elsewhere');
  expect(lines).toEqual(['refused: refused a', 'refused: refused b', 'refused: refused a elsewhere']);
  clock.advance(59_000);
  refusals.sweep();
  refusals.note('a', 'GET /x', 'refused a');
  expect(lines).toHaveLength(3);
  clock.advance(1_000);
  refusals.note('a', 'GET /x', 'refused a');
  expect(lines.at(-1)).toBe('refused: refused a (and 500 times since the last such line)');
  clock.advance(60_000);
  refusals.note('a', 'GET /x', 'refused a');
  expect(lines.at(-1)).toBe('refused: refused a');
});

it('writes what it has only counted once a minute is over, and when the relay stops', () => {
  const { clock, lines, refusals } = setup();
  for (let at = 0; at < 3; at++) refusals.note('a', 'GET /x', 'refused a');
  clock.advance(60_000);
  refusals.sweep();
  refusals.sweep();
  expect(lines.slice(1)).toEqual(['refused: refused a (and 1 times since the last such line)']);
  for (let at = 0; at < 3; at++) refusals.note('a', 'GET /x', 'refused a');
  expect(lines).toHaveLength(2);
  refusals.stop();
  expect(lines).toHaveLength(3);
});

it('tells at most 256 kinds apart', () => {
  const { clock, lines, refusals } = setup();
  for (let at = 0; at < 5_000; at++) refusals.note(`peer ${at}`, 'GET /x', `refused ${at}`);
  expect(lines).toHaveLength(257);
  clock.advance(60_000);
  refusals.note('new', 'GET /x', 'refused new');
  expect(lines).toContain('refused: refused new');
});

it('pushes no other line out of the last ones', () => {
  const { log, refusals } = setup();
  for (let at = 0; at < 500; at++) log.info(`line ${at}`);
  for (let at = 0; at < 1_000; at++) refusals.note(`peer ${at}`, 'GET /x', `refused ${at}`);
  const lines = log.tail?.last(500) ?? [];
  expect(lines.filter(({ name }) => name === 'relay').map(({ text }) => text)).toContain('line 0');
  expect(lines.filter(({ name }) => name === 'refused')).toHaveLength(100);
  expect(lines).toEqual(lines.toSorted((one, other) => one.ts - other.ts));
});

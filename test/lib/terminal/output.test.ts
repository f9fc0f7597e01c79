import { beforeEach, describe, expect, test } from 'vitest';
import { createOutput, type Output } from '../../../lib/terminal/output.ts';
import { createTestClock } from '../../support/clock.ts';

describe('output batches (contract 02 §3.6)', () => {
  let clock: ReturnType<typeof createTestClock>;
  let sent: string[];
  let output: Output;
  const push = (text: string) => output.push(text, text.length);
  beforeEach(() => {
    clock = createTestClock();
    sent = [];
    output = createOutput(clock, (text) => sent.push(text));
  });

  test('sends the first bytes after a quiet moment at once, and holds the next ones', () => {
    push('a');
    expect(sent).toEqual(['a']);
    push('b');
    push('c');
    clock.advance(15);
    expect(sent).toEqual(['a']);
    clock.advance(1);
    expect(sent).toEqual(['a', 'bc']);
    clock.advance(16);
    push('d');
    expect(sent).toEqual(['a', 'bc', 'd']);
    expect(clock.pending).toBe(0);
  });

  test('sends 4096 bytes without waiting', () => {
    push('a');
    push('b'.repeat(4095));
    expect(sent).toHaveLength(1);
    push('c');
    expect(sent[1]).toHaveLength(4096);
  });

  test('holds nothing longer than 16 ms, whatever happens in between', () => {
    push('a');
    push('b');
    clock.advance(10);
    push('x'.repeat(5000));
    push('late');
    clock.advance(16);
    expect(sent.join('')).toBe(`ab${'x'.repeat(5000)}late`);
  });

  test('sends the response to a keystroke at once', () => {
    push('a');
    output.flushNow();
    push('b');
    expect(sent).toEqual(['a', 'b']);
  });
});

import { beforeEach, describe, expect, test } from 'vitest';
import { createOutput, type Output } from '../../../lib/terminal/output.ts';
import { createTestClock } from '../../support/clock.ts';

describe('batches of output (contract 02 §3.6)', () => {
  let clock: ReturnType<typeof createTestClock>;
  let sent: string[];
  let output: Output;
  const push = (text: string) => output.push(text, text.length);
  beforeEach(() => {
    clock = createTestClock();
    sent = [];
    output = createOutput(clock, (text) => sent.push(text));
  });

  test('the first bytes after a quiet moment go out at once, the next ones wait', () => {
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

  test('4096 bytes go out without waiting', () => {
    push('a');
    push('b'.repeat(4095));
    expect(sent).toHaveLength(1);
    push('c');
    expect(sent[1]).toHaveLength(4096);
  });

  test('nothing waits longer than 16 ms, whatever happens in between', () => {
    push('a');
    push('b');
    clock.advance(10);
    push('x'.repeat(5000));
    push('late');
    clock.advance(16);
    expect(sent.join('')).toBe(`ab${'x'.repeat(5000)}late`);
  });

  test('the answer to a keystroke goes out at once', () => {
    push('a');
    output.hurry();
    push('b');
    expect(sent).toEqual(['a', 'b']);
  });

  test('what is dropped is never sent', () => {
    push('a');
    push('b');
    output.drop();
    clock.advance(100);
    output.flush();
    expect(sent).toEqual(['a']);
  });
});

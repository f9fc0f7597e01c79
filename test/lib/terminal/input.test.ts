import { beforeEach, describe, expect, test } from 'vitest';
import { createInput } from '../../../lib/terminal/input.ts';
import { createTestClock } from '../../support/clock.ts';

describe('input', () => {
  let clock: ReturnType<typeof createTestClock>;
  let done: string[];
  let unwritten: number;
  let ready: () => void;
  const terminal = {
    write: (bytes: Uint8Array) => void done.push(`write ${bytes.length}`),
    unwritten: () => unwritten,
  };
  const paste = {
    begin: () => {
      done.push('begin');
      return new Promise<void>((resolve) => {
        ready = resolve;
      });
    },
    end: () => void done.push('end'),
  };
  beforeEach(() => {
    clock = createTestClock();
    done = [];
    unwritten = 0;
  });

  test('writes typed text at once', () => {
    const input = createInput({ terminal, clock, paste });
    for (let key = 0; key < 5_000; key++) {
      input.write('é');
      clock.advance(5);
    }
    expect(done).toHaveLength(5_000);
    expect(new Set(done)).toEqual(new Set(['write 2']));
  });

  test.each([
    ['typed', 10, ['write 11']],
    ['pasted', 3_000, ['begin']],
  ])('waits until the program is ready: %s', async (_, length, expected) => {
    let reads = () => {};
    const input = createInput({ terminal, clock, paste, ready: new Promise<void>((resolve) => (reads = resolve)) });
    input.write('x'.repeat(length));
    input.write('y');
    await clock.advanceAsync(0);
    expect(done).toEqual([]);
    reads();
    await clock.advanceAsync(0);
    expect(done).toEqual(expected);
  });

  test('holds at most 4 MiB for a program that is not ready, and drops it on close', async () => {
    let reads = () => {};
    const input = createInput({ terminal, clock, paste, ready: new Promise<void>((resolve) => (reads = resolve)) });
    expect(input.write('x'.repeat(4 * 1024 * 1024))).toBe(true);
    expect(input.write('x')).toBe(false);
    input.close();
    reads();
    await clock.advanceAsync(0);
    expect(done).toEqual([]);
  });

  test('holds input, in order, until a paste may begin, and announces its end', async () => {
    const input = createInput({ terminal, clock, paste });
    input.write('x');
    input.write('y'.repeat(3_000));
    input.write('z');
    expect(done).toEqual(['write 1', 'begin']);
    ready();
    await clock.advanceAsync(0);
    expect(done).toEqual(['write 1', 'begin', 'write 3000', 'write 1']);
    unwritten = 5;
    await clock.advanceAsync(5_000);
    expect(done).toHaveLength(4);
    unwritten = 0;
    input.write('w');
    await clock.advanceAsync(1_000);
    expect(done.slice(4)).toEqual(['write 1', 'end']);
    expect(clock.pending).toBe(0);
  });

  test('takes many small messages for a paste, too', () => {
    const input = createInput({ terminal, clock, paste });
    for (let message = 0; message < 30; message++) input.write('x'.repeat(100));
    expect(done).toContain('begin');
  });

  test('refuses more than 4 MiB, including held input', () => {
    const input = createInput({ terminal, clock, paste });
    expect(input.write('x'.repeat(3 * 1024 * 1024))).toBe(true);
    expect(input.write('x'.repeat(2 * 1024 * 1024))).toBe(false);
    unwritten = 1024 * 1024;
    expect(input.write('x')).toBe(false);
  });

  test.each([true, false])('ends a paste on close (begun: %s)', async (isBegun) => {
    const input = createInput({ terminal, clock, paste });
    input.write('x'.repeat(3_000));
    if (isBegun) {
      ready();
      await clock.advanceAsync(0);
    }
    input.close();
    ready();
    await clock.advanceAsync(5_000);
    expect(done.filter((what) => what === 'end')).toHaveLength(1);
  });
});

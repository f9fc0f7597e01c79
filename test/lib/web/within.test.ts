import { describe, expect, it } from 'vitest';
import { within } from '../../../lib/web/within.ts';
import { createTestClock } from '../../support/clock.ts';

/** A call that goes on until its signal ends it. */
const untilEnded = (signal: AbortSignal) =>
  new Promise<never>((_, reject) => {
    if (signal.aborted) reject(new Error('ended'));
    signal.addEventListener('abort', () => reject(new Error('ended')));
  });

describe('a call to another server', () => {
  it('gives its outcome, and ends what is left of the answer', async () => {
    const clock = createTestClock();
    let own: AbortSignal | undefined;
    const call = async (signal: AbortSignal) => {
      own = signal;
      expect(signal.aborted).toBe(false);
      return 'answer';
    };
    expect(await within({ clock, timeout: 10, signal: new AbortController().signal }, call)).toBe('answer');
    expect(own?.aborted).toBe(true);
  });

  it('ends with its time, and says that it was that', async () => {
    const clock = createTestClock();
    let late = false;
    const onLate = () => {
      late = true;
    };
    const ended = within({ clock, timeout: 10, signal: new AbortController().signal, onLate }, untilEnded);
    ended.catch(() => {});
    await clock.advanceAsync(9);
    expect(late).toBe(false);
    await clock.advanceAsync(1);
    await expect(ended).rejects.toThrow('ended');
    expect(late).toBe(true);
  });

  it('ends with the signal that it is given, also one that has ended before', async () => {
    const clock = createTestClock();
    const end = new AbortController();
    const ended = within({ clock, timeout: 10, signal: end.signal }, untilEnded);
    end.abort();
    await expect(ended).rejects.toThrow('ended');
    await expect(within({ clock, timeout: 10, signal: end.signal }, untilEnded)).rejects.toThrow('ended');
  });
});

import { describe, expect, it } from 'vitest';
import { sleep, withDeadline, withTimeout } from '../../../lib/kit/timeouts.ts';
import { createTestClock } from '../../support/clock.ts';

/** A call that goes on until its signal ends it. */
const untilEnded = (signal: AbortSignal) =>
  new Promise<never>((_, reject) => {
    if (signal.aborted) reject(new Error('ended'));
    signal.addEventListener('abort', () => reject(new Error('ended')));
  });

describe('withDeadline', () => {
  it('gives the outcome and aborts what is left of the call', async () => {
    const clock = createTestClock();
    let own: AbortSignal | undefined;
    const call = async (signal: AbortSignal) => {
      own = signal;
      expect(signal.aborted).toBe(false);
      return 'answer';
    };
    expect(await withDeadline({ clock, timeout: 10, signal: new AbortController().signal }, call)).toBe('answer');
    expect(own?.aborted).toBe(true);
  });

  it('aborts when the time is up, and rejects with the given error', async () => {
    const clock = createTestClock();
    const timeoutError = () => new Error('late');
    let isSettled = false;
    const ended = withDeadline({ clock, timeout: 10, timeoutError }, untilEnded);
    ended
      .catch(() => {})
      .finally(() => {
        isSettled = true;
      });
    await clock.advanceAsync(9);
    expect(isSettled).toBe(false);
    await clock.advanceAsync(1);
    await expect(ended).rejects.toThrow('late');
  });

  it('aborts with the given signal, even one that has aborted before', async () => {
    const clock = createTestClock();
    const end = new AbortController();
    const ended = withDeadline({ clock, timeout: 10, signal: end.signal }, untilEnded);
    end.abort();
    await expect(ended).rejects.toThrow('ended');
    await expect(withDeadline({ clock, timeout: 10, signal: end.signal }, untilEnded)).rejects.toThrow('ended');
  });
});

describe('withTimeout', () => {
  const never = new Promise<never>(() => {});

  it('gives the outcome of work that is in time, and leaves no timer behind', async () => {
    const clock = createTestClock();
    expect(await withTimeout({ clock, timeout: 10 }, Promise.resolve('done'), () => 'late')).toBe('done');
    const failing = withTimeout({ clock, timeout: 10 }, Promise.reject(new Error('no')), () => 'late');
    await expect(failing).rejects.toThrow('no');
    await clock.advanceAsync(0);
    expect(clock.pending).toBe(0);
  });

  it('gives or throws what `late` does once the time is up', async () => {
    const clock = createTestClock();
    const late = withTimeout({ clock, timeout: 10 }, never, () => 'late');
    const failing = withTimeout({ clock, timeout: 10 }, never, () => {
      throw new Error('late');
    });
    failing.catch(() => {});
    clock.advance(10);
    expect(await late).toBe('late');
    await expect(failing).rejects.toThrow('late');
  });

  it('ignores a failure that comes too late', async () => {
    const clock = createTestClock();
    let fail: (error: Error) => void = () => {};
    const work = new Promise<never>((_, reject) => {
      fail = reject;
    });
    const result = withTimeout({ clock, timeout: 10 }, work, () => 'late');
    clock.advance(10);
    fail(new Error('too late'));
    // An unhandled rejection would fail this run.
    await clock.advanceAsync(0);
    expect(await result).toBe('late');
  });

  it('a signal ends the wait early, even one that has aborted before', async () => {
    const clock = createTestClock();
    const end = new AbortController();
    const result = withTimeout({ clock, timeout: 10, signal: end.signal }, never, () => 'late');
    end.abort();
    expect(await result).toBe('late');
    expect(await withTimeout({ clock, timeout: 10, signal: end.signal }, never, () => 'late')).toBe('late');
    expect(clock.pending).toBe(0);
  });
});

describe('sleep', () => {
  it('lasts until the time is up or the signal aborts', async () => {
    const clock = createTestClock();
    let awake = false;
    const sleeping = sleep({ clock, timeout: 10 }).then(() => {
      awake = true;
    });
    await clock.advanceAsync(9);
    expect(awake).toBe(false);
    await clock.advanceAsync(1);
    await sleeping;
    const end = new AbortController();
    const cut = sleep({ clock, timeout: 10, signal: end.signal });
    end.abort();
    await cut;
  });
});

/** Milliseconds to wait for an expected event. Even on a busy machine, only a failure takes that long. */
export const TIMEOUT = 30_000;
/** Milliseconds between polls of a condition that nothing announces. */
export const POLL = 10;
/** For a case that only measures time. A busy moment of the machine passes on a retry, a slow relay never does. */
export const TIMED = { retry: 3 };

export const median = (times: number[]): number => times.toSorted((a, b) => a - b)[times.length >> 1] ?? Number.NaN;

/** How long what must come may take on a busy machine, in milliseconds: only a failure takes that long. */
export const PATIENCE = 30_000;
/** How often is looked for what nothing announces, in milliseconds. */
export const POLL = 10;
/** For a case that only measures: a busy moment of the machine is no failure, a slow relay fails every time. */
export const TIMED = { retry: 3 };

export const median = (times: number[]): number => times.toSorted((a, b) => a - b)[times.length >> 1] ?? Number.NaN;

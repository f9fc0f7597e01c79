/** How long what must come may take on a busy machine, in milliseconds: only a failure takes that long. */
export const PATIENCE = 30_000;
/** How often is looked for what nothing announces, in milliseconds. */
export const POLL = 10;
/** For a case that takes a time: a busy moment of the machine is no failure, a slow relay fails every time. */
export const TIMED = { retry: 3 };

/** What a time is when nothing else came between: of many, the one that a tenth do not exceed. */
export const undisturbed = (times: number[]): number =>
  times.toSorted((a, b) => a - b)[Math.floor(times.length / 10)] ?? Number.POSITIVE_INFINITY;

const FIRST = 1000;
const LONGEST = 30_000;
const RATE_LIMITED = 300_000;

/**
 * Milliseconds to wait after `failures` rounds in vain (0 = the first wait): 1 s doubling to 30 s, each shortened by up
 * to a fifth, so that devices which lost the same relay do not come back together. `random` is from [0, 1).
 */
export function backoff(failures: number, random: number): number {
  const full = Math.min(FIRST * 2 ** Math.min(Math.max(failures, 0), 10), LONGEST);
  return Math.round(full * (1 - 0.2 * random));
}

/** Milliseconds to wait after a 429: five minutes (contract 01 §3.1) and up to a tenth more, never less. */
export const rateLimitWait = (random: number): number => Math.round(RATE_LIMITED * (1 + 0.1 * random));

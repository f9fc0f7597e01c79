/** Milliseconds without a sign of life after which nothing counts as connected (contract 09 §2). */
export const STALE_AFTER = 45_000;

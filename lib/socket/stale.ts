/** Milliseconds without proof of life after which nothing is called connected (contract 09 §2). */
export const STALE_AFTER = 45_000;

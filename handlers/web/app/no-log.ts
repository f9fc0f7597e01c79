import type { Log } from '../../../lib/log.ts';

const drop = (): void => {};

/** A page has no log. */
export const noLog: Log = { debug: drop, info: drop, warn: drop, error: drop, named: () => noLog };

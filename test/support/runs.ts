import { inject } from 'vitest';

/** A tenth of the runs of a property in `npm test`, all of them in `npm run test:long`, which repeats the files that use this. */
export const runs = (full: number): number => (inject('isLong') ? full : Math.ceil(full / 10));

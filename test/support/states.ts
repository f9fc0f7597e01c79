import { type Limiter, openLimiter } from '../../lib/access/limiter.ts';
import type { Clock } from '../../lib/kit/clock.ts';
import { createLog, type Log } from '../../lib/log.ts';
import { openPairingCodes, type PairingCodes } from '../../lib/pairing/codes.ts';
import { createStores } from '../../storage/index.ts';
import type { Stores } from '../../storage/schema.ts';

export const noLog: Log = createLog('ERROR', () => {});

/** In-memory stores, as in a relay without a state file. */
export const memoryStores = (): Stores => createStores('node');

export const limiterOf = (clock: Clock, stores = memoryStores(), log = noLog): Promise<Limiter> =>
  openLimiter({ clock, store: stores.open('limiter'), log });

export const codesOf = (clock: Clock, log: Log, stores = memoryStores()): Promise<PairingCodes> =>
  openPairingCodes({ clock, store: stores.open('pairing-codes'), log });

/** The stores of sessions. */
export const sessionStores = (stores = memoryStores()) => ({
  store: stores.open('sessions'),
  ended: stores.open('ended-sessions'),
});

import { systemClock } from '../../../../lib/kit/clock.ts';
import { withTimeout } from '../../../../lib/kit/timeouts.ts';
import type { App } from '../context.ts';

/** Milliseconds for the relay to be told. Without a network, only this browser forgets the session. */
const TIMEOUT = 4000;

/** Ends the session at the relay if that answers, and erases its data here, including the lock. */
export async function signOut({ api, session, pageStore, shares, lock }: App): Promise<void> {
  const prefix = session.token()?.slice(0, 8);
  const ending = api.call(`sessions/${prefix}`, { method: 'DELETE' }).catch(() => {});
  await withTimeout({ clock: systemClock, timeout: TIMEOUT }, ending, () => {});
  await session.forget();
  // Without a pairing, nothing is left to see.
  lock.use(null);
  await Promise.all([pageStore.clear(), shares.clear()]);
}

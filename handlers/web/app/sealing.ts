import { set } from 'idb-keyval';
import { createSealing, type OwnKeys, type SealingDeps } from '../../../lib/companion/link/sealing.ts';
import { type BoxKey, newBoxKey } from '../../../lib/kit/box.ts';
import { webDigestOf } from '../../../lib/kit/web-sha256.ts';
import { type Shown, shownText } from '../../../lib/phone/shown.ts';
import { storedOnce } from './stored-once.ts';
import { boxKeyName, pairingDatabase } from './stored-pairing.ts';

/**
 * This browser's side of the sealed mailbox (contract 12 §4), for the page and its service worker. In secure contexts only.
 */
export const openSealing = (base: string, parts: Pick<SealingDeps, 'store' | 'log'>) =>
  createSealing({ ...parts, keys: browserKeys(base), deliversUnopened: true });

/** Hash of a message as it was shown, which a reply to it carries. */
export const hashOf = (shown: Shown): Promise<string> => webDigestOf(shownText(shown));

/**
 * The key of a pairing, which cannot be exported, not even by the page. A browser that cannot store it has none, since
 * nobody could open texts sealed for a lost key.
 */
function browserKeys(base: string): OwnKeys {
  const database = pairingDatabase();
  const name = boxKeyName(base);
  let next: BoxKey | undefined;
  return {
    async own(isPairing) {
      if (isPairing) {
        next ??= await newBoxKey(false);
        return next;
      }
      return storedOnce(name, database, () => newBoxKey(false));
    },
    async store(key, isPairing) {
      if (isPairing) await set(name, key, database);
      return {};
    },
  };
}

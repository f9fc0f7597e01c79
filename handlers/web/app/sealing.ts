import { get, set, update } from 'idb-keyval';
import { createSealing, type OwnKeys, type SealingParts } from '../../../lib/companion/link/sealing.ts';
import { type BoxKey, newBoxKey } from '../../../lib/kit/box.ts';
import { base64url, utf8ToBytes } from '../../../lib/kit/bytes.ts';
import { digestOf } from '../../../lib/kit/ece.ts';
import { type Shown, shownText } from '../../../lib/phone/shown.ts';
import { boxKeyName, pairingDatabase } from './stored-pairing.ts';

/** This browser's half of the sealed mailbox (contract 12 §4), for the page and its service worker. In secure contexts only. */
export const openSealing = (base: string, parts: Pick<SealingParts, 'store' | 'log'>) =>
  createSealing({ ...parts, keys: browserKeys(base), deliversUnopened: true });

/** What a reply says of the words that it answers. */
export const hashOf = async (shown: Shown): Promise<string> => base64url(await digestOf(utf8ToBytes(shownText(shown))));

/**
 * The key of a pairing, which nothing can export, the page included. A browser that does not store it has none, since
 * nobody could open any more what is sealed for one that is lost.
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
      const stored = await get<BoxKey>(name, database);
      if (stored) return stored;
      const made = await newBoxKey(false);
      let kept = made;
      await update<BoxKey>(
        name,
        (other) => {
          // Another tab may have been first.
          kept = other ?? made;
          return kept;
        },
        database,
      );
      return kept;
    },
    async keep(key, isPairing) {
      if (isPairing) await set(name, key, database);
      return {};
    },
  };
}

import { type ReadonlySignal, signal } from '@preact/signals';
import { delMany, get, set, update } from 'idb-keyval';
import type { Pairing, PairingStore } from '../../../lib/companion/link/settings.ts';
import { newUuid } from '../../../lib/kit/uuid.ts';
import { openChannel } from './browser-storage.ts';
import { makeKey, type ProofKey } from './proof.ts';
import { storedOnce } from './stored-once.ts';
import { boxKeyName, pairingDatabase, pairingKey, proofKeyName, type StoredPairing } from './stored-pairing.ts';

export interface BrowserPairingStore extends PairingStore {
  /** The pairing as stored now, including changes of other tabs. */
  readonly current: ReadonlySignal<Pairing | null>;
  /** False if this browser cannot store anything, so that the pairing ends with the page. */
  readonly isKept: boolean;
  /** The key of the session: the stored one, else a new one. Null if the browser cannot make or store one. */
  key(): Promise<ProofKey | null>;
  /** Like `key`, for a session that is to be bound to it: ensures that the key is in the database for the next visit. */
  keyToBind(): Promise<ProofKey | null>;
  /** Stores the pairing of a backup with its device id, the only one for which the relay renews the tokens. */
  restorePairing(pairing: Pairing, id: string | null): Promise<void>;
  /** Erases the pairing, even one made in another tab, which `removePairing` spares. */
  clear(): Promise<void>;
  close(): void;
}

/** The tokens of a stored pairing, for comparison. */
const tokensOf = ({ pairing }: StoredPairing): string =>
  JSON.stringify([pairing?.session_token, pairing?.mailbox?.session_token]);

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * The pairing in this browser's database, for the relay at `base`. A browser without storage (a private window) gets a store
 * in memory.
 */
export async function openPairingStore(base: string): Promise<BrowserPairingStore> {
  const key = pairingKey(base);
  const channel = openChannel(key);
  const database = pairingDatabase();
  let isKept = true;
  const found = await get<StoredPairing>(key, database).catch(() => {
    isKept = false;
    return undefined;
  });
  /** The tokens of a stored pairing that could not be replaced by the newer one here. */
  let outdated: string | undefined;
  const isOutdated = (stored: StoredPairing): boolean => tokensOf(stored) === outdated;
  const deviceId = signal(found?.deviceId ?? newUuid());
  const current = signal(found?.pairing ?? null);
  // Another tab may have been first.
  if (!found) await change((stored) => stored);
  isKept &&= !outdated;

  /** Replaces the stored value by the result of `next`, in one transaction. */
  async function change(next: (stored: StoredPairing) => StoredPairing): Promise<void> {
    const present = () => ({ deviceId: deviceId.value, pairing: current.value });
    let before: StoredPairing = present();
    let made = next(before);
    try {
      if (isKept) {
        await update<StoredPairing>(
          key,
          (stored) => {
            before = stored && !isOutdated(stored) ? stored : present();
            if (before === stored) outdated = undefined;
            made = next(before);
            return made;
          },
          database,
        );
        outdated = undefined;
      }
    } catch {
      // For example a full disk. Until a write succeeds, this page has the newest pairing.
      outdated ??= tokensOf(before);
    }
    deviceId.value = made.deviceId;
    current.value = made.pairing;
    channel.postMessage(null);
  }

  let ownKey: ProofKey | null = null;
  let findingKey: Promise<ProofKey | null> | undefined;

  /** The stored key, or a new one, which is stored before anything is bound to it. Tabs share it. */
  async function findKey(): Promise<ProofKey | null> {
    if (!isKept || !isSecureContext) return null;
    return storedOnce(proofKeyName(base), database, async () => ownKey ?? makeKey());
  }

  async function keyToBind(): Promise<ProofKey | null> {
    findingKey ??= findKey()
      // A browser may not store keys, in which case the page works like one over plain http.
      .catch(() => null)
      .finally(() => {
        findingKey = undefined;
      });
    const found = await findingKey;
    // The present session may be bound to a key that is no longer stored.
    ownKey = found ?? ownKey;
    return found;
  }

  async function dropKeys(): Promise<void> {
    ownKey = null;
    if (isKept) await delMany([proofKeyName(base), boxKeyName(base)], database).catch(() => {});
  }

  const write = (pairing: Pairing | null) => change(() => ({ deviceId: deviceId.value, pairing }));

  // Another tab has a newer token, and the relay knows only the newest.
  channel.onmessage = async () => {
    const stored = await get<StoredPairing>(key, database).catch(() => undefined);
    if (!stored || !isKept || isOutdated(stored)) return;
    deviceId.value = stored.deviceId;
    current.value = stored.pairing;
    // It may have signed out, and paired again with a different key.
    ownKey = null;
  };

  return {
    get deviceId() {
      return deviceId.value;
    },
    get isKept() {
      return isKept;
    },
    current,
    pairing: () => current.value,
    key: async () => ownKey ?? keyToBind(),
    keyToBind,
    async replacePairing(pairing) {
      // Another tab may have signed out meanwhile.
      if (pairing.bound && ownKey && isKept) await set(proofKeyName(base), ownKey, database).catch(() => {});
      await write(pairing);
    },
    async restorePairing(pairing, id) {
      if (id !== null && UUID.test(id)) deviceId.value = id;
      await write(pairing);
      await dropKeys();
    },
    updatePairing: (changes) =>
      change((stored) => {
        const pairing = stored.pairing ?? current.value;
        return { deviceId: stored.deviceId, pairing: pairing && { ...pairing, ...changes } };
      }),
    async removePairing(refused) {
      // Another tab may have paired this browser again, and this one may already know.
      await change(({ deviceId, pairing }) => ({
        deviceId,
        pairing: pairing?.session_token === refused ? null : pairing,
      }));
      if (!current.value) await dropKeys();
    },
    async clear() {
      await write(null);
      await dropKeys();
    },
    close: () => channel.close(),
  };
}

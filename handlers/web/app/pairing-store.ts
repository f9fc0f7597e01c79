import { type ReadonlySignal, signal } from '@preact/signals';
import { get, set, update } from 'idb-keyval';
import type { Pairing, PairingStore } from '../../../lib/companion/link/settings.ts';
import { newUuid } from '../../../lib/kit/uuid.ts';
import { pairingDatabase, pairingKey, type StoredPairing } from './stored-pairing.ts';

export interface BrowserPairingStore extends PairingStore {
  /** The pairing as it is stored now; changes of other tabs included. */
  readonly current: ReadonlySignal<Pairing | null>;
  /** False where this browser keeps nothing: the pairing is over with the page. */
  readonly isKept: boolean;
  /** Takes over the pairing of a backup with its device id, the only one for which the relay renews the tokens. */
  restorePairing(pairing: Pairing, id: string | null): Promise<void>;
  /** Forgets the pairing, whoever has made it. `removePairing` keeps that of another tab. */
  clear(): Promise<void>;
  close(): void;
}

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * The pairing in this browser's database, for the relay at `base`. A browser that keeps nothing (a private window) gets a store in memory.
 */
export async function openPairingStore(base: string): Promise<BrowserPairingStore> {
  const key = pairingKey(base);
  const channel = new BroadcastChannel(key);
  const database = pairingDatabase();
  let isKept = true;
  const found = await get<StoredPairing>(key, database).catch(() => {
    isKept = false;
    return undefined;
  });
  let deviceId = found?.deviceId ?? newUuid();
  const current = signal(found?.pairing ?? null);
  if (!found) await write(null);

  async function write(pairing: Pairing | null): Promise<void> {
    if (isKept) await set(key, { deviceId, pairing } satisfies StoredPairing, database);
    current.value = pairing;
    channel.postMessage(null);
  }

  // Another tab has a newer token than this one: the relay knows only the newest.
  channel.onmessage = async () => {
    const stored = await get<StoredPairing>(key, database).catch(() => undefined);
    if (!stored) return;
    deviceId = stored.deviceId;
    current.value = stored.pairing;
  };

  return {
    get deviceId() {
      return deviceId;
    },
    current,
    isKept,
    pairing: () => current.value,
    replacePairing: write,
    restorePairing(pairing, id) {
      if (id !== null && UUID.test(id)) deviceId = id;
      return write(pairing);
    },
    async updatePairing(change) {
      let next: Pairing | null = current.value && { ...current.value, ...change };
      if (isKept) {
        await update<StoredPairing>(
          key,
          (stored) => {
            const pairing = stored?.pairing ?? current.value;
            next = pairing && { ...pairing, ...change };
            return { deviceId, pairing: next };
          },
          database,
        );
      }
      current.value = next;
      channel.postMessage(null);
    },
    async removePairing(refused) {
      // Another tab may have paired this browser anew, and this one may have heard of that already.
      const newer = (pairing: Pairing | null | undefined) =>
        (pairing?.session_token === refused ? null : pairing) ?? null;
      let next: StoredPairing = { deviceId, pairing: newer(current.value) };
      if (isKept) {
        await update<StoredPairing>(
          key,
          (stored) => {
            next = { deviceId: stored?.deviceId ?? deviceId, pairing: newer(stored?.pairing) };
            return next;
          },
          database,
        );
      }
      deviceId = next.deviceId;
      current.value = next.pairing;
      channel.postMessage(null);
    },
    clear: () => write(null),
    close: () => channel.close(),
  };
}

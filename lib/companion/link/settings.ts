import { RelayError } from '../../errors.ts';
import type { HostFiles } from '../../host/index.ts';
import { utf8ToBytes } from '../../kit/bytes.ts';
import { type Clock, seconds } from '../../kit/clock.ts';
import { createEvent } from '../../kit/event.ts';
import type { Backup } from '../backup.ts';
import type { SafetySettings, SettingsStore } from '../safety-settings.ts';
import { backupOf, type Restored, restoredFrom } from './settings-backup.ts';
import {
  emptyDocument,
  emptyPolicy,
  type Pairing,
  policyOf,
  readDocument,
  type SettingsDocument,
  safetyOf,
  withSettings,
} from './settings-document.ts';

export type { Pairing } from './settings-document.ts';

/** Stores the pairing. `pairing()` reflects a change once it is written, which is when its promise resolves. */
export interface PairingStore {
  /** Stable for this install. */
  readonly deviceId: string;
  pairing(): Pairing | null;
  /** Stores a new pairing and discards the pins and grants of the old one. */
  replacePairing(pairing: Pairing): Promise<void>;
  updatePairing(change: Partial<Pairing>): Promise<void>;
  /**
   * Removes the pairing, whose `refused` token the relay no longer knows. Shared stores keep one with another token.
   */
  removePairing(refused?: string): Promise<void>;
}

export interface CompanionSettings extends SettingsStore, PairingStore {
  /** Path that a damaged file was moved to, if any. */
  readonly setAside?: string;
  /** Settings and pairing for a backup. */
  backup(): Backup;
  /**
   * Restores a backup, as a whole or not at all.
   * @throws RelayError `invalid` if it cannot be used here.
   */
  restore(backup: Backup): Promise<Restored>;
  /** Resolves when every change so far has been written, or has failed. */
  settled(): Promise<void>;
}

export interface SettingsDeps {
  files: Pick<HostFiles, 'readText' | 'read' | 'writeAtomic' | 'createExclusive' | 'remove'>;
  path: string;
  clock: Clock;
}

const MODE = 0o600;

/**
 * Opens the companion's settings: one JSON document, mode 0600, always written as a whole. A missing file is created at
 * once, which stores the device id and detects an unwritable path before a pairing code is spent. A damaged file is set
 * aside unchanged.
 * @throws RelayError `unavailable` for a file of a newer version, and any error of `files`.
 */
export async function openSettings({ files, path, clock }: SettingsDeps): Promise<CompanionSettings> {
  const changes = createEvent<[settings: SafetySettings]>();
  const { document: found, setAside } = await load();
  let document = found ?? emptyDocument();
  /** The end of the queue of writes. */
  let lastWrite: Promise<unknown> = Promise.resolve();
  /** The next write, until it begins. */
  let pendingFlush: Promise<void> | null = null;
  if (!found) await write(document);

  async function load(): Promise<{ document?: SettingsDocument; setAside?: string }> {
    const text = await files.readText(path);
    if (text === null) return {};
    const read = readDocument(text);
    if (read.kind === 'document') return { document: read.document };
    if (read.kind === 'newer') {
      throw new RelayError('unavailable', 'the settings file was written by a newer version of this program');
    }
    const aside = `${path}.corrupt-${Math.floor(seconds(clock))}-${crypto.randomUUID().slice(0, 8)}`;
    await files.createExclusive(aside, (await files.read(path)) ?? new Uint8Array(), MODE);
    return { setAside: aside };
  }

  function write(next: SettingsDocument): Promise<void> {
    return files.writeAtomic(path, utf8ToBytes(`${JSON.stringify(next, null, 2)}\n`), MODE);
  }

  /** Runs writes one after the other. A failed write does not stop the next. */
  function enqueue<T>(work: () => Promise<T>): Promise<T> {
    const run = lastWrite.then(work);
    lastWrite = run.catch(() => {});
    return run;
  }

  /** Changes of the same turn, and those made during a write, share the next write. */
  function flush(): Promise<void> {
    pendingFlush ??= enqueue(() => {
      pendingFlush = null;
      return write(document);
    });
    return pendingFlush;
  }

  const notify = (): void => changes.emit(safetyOf(document));

  /** Writes a change before it takes effect, so that a credential is never used before it is stored. */
  function commit(change: (document: SettingsDocument) => SettingsDocument): Promise<void> {
    return enqueue(async () => {
      await write(change(document));
      // Applied again to the current document, because safety settings may have changed during the write.
      document = change(document);
      notify();
    });
  }

  return {
    setAside,
    get deviceId() {
      return document.device_id;
    },
    get: () => safetyOf(document),
    update(change) {
      const { pairing, device_id: deviceId } = document;
      const { capabilities } = change;
      // Without a pairing, there is no relay to grant anything to.
      const policy = capabilities && pairing ? { policy: policyOf(deviceId, capabilities) } : {};
      document = { ...withSettings(document, change), ...policy };
      notify();
      return flush();
    },
    onChange: changes.on,
    pairing: () => document.pairing,
    replacePairing: (pairing) => commit((current) => ({ ...current, pairing, policy: emptyPolicy(current.device_id) })),
    updatePairing: (change) =>
      commit((current) => ({ ...current, pairing: current.pairing && { ...current.pairing, ...change } })),
    removePairing: () => commit((current) => ({ ...current, pairing: null, policy: null })),
    backup: () => backupOf(document),
    async restore(backup) {
      const { restored } = restoredFrom(backup, document);
      await commit((current) => restoredFrom(backup, current).document);
      return restored;
    },
    settled: () => lastWrite.then(() => {}),
  };
}

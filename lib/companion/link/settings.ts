import { RelayError } from '../../errors.ts';
import type { HostFiles } from '../../host/index.ts';
import { utf8ToBytes } from '../../kit/bytes.ts';
import { type Clock, seconds } from '../../kit/clock.ts';
import type { SafetySettings, SettingsStore } from '../safety-settings.ts';
import {
  type Document,
  emptyDocument,
  emptyPolicy,
  type Pairing,
  policyOf,
  readDocument,
  safetyOf,
} from './settings-document.ts';

export type { Pairing } from './settings-document.ts';

/** What the link keeps. A change is in the file before its promise resolves, and seen by `pairing()` only then. */
export interface PairingStore {
  /** Stable for this install. */
  readonly deviceId: string;
  pairing(): Pairing | null;
  /** A new pairing: pins and grants of the one before go with it. */
  replacePairing(pairing: Pairing): Promise<void>;
  updatePairing(change: Partial<Pairing>): Promise<void>;
  removePairing(): Promise<void>;
}

export interface CompanionSettings extends SettingsStore, PairingStore {
  /** Where a damaged file was put, when there was one. */
  readonly setAside?: string;
  /** Resolves when every change made so far is in the file, or has failed to get there. */
  settled(): Promise<void>;
}

export interface SettingsParts {
  files: Pick<HostFiles, 'readText' | 'read' | 'writeAtomic' | 'createExclusive' | 'remove'>;
  path: string;
  clock: Clock;
}

const MODE = 0o600;

/**
 * Opens the companion's settings: one JSON document, mode 0600, written whole. A missing file is made, so that the
 * device id is kept and a place that cannot be written shows before a one-shot code is spent. A damaged file is set
 * aside byte for byte.
 * @throws RelayError `unavailable` for a file of a newer version; whatever `files` throws.
 */
export async function openSettings({ files, path, clock }: SettingsParts): Promise<CompanionSettings> {
  const listeners = new Set<(settings: SafetySettings) => void>();
  const { document: found, setAside } = await load();
  let document = found ?? emptyDocument();
  let busy: Promise<unknown> = Promise.resolve();
  let waiting: Promise<void> | null = null;
  if (!found) await write(document);

  async function load(): Promise<{ document?: Document; setAside?: string }> {
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

  function write(next: Document): Promise<void> {
    return files.writeAtomic(path, utf8ToBytes(`${JSON.stringify(next, null, 2)}\n`), MODE);
  }

  /** One write after the other; a failed one does not stop the next. */
  function queue<T>(work: () => Promise<T>): Promise<T> {
    const run = busy.then(work);
    busy = run.catch(() => {});
    return run;
  }

  /** Changes of the same moment, and those that come while a write is under way, share the next write. */
  function flush(): Promise<void> {
    waiting ??= queue(() => {
      waiting = null;
      return write(document);
    });
    return waiting;
  }

  function tell(): void {
    const settings = safetyOf(document);
    for (const listener of [...listeners]) listener(settings);
  }

  /** Written first, then in force: a credential is never used before it is kept. */
  function commit(change: (document: Document) => Document): Promise<void> {
    return queue(async () => {
      await write(change(document));
      // Safety settings may have changed meanwhile: the change is made again, on what is there now.
      document = change(document);
      tell();
    });
  }

  return {
    setAside,
    get deviceId() {
      return document.device_id;
    },
    get: () => safetyOf(document),
    update({ policy: _, capabilities, ...safety }) {
      const { pairing, device_id: deviceId } = document;
      // Without a pairing there is nobody to grant anything to.
      const policy = capabilities && pairing ? { policy: policyOf(deviceId, capabilities) } : {};
      document = { ...document, safety: { ...document.safety, ...safety }, ...policy };
      tell();
      return flush();
    },
    onChange(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    pairing: () => document.pairing,
    replacePairing: (pairing) => commit((current) => ({ ...current, pairing, policy: emptyPolicy(current.device_id) })),
    updatePairing: (change) =>
      commit((current) => ({ ...current, pairing: current.pairing && { ...current.pairing, ...change } })),
    removePairing: () => commit((current) => ({ ...current, pairing: null, policy: null })),
    settled: () => busy.then(() => {}),
  };
}

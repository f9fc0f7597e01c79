import type { Store } from '../../storage/schema.ts';
import { describeError, RelayError } from '../errors.ts';
import type { Host, HostFiles } from '../host/index.ts';
import { base64, fromBase64, randomBytes } from '../kit/bytes.ts';
import { sha256 } from '../kit/sha256.ts';
import { singleFlight } from '../kit/single-flight.ts';
import type { Log } from '../log.ts';

export const qrSecretPath = (agentHome: string): string => `${agentHome}/svc-relay-qr-secret`;
const KEY = 'qr-secret';
export const QR_SECRET_SIZE = 32;
const MIN_SIZE = 16;
const ATTEMPTS = 3;

/** Names a secret without revealing it. */
export const keyIdOf = (secret: Uint8Array): string => sha256(base64(secret)).slice(0, 16);

export interface QrSecretDeps {
  /** Absent at the edge. */
  host?: Pick<Host, 'files' | 'agentHome'>;
  /** Used without a host only. */
  store: Store<'pairing'>;
  log: Log;
}

export type QrSecret = ReturnType<typeof createQrSecret>;

/**
 * The secret that signs QR payloads: a file in the agent home, or without a host, an entry of the durable store (contract 01
 * §5.4). Created on first use, and read again when the file has changed, so that `svc relay qr-key rotate` takes effect at
 * once (contract 11 §3).
 */
export function createQrSecret({ host, store, log }: QrSecretDeps) {
  const path = host && qrSecretPath(host.agentHome);
  let cached: { secret: Uint8Array; changed: number | null } | undefined;

  const changedAt = async (): Promise<number | null> =>
    host && path ? ((await host.files.stat(path))?.modified ?? null) : null;

  async function readSecret(): Promise<Uint8Array | null> {
    try {
      const before = await changedAt();
      if (cached && cached.changed === before) return cached.secret;
      const secret = await (host && path ? fromFile(host.files, path, log) : fromStore(store, log));
      cached = { secret, changed: before ?? (await changedAt()) };
      return secret;
    } catch (error) {
      log.warn(`the QR secret cannot be read or written; pairing codes are unsigned: ${describeError(error)}`);
      return null;
    }
  }

  const read = singleFlight(readSecret);

  return {
    /** Returns the secret; null, with a warning, if it can be neither read nor created. Never rejects. */
    read,

    /**
     * True if this key signs now.
     * @throws RelayError `unavailable` if the key cannot be read.
     */
    async isCurrent(keyId: string): Promise<boolean> {
      const secret = await read();
      if (secret === null)
        throw new RelayError('unavailable', 'the key of pairing codes cannot be read: try again later');
      return keyIdOf(secret) === keyId;
    },
  };
}

const warnShort = (log: Log) =>
  log.warn('the QR secret was too short and is replaced; older QR codes no longer verify');

async function fromFile(files: HostFiles, path: string, log: Log): Promise<Uint8Array> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const found = await files.read(path);
    if (found && found.length >= MIN_SIZE) return found;
    if (found) {
      warnShort(log);
      await files.remove(path);
    }
    const fresh = randomBytes(QR_SECRET_SIZE);
    try {
      await files.createExclusive(path, fresh, 0o600);
      return fresh;
    } catch (error) {
      // Another process has just created it; the next attempt reads that one.
      if ((error as { code?: unknown }).code !== 'EEXIST') throw error;
    }
  }
  throw new Error('the file keeps appearing and disappearing');
}

async function fromStore(store: Store<'pairing'>, log: Log): Promise<Uint8Array> {
  const stored = await store.getItem(KEY);
  const found = typeof stored?.secret === 'string' ? fromBase64(stored.secret) : null;
  if (found && found.length >= MIN_SIZE) return found;
  if (stored) warnShort(log);
  const fresh = randomBytes(QR_SECRET_SIZE);
  await store.setItem(KEY, { secret: base64(fresh) });
  return fresh;
}

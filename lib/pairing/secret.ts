import type { Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import type { Host, HostFiles } from '../host/index.ts';
import { base64, fromBase64, randomBytes } from '../kit/bytes.ts';
import type { Log } from '../log.ts';

const FILE = 'svc-relay-qr-secret';
const KEY = 'qr-secret';
const SIZE = 32;
const MIN_SIZE = 16;
const ATTEMPTS = 3;

export interface QrSecretParts {
  /** Absent at the edge. */
  host?: Pick<Host, 'files' | 'agentHome'>;
  /** Used without a host only. */
  store: Store<'pairing'>;
  log: Log;
}

export type QrSecret = ReturnType<typeof createQrSecret>;

/**
 * The secret that signs QR payloads: a file in the agent home, or an entry of the durable store where there is no host
 * (contract 01 §5.4). Made when first needed, read once.
 */
export function createQrSecret({ host, store, log }: QrSecretParts) {
  let reading: Promise<Uint8Array | null> | undefined;

  async function load(): Promise<Uint8Array | null> {
    try {
      return await (host ? fromFile(host.files, `${host.agentHome}/${FILE}`, log) : fromStore(store, log));
    } catch (error) {
      // Lets the next call try again.
      reading = undefined;
      log.warn(`the QR secret cannot be read or written; pairing codes are unsigned: ${describeError(error)}`);
      return null;
    }
  }

  return {
    /** Returns the secret; null, with a warning, when it can be neither read nor made. Never rejects. */
    read(): Promise<Uint8Array | null> {
      reading ??= load();
      return reading;
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
    const fresh = randomBytes(SIZE);
    try {
      await files.createExclusive(path, fresh, 0o600);
      return fresh;
    } catch (error) {
      // Another process created it meanwhile: the next attempt reads that one.
      if ((error as { code?: unknown }).code !== 'EEXIST') throw error;
    }
  }
  throw new Error('the file keeps appearing and disappearing');
}

async function fromStore(store: Store<'pairing'>, log: Log): Promise<Uint8Array> {
  const kept = await store.getItem(KEY);
  const found = typeof kept?.secret === 'string' ? fromBase64(kept.secret) : null;
  if (found && found.length >= MIN_SIZE) return found;
  if (kept) warnShort(log);
  const fresh = randomBytes(SIZE);
  await store.setItem(KEY, { secret: base64(fresh) });
  return fresh;
}

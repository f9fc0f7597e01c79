import type { Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import type { Host, HostFiles } from '../host/index.ts';
import { base64, fromBase64, randomBytes } from '../kit/bytes.ts';
import type { Log } from '../log.ts';

const FILE = 'svc-relay-qr-secret';
const KEY = 'qr-secret';
const SIZE = 32;
const LEAST = 16;
const ATTEMPTS = 3;

export type QrSecret = ReturnType<typeof createQrSecret>;

/**
 * The secret that QR payloads are signed with: a file of the agent home, or, where there is no host, an entry of the
 * durable store (contract 01 §5.4). Made when it is first needed, read once.
 */
export function createQrSecret({ host, store, log }: { host?: Host; store: Store<'pairing'>; log: Log }) {
  let reading: Promise<Uint8Array | null> | undefined;

  async function load(): Promise<Uint8Array | null> {
    try {
      return await (host ? fromFile(host.files, `${host.agentHome}/${FILE}`, log) : fromStore(store, log));
    } catch (error) {
      // The next call tries again: the disk may be writable by then.
      reading = undefined;
      log.warn(`the QR secret cannot be read or written; pairing codes go unsigned: ${describeError(error)}`);
      return null;
    }
  }

  return {
    /** The secret, or null (with a warning) when it can be neither read nor made. Never rejects. */
    read(): Promise<Uint8Array | null> {
      reading ??= load();
      return reading;
    },
  };
}

const warnShort = (log: Log) =>
  log.warn('the QR secret was too short and is made anew; older QR codes no longer verify');

async function fromFile(files: HostFiles, path: string, log: Log): Promise<Uint8Array> {
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const found = await files.read(path);
    if (found && found.length >= LEAST) return found;
    if (found) {
      warnShort(log);
      await files.remove(path);
    }
    const fresh = randomBytes(SIZE);
    try {
      await files.createExclusive(path, fresh, 0o600);
      return fresh;
    } catch (error) {
      // Somebody else made it in between: theirs counts.
      if ((error as { code?: unknown }).code !== 'EEXIST') throw error;
    }
  }
  throw new Error('the file appears and disappears');
}

async function fromStore(store: Store<'pairing'>, log: Log): Promise<Uint8Array> {
  const kept = await store.getItem(KEY);
  const found = typeof kept?.secret === 'string' ? fromBase64(kept.secret) : null;
  if (found && found.length >= LEAST) return found;
  if (kept) warnShort(log);
  const fresh = randomBytes(SIZE);
  await store.setItem(KEY, { secret: base64(fresh) });
  return fresh;
}

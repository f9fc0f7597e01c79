import { type MediaKeys, openInto, sealInto } from '../../../../lib/companion/link/sealed-media.ts';
import { SEALED_NAME, SEALED_TYPE } from '../../../../lib/media/sealed-type.ts';
import type { App } from '../context.ts';
import { noLog } from '../no-log.ts';
import { openSealing } from '../sealing.ts';

/** Bytes that are held at once: the browser keeps those of a blob, on its disk where they are many. */
const PIECE = 1024 * 1024;

/** Keys for what this browser seals for home and itself. Rejects when it has lost its own, or home has given none. */
async function keysOf({ base, session }: Pick<App, 'base' | 'session'>): Promise<MediaKeys> {
  const { deviceId } = session;
  const store = { deviceId, pairing: () => session.pairing.peek() };
  const found = await openSealing(base, { store, log: noLog }).keys();
  if (!found) throw new Error('home has given no key');
  return { ...found, deviceId };
}

/** Collects chunks as blobs of about a piece each. */
function collect() {
  const blobs: Blob[] = [];
  let chunks: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  function flush(): void {
    if (size > 0) blobs.push(new Blob(chunks));
    chunks = [];
    size = 0;
  }
  return {
    write(chunk: Uint8Array): void {
      chunks.push(chunk as Uint8Array<ArrayBuffer>);
      size += chunk.length;
      if (size >= PIECE) flush();
    },
    file(name: string, type: string): File {
      flush();
      return new File(blobs, name, { type });
    },
  };
}

async function* chunksOf(file: Blob, signal: AbortSignal): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < file.size; at += PIECE) {
    signal.throwIfAborted();
    yield new Uint8Array(await file.slice(at, at + PIECE).arrayBuffer());
  }
}

/** A file as it is sent to the mailbox, and the token that it gets there (contract 12 §4). */
export async function sealFile(app: App, file: File, signal: AbortSignal): Promise<{ file: File; token: string }> {
  const sealed = collect();
  const { name, type, size } = file;
  const plain = { name, type, size, chunks: () => chunksOf(file, signal) };
  const token = await sealInto(sealed.write, plain, await keysOf(app));
  return { file: sealed.file(SEALED_NAME, SEALED_TYPE), token };
}

/** A file of the mailbox, opened: this browser has sent it there. `maxSize` in bytes. @throws RelayError `bad-gateway` */
export async function openFile(
  app: Pick<App, 'base' | 'session'>,
  { body }: Response,
  { token, maxSize }: { token: string; maxSize: number },
): Promise<File> {
  const keys = await keysOf(app);
  const plain = collect();
  const { name, type } = await openInto(plain.write, chunksIn(body), { token, keys, maxSize });
  return plain.file(name, type);
}

/** Not every browser iterates a stream. */
async function* chunksIn(body: ReadableStream<Uint8Array> | null): AsyncGenerator<Uint8Array> {
  const reader = body?.getReader();
  try {
    for (let next = await reader?.read(); next && !next.done; next = await reader?.read()) yield next.value;
  } finally {
    await reader?.cancel().catch(() => {});
  }
}

import type { NewBytes, OpenBytes } from '../host/media.ts';
import type { ObjectStore, ObjectUpload } from './objects.ts';

/** R2's minimum size of a part before the last. All but the last must have the same size. */
const PART_SIZE = 5 * 1024 * 1024;

/** Writes an object. Buffers one part, and stores an object of at most that size with a single put. */
export function createObject(objects: ObjectStore, key: string): NewBytes {
  const part = new Uint8Array(PART_SIZE);
  const sent: { partNumber: number; etag: string }[] = [];
  let upload: ObjectUpload | undefined;
  let filled = 0;

  async function send(): Promise<void> {
    upload ??= await objects.createMultipartUpload(key);
    sent.push(await upload.uploadPart(sent.length + 1, part.subarray(0, filled)));
    filled = 0;
  }

  return {
    async write(bytes) {
      for (let at = 0; at < bytes.length; ) {
        if (filled === PART_SIZE) await send();
        const some = bytes.subarray(at, at + PART_SIZE - filled);
        part.set(some, filled);
        filled += some.length;
        at += some.length;
      }
    },
    async finish() {
      if (!upload) await objects.put(key, part.subarray(0, filled));
      else {
        if (filled > 0) await send();
        await upload.complete(sent);
      }
      return key;
    },
    async discard() {
      if (upload) await upload.abort().catch(() => {});
      await objects.delete(key).catch(() => {});
    },
  };
}

/** Opens a stored object for reading; null if it is gone. */
export async function openObject(objects: ObjectStore, key: string): Promise<OpenBytes | null> {
  const facts = await objects.head(key);
  if (!facts) return null;
  const stream = async (offset: number, length: number): Promise<ReadableStream<Uint8Array<ArrayBuffer>>> => {
    const object = await objects.get(key, { range: { offset, length } });
    if (!object?.body) throw new Error('the object is gone');
    return object.body as ReadableStream<Uint8Array<ArrayBuffer>>;
  };
  return {
    size: facts.size,
    modified: facts.uploaded.getTime(),
    tag: facts.etag,
    async head(length) {
      const wanted = Math.min(length, facts.size);
      if (wanted === 0) return new Uint8Array();
      return new Uint8Array(await new Response(await stream(0, wanted)).arrayBuffer());
    },
    body: (start, end) => stream(start, end - start + 1),
    async close() {},
  };
}

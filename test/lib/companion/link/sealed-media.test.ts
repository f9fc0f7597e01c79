import { createHash, randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import {
  type MediaKeys,
  openInto,
  openUpload,
  sealInto,
  sealUpload,
} from '../../../../lib/companion/link/sealed-media.ts';
import { newBoxKey } from '../../../../lib/kit/box.ts';
import { concatBytes } from '../../../../lib/kit/bytes.ts';
import { RECORD_SIZE } from '../../../../lib/kit/ece-stream.ts';
import { maxSealedSize, sealedToken } from '../../../../lib/media/sealed.ts';
import { runs } from '../../../support/runs.ts';

const keys: MediaKeys = { own: await newBoxKey(), home: (await newBoxKey()).point, deviceId: 'phone' };
const MAX_SIZE = 1024 * 1024;

const isSame = (one: Uint8Array, other: Uint8Array): boolean => Buffer.compare(one, other) === 0;

/** Cuts bytes into chunks of these lengths, again and again. */
function* chunksOf(whole: Uint8Array, lengths: readonly number[]): Generator<Uint8Array> {
  for (let at = 0, n = 0; at < whole.length; n++) {
    const length = lengths[n % lengths.length] ?? 1;
    yield whole.subarray(at, at + length);
    at += length;
  }
}

/** A file that a device seals in chunks, and the token that it expects. */
async function sealedIn(bytes: Uint8Array, lengths: readonly number[]) {
  const chunks: Uint8Array[] = [];
  const file = { name: 'a.png', type: 'image/png', size: bytes.length, chunks: () => chunksOf(bytes, lengths) };
  const token = await sealInto((chunk) => chunks.push(chunk), file, keys);
  return { chunks, whole: concatBytes(...chunks), token };
}

async function openedIn(sealed: Uint8Array, token: string, lengths: readonly number[], by = keys) {
  const chunks: Uint8Array[] = [];
  const facts = await openInto((chunk) => chunks.push(chunk), chunksOf(sealed, lengths), {
    token,
    keys: by,
    maxSize: MAX_SIZE,
  });
  return { facts, chunks, bytes: concatBytes(...chunks) };
}

it('seals and opens a file in any chunks, a record at a time, under the hash of its sealed bytes', async () => {
  const size = fc.oneof(fc.integer({ min: 0, max: 300_000 }), fc.constantFrom(0, 1, RECORD_SIZE - 17, RECORD_SIZE));
  const lengths = fc.array(fc.integer({ min: 1_000, max: 200_000 }), { minLength: 1, maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(size, lengths, lengths, async (length, one, other) => {
      const plain = randomBytes(length);
      const { chunks, whole, token } = await sealedIn(plain, one);
      expect(token).toBe(sealedToken(createHash('sha256').update(whole).digest('hex')));
      expect(whole.length).toBeLessThanOrEqual(maxSealedSize(length));
      const opened = await openedIn(whole, token, other);
      expect([opened.facts, isSame(opened.bytes, plain)]).toEqual([{ name: 'a.png', type: 'image/png' }, true]);
      expect(Math.max(...[...chunks, ...opened.chunks].map((chunk) => chunk.length))).toBeLessThanOrEqual(RECORD_SIZE);
      // Both ways are one format.
      expect(isSame((await openUpload(whole, token, keys)).bytes, plain)).toBe(true);
    }),
    { numRuns: runs(25) },
  );
});

it('opens nothing that is another file, changed, cut, continued, too large, or of another device', async () => {
  const plain = randomBytes(200_000);
  const { whole, token } = await sealedIn(plain, [70_000]);
  const other = await sealUpload({ name: 'b', type: 'text/plain', bytes: plain }, keys);
  const refused = (bytes: Uint8Array, as = token, by = keys) =>
    expect(openedIn(bytes, as, [50_000], by)).rejects.toMatchObject({
      kind: 'bad-gateway',
      message: 'the sealed file cannot be opened',
    });
  await refused(other.file.bytes);
  await refused(whole, other.token);
  await refused(whole.subarray(0, -1));
  await refused(whole.subarray(0, 3));
  await refused(new Uint8Array());
  await refused(concatBytes(whole, Uint8Array.of(0)));
  await refused(whole, token, { ...keys, deviceId: 'another' });
  await refused(whole, token, { ...keys, own: await newBoxKey() });
  for (let n = 0; n < 20; n++) {
    const at = Math.floor(Math.random() * whole.length);
    await refused(whole.map((byte, index) => (index === at ? byte ^ 4 : byte)));
  }
  const large = await sealedIn(new Uint8Array(MAX_SIZE + 1), [1_000_000]);
  await refused(large.whole, large.token);
});

it('makes another seal of the same file each time, so that no key is used twice', async () => {
  const file = { name: 'a', type: 'text/plain', bytes: randomBytes(100) };
  const [one, other] = [await sealUpload(file, keys), await sealUpload(file, keys)];
  expect(one.token).not.toBe(other.token);
  expect(isSame(one.file.bytes, other.file.bytes)).toBe(false);
});

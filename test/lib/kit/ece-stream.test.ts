import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { concatBytes, fromBase64url } from '../../../lib/kit/bytes.ts';
import { createDecryptor, encryptedSize, encryptRecords, RECORD_SIZE } from '../../../lib/kit/ece-stream.ts';

const bytes = (text: string): Uint8Array => fromBase64url(text) as Uint8Array;
const secret = randomBytes(32);

/** Cuts bytes into chunks of these lengths, again and again. */
function* chunksOf(whole: Uint8Array, lengths: readonly number[]): Generator<Uint8Array> {
  for (let at = 0, n = 0; at < whole.length; n++) {
    const length = lengths[n % lengths.length] ?? 1;
    yield whole.subarray(at, at + length);
    at += length;
  }
}

async function encrypt(plain: Uint8Array, lengths: readonly number[] = [1_000_000]): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of encryptRecords(chunksOf(plain, lengths), secret)) chunks.push(chunk);
  return concatBytes(...chunks);
}

async function decrypt(
  coded: Uint8Array,
  lengths: readonly number[] = [1_000_000],
  by: Uint8Array = secret,
): Promise<Uint8Array> {
  const decryptor = createDecryptor(by);
  const plain: Uint8Array[] = [];
  for (const chunk of chunksOf(coded, lengths)) plain.push(...(await decryptor.push(chunk)));
  return concatBytes(...plain, await decryptor.end());
}

const isSame = (one: Uint8Array, other: Uint8Array): boolean => Buffer.compare(one, other) === 0;

it('RFC 8188 §3.2: reads the example of several records with padding and a key id, in any chunks', async () => {
  const coded = bytes(
    'uNCkWiNYzKTnBN9ji3-qWAAAABkCYTHOG8chz_gnvgOqdGYovxyjuqRyJFjEDyoF1Fvkj6hQPdPHI51OEUKEpgz3SsLWIqS_uA',
  );
  for (const length of [1, 7, 25, 100]) {
    const plain = await decrypt(coded, [length], bytes('BO3ZVPxUlnLORbVGMpbT1Q'));
    expect(new TextDecoder().decode(plain)).toBe('I am the walrus');
  }
});

const CONTENT = RECORD_SIZE - 17;

it('gives back what was encrypted, of any size and in any chunks, and is as long as it says', async () => {
  const size = fc.oneof(
    fc.integer({ min: 0, max: 300_000 }),
    fc.constantFrom(0, 1, CONTENT - 1, CONTENT, CONTENT + 1, 2 * CONTENT, 3 * CONTENT),
  );
  const lengths = fc.array(fc.integer({ min: 1_000, max: 200_000 }), { minLength: 1, maxLength: 4 });
  await fc.assert(
    fc.asyncProperty(size, lengths, lengths, async (length, one, other) => {
      const plain = randomBytes(length);
      const coded = await encrypt(plain, one);
      expect(coded.length).toBe(encryptedSize(length));
      expect(isSame(await decrypt(coded, other), plain)).toBe(true);
    }),
    { numRuns: 40 },
  );
});

it('refuses what was cut, continued, changed or put in another order', async () => {
  const coded = await encrypt(randomBytes(3 * CONTENT));
  const [head, one, two, three] = [
    coded.subarray(0, 21),
    coded.subarray(21, 21 + RECORD_SIZE),
    coded.subarray(21 + RECORD_SIZE, 21 + 2 * RECORD_SIZE),
    coded.subarray(21 + 2 * RECORD_SIZE),
  ];
  const join = (...parts: (Uint8Array | undefined)[]) => concatBytes(...parts.map((part) => part ?? new Uint8Array()));
  expect((await decrypt(join(head, one, two, three))).length).toBe(3 * CONTENT);
  const wrong = [
    join(head),
    join(head, one),
    join(head, one, two),
    coded.subarray(0, -1),
    coded.subarray(0, 10),
    join(coded, Uint8Array.of(0)),
    join(coded, three),
    join(head, two, one, three),
    join(head, one, one, two, three),
    join(head, three),
  ];
  for (const each of wrong) await expect(decrypt(each)).rejects.toThrow();
  for (let n = 0; n < 40; n++) {
    const changed = coded.slice();
    const at = n < 21 ? n : Math.floor(Math.random() * coded.length);
    changed[at] = (changed[at] ?? 0) ^ 4;
    await expect(decrypt(changed)).rejects.toThrow();
  }
  await expect(decrypt(coded, undefined, randomBytes(32))).rejects.toThrow();
});

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { levelsOf, sampleChunks } from '../../../../lib/voice/streaming/pcm.ts';

async function chunksOf(parts: Uint8Array[], limit?: number): Promise<Uint8Array[]> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of sampleChunks(
    (async function* () {
      yield* parts;
    })(),
    limit,
  )) {
    chunks.push(chunk);
  }
  return chunks;
}

const samples = (...values: number[]) => new Uint8Array(Int16Array.from(values).buffer);

it('05 §12: however a stream is cut, its bytes come out in order, in whole samples of 4096 bytes', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(fc.uint8Array({ maxLength: 9000 }), { maxLength: 8 }), async (parts) => {
      const chunks = await chunksOf(parts);
      const all = Buffer.concat(parts);
      expect(Buffer.concat(chunks).equals(all.subarray(0, all.length & ~1))).toBe(true);
      expect(chunks.slice(0, -1).every(({ length }) => length === 4096)).toBe(true);
      expect(chunks.every(({ length }) => length > 0 && length % 2 === 0 && length <= 4096)).toBe(true);
    }),
  );
});

it('passes a full chunk on before the next part of the stream is read', async () => {
  let parts = 0;
  const source = async function* () {
    for (; ; parts++) yield new Uint8Array(4096);
  };
  const chunks = sampleChunks(source());
  await chunks.next();
  expect(parts).toBe(0);
  await chunks.return(undefined);
});

it('a chunk that was passed on is not written to again', async () => {
  const [first, second] = await chunksOf([new Uint8Array(4096).fill(1), new Uint8Array(4096).fill(2)]);
  expect([first?.[0], second?.[0]]).toEqual([1, 2]);
});

it('refuses a stream over its limit, and stops reading it', async () => {
  let closed = false;
  const source = async function* () {
    try {
      for (;;) yield new Uint8Array(1000);
    } finally {
      closed = true;
    }
  };
  const read = async () => {
    for await (const chunk of sampleChunks(source(), 10_000)) expect(chunk.length).toBe(4096);
  };
  await expect(read()).rejects.toThrow('more than 10000 bytes');
  expect(closed).toBe(true);
});

it('05 §12: peak and rms are 0 to 1 with 4 decimals', () => {
  expect(levelsOf(new Uint8Array())).toEqual({ peak: 0, rms: 0 });
  expect(levelsOf(samples(0, 0))).toEqual({ peak: 0, rms: 0 });
  expect(levelsOf(samples(-32_768, -32_768))).toEqual({ peak: 1, rms: 1 });
  expect(levelsOf(samples(8000, -8000, 0, 0))).toEqual({ peak: 0.2441, rms: 0.1726 });
  const unaligned = new Uint8Array([9, ...samples(16_384)]).subarray(1);
  expect(levelsOf(unaligned)).toEqual({ peak: 0.5, rms: 0.5 });
});

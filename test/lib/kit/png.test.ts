import { crc32, inflateSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { encodePng } from '../../../lib/kit/png.ts';

/** The chunks of a PNG by type. Throws when a checksum is wrong. */
function chunksOf(file: Uint8Array): Map<string, Buffer> {
  const png = Buffer.from(file);
  expect(png.subarray(0, 8).toString('hex')).toBe('89504e470d0a1a0a');
  const chunks = new Map<string, Buffer>();
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at);
    const body = png.subarray(at + 4, at + 8 + length);
    expect(png.readUInt32BE(at + 8 + length)).toBe(crc32(body));
    chunks.set(body.subarray(0, 4).toString('latin1'), body.subarray(4));
    at += 12 + length;
  }
  return chunks;
}

it.each([
  [8, Uint8Array.of(0, 50, 255, 9, 8, 7), [0, 0, 50, 255, 0, 9, 8, 7]],
  [1, Uint8Array.of(0b10100000, 0b01000000), [0, 0b10100000, 0, 0b01000000]],
] as const)('a picture of %i bit', async (depth, rows, filtered) => {
  const chunks = chunksOf(await encodePng({ width: 3, height: 2, depth, rows }));
  expect([...chunks.keys()]).toEqual(['IHDR', 'IDAT', 'IEND']);
  expect([...(chunks.get('IHDR') ?? [])]).toEqual([0, 0, 0, 3, 0, 0, 0, 2, depth, 0, 0, 0, 0]);
  expect([...inflateSync(chunks.get('IDAT') ?? Buffer.alloc(0))]).toEqual([...filtered]);
});

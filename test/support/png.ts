import { crc32, inflateSync } from 'node:zlib';

/** Decodes one of our black-and-white PNGs. `pixels[y][x]` is true for dark. Throws on an invalid file. */
export function readPng(file: Buffer): { side: number; pixels: boolean[][] } {
  if (file.subarray(0, 8).toString('hex') !== '89504e470d0a1a0a') throw new Error('no PNG signature');
  const chunks = new Map<string, Buffer>();
  for (let at = 8; at < file.length; ) {
    const length = file.readUInt32BE(at);
    const typeAndData = file.subarray(at + 4, at + 8 + length);
    if (crc32(typeAndData) !== file.readUInt32BE(at + 8 + length)) throw new Error('bad CRC');
    chunks.set(typeAndData.subarray(0, 4).toString('latin1'), typeAndData.subarray(4));
    at += 12 + length;
  }
  if ([...chunks.keys()].join() !== 'IHDR,IDAT,IEND') throw new Error('wrong chunks');
  const header = chunks.get('IHDR') as Buffer;
  const side = header.readUInt32BE(0);
  if (header.readUInt32BE(4) !== side || header.subarray(8).toString('hex') !== '0100000000') {
    throw new Error('not square, 1 bit, greyscale');
  }
  const data = inflateSync(chunks.get('IDAT') as Buffer);
  const rowBytes = Math.ceil(side / 8) + 1;
  if (data.length !== rowBytes * side) throw new Error('wrong amount of pixels');
  const pixels = Array.from({ length: side }, (_, y) =>
    Array.from({ length: side }, (_, x) => {
      const byte = data[y * rowBytes + 1 + (x >> 3)] as number;
      return (byte & (0x80 >> (x & 7))) === 0;
    }),
  );
  return { side, pixels };
}

import { crc32, deflateSync } from 'node:zlib';

const SIGNATURE = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);

/**
 * A square of modules (true = dark) as a PNG in black and white, one bit a pixel.
 * @param scale pixels along the side of a module
 * @param border light modules around it
 */
export function encodePng(modules: boolean[][], scale = 8, border = 4): Buffer {
  const side = (modules.length + 2 * border) * scale;
  const rowBytes = Math.ceil(side / 8);
  const pixels = Buffer.alloc(side * (rowBytes + 1));
  for (let y = 0; y < side; y++) {
    const row = modules[Math.floor(y / scale) - border];
    // The byte before each row names its filter: 0, none.
    const start = y * (rowBytes + 1) + 1;
    for (let x = 0; x < side; x++) {
      const dark = row?.[Math.floor(x / scale) - border] === true;
      if (!dark) pixels[start + (x >> 3)] = (pixels[start + (x >> 3)] as number) | (0x80 >> (x & 7));
    }
  }
  const header = Buffer.alloc(13);
  header.writeUInt32BE(side, 0);
  header.writeUInt32BE(side, 4);
  // Bit depth 1, greyscale, then the only defined methods of compression, filter and interlace (none).
  header.set([1, 0, 0, 0, 0], 8);
  return Buffer.concat([
    SIGNATURE,
    chunk('IHDR', header),
    chunk('IDAT', deflateSync(pixels)),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

function chunk(type: string, data: Buffer): Buffer {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(data.length);
  const check = Buffer.alloc(4);
  check.writeUInt32BE(crc32(body));
  return Buffer.concat([length, body, check]);
}

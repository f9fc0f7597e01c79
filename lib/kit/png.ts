import { concatBytes, utf8ToBytes } from './bytes.ts';

/** A greyscale picture; `rows` holds the pixels row by row, each row starting at a byte boundary. */
export interface GreyPicture {
  width: number;
  height: number;
  /** Bits per pixel; 0 is black. */
  depth: 1 | 8;
  rows: Uint8Array;
}

const SIGNATURE = Uint8Array.of(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a);

/** A picture as a PNG file. */
export async function encodePng({ width, height, depth, rows }: GreyPicture): Promise<Uint8Array> {
  const header = new Uint8Array(13);
  const view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  // Greyscale, and the only defined compression, filter and interlacing methods, are all 0.
  header[8] = depth;
  const rowBytes = Math.ceil((width * depth) / 8);
  // The byte before each row names its filter: 0, none.
  const filtered = new Uint8Array((rowBytes + 1) * height);
  for (let y = 0; y < height; y++) {
    filtered.set(rows.subarray(y * rowBytes, (y + 1) * rowBytes), y * (rowBytes + 1) + 1);
  }
  return concatBytes(
    SIGNATURE,
    chunk('IHDR', header),
    chunk('IDAT', await deflate(filtered)),
    chunk('IEND', new Uint8Array()),
  );
}

function chunk(type: string, data: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(data.length + 12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, data.length);
  bytes.set(utf8ToBytes(type), 4);
  bytes.set(data, 8);
  view.setUint32(data.length + 8, crc32(bytes.subarray(4, data.length + 8)));
  return bytes;
}

function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}

/** The platform's `deflate` is the zlib format of PNG. */
async function deflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

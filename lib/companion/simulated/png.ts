import type { Rect } from '../device.ts';

/** Grey values of a picture, row by row. */
export interface Picture {
  width: number;
  height: number;
  pixels: Uint8Array;
}

/** Draws rectangles as frames, each a shade darker than what it lies on. `scale` screen pixels make one of the picture. */
export function drawFrames(screen: Rect, rects: Rect[], scale: number): Picture {
  const width = Math.floor((screen.right - screen.left) / scale);
  const height = Math.floor((screen.bottom - screen.top) / scale);
  const pixels = new Uint8Array(width * height).fill(255);
  for (const rect of rects) {
    const [left, top] = [Math.floor(rect.left / scale), Math.floor(rect.top / scale)];
    const [right, bottom] = [Math.floor(rect.right / scale) - 1, Math.floor(rect.bottom / scale) - 1];
    for (let y = top; y <= bottom; y++) {
      for (let x = left; x <= right; x++) {
        const edge = x === left || x === right || y === top || y === bottom;
        const at = y * width + x;
        pixels[at] = edge ? 60 : Math.max(120, (pixels[at] ?? 0) - 12);
      }
    }
  }
  return { width, height, pixels };
}

const SIGNATURE = [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a];

function crc32(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? (crc >>> 1) ^ 0xedb88320 : crc >>> 1;
  }
  return (crc ^ 0xffffffff) >>> 0;
}

function chunk(type: string, data: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(data.length + 12);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, data.length);
  bytes.set(new TextEncoder().encode(type), 4);
  bytes.set(data, 8);
  view.setUint32(data.length + 8, crc32(bytes.subarray(4, data.length + 8)));
  return bytes;
}

/** `deflate` of the platform is the zlib format that a PNG wants. */
async function deflate(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array> {
  const stream = new Blob([bytes]).stream().pipeThrough(new CompressionStream('deflate'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** A picture as a PNG: eight bit grey, no filter. */
export async function encodePng({ width, height, pixels }: Picture): Promise<Uint8Array> {
  const header = new Uint8Array(13);
  const view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  header[8] = 8;
  const rows = new Uint8Array((width + 1) * height);
  for (let y = 0; y < height; y++) rows.set(pixels.subarray(y * width, (y + 1) * width), y * (width + 1) + 1);
  const parts = [
    Uint8Array.from(SIGNATURE),
    chunk('IHDR', header),
    chunk('IDAT', await deflate(rows)),
    chunk('IEND', new Uint8Array()),
  ];
  const png = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    png.set(part, at);
    at += part.length;
  }
  return png;
}

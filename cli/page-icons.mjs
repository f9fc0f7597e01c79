/** Draws the icon of the app as PNG, for systems that install no SVG: the picture of `handlers/web/shared/icon.svg`. */
import { crc32, deflateSync } from 'node:zlib';

const BLUE = [0x24, 0x56, 0xc9];
const WHITE = [0xff, 0xff, 0xff];
/** On a grid of 512, with round ends. */
const STROKE = 44;
const LINES = [
  [144, 176, 232, 256],
  [232, 256, 144, 336],
  [264, 344, 376, 344],
];

/** A square PNG of `size` pixels, filled to its corners, which systems round by themselves. */
export function drawIcon(size) {
  const rowBytes = 1 + 3 * size;
  const rows = Buffer.alloc(rowBytes * size);
  for (let y = 0; y < size; y++) {
    for (let x = 0; x < size; x++) {
      const share = coverage(((x + 0.5) * 512) / size, ((y + 0.5) * 512) / size, 512 / size);
      const colour = BLUE.map((from, part) => Math.round(from + (WHITE[part] - from) * share));
      rows.set(colour, y * rowBytes + 1 + 3 * x);
    }
  }
  const head = Buffer.alloc(13);
  head.writeUInt32BE(size, 0);
  head.writeUInt32BE(size, 4);
  // 8 bits of red, green and blue.
  head.set([8, 2, 0, 0, 0], 8);
  const signature = Buffer.from([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]);
  return Buffer.concat([signature, chunk('IHDR', head), chunk('IDAT', deflateSync(rows)), chunk('IEND')]);
}

/** How much of a pixel the lines cover, 0 to 1; `pixel` is its side on the grid. */
function coverage(x, y, pixel) {
  const distance = Math.min(...LINES.map((line) => distanceTo(line, x, y)));
  return Math.min(1, Math.max(0, (STROKE / 2 - distance) / pixel + 0.5));
}

function distanceTo([x1, y1, x2, y2], x, y) {
  const [dx, dy] = [x2 - x1, y2 - y1];
  const at = Math.min(1, Math.max(0, ((x - x1) * dx + (y - y1) * dy) / (dx * dx + dy * dy)));
  return Math.hypot(x - x1 - at * dx, y - y1 - at * dy);
}

function chunk(type, data = Buffer.alloc(0)) {
  const body = Buffer.concat([Buffer.from(type, 'latin1'), data]);
  const framed = Buffer.alloc(body.length + 8);
  framed.writeUInt32BE(data.length, 0);
  body.copy(framed, 4);
  framed.writeUInt32BE(crc32(body), body.length + 4);
  return framed;
}

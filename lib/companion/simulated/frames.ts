import type { GreyPicture } from '../../kit/png.ts';
import type { Rect } from '../device.ts';

/** Draws each rectangle as a frame, a shade darker than what lies below. `scale` screen pixels make one of the picture. */
export function drawFrames(screen: Rect, rects: Rect[], scale: number): GreyPicture {
  const width = Math.floor((screen.right - screen.left) / scale);
  const height = Math.floor((screen.bottom - screen.top) / scale);
  const rows = new Uint8Array(width * height).fill(255);
  for (const rect of rects) {
    const [left, top] = [Math.floor(rect.left / scale), Math.floor(rect.top / scale)];
    const [right, bottom] = [Math.floor(rect.right / scale) - 1, Math.floor(rect.bottom / scale) - 1];
    for (let y = top; y <= bottom; y++) {
      for (let x = left; x <= right; x++) {
        const edge = x === left || x === right || y === top || y === bottom;
        const at = y * width + x;
        rows[at] = edge ? 60 : Math.max(120, (rows[at] ?? 0) - 12);
      }
    }
  }
  return { width, height, depth: 8, rows };
}

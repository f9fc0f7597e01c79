import { encode } from 'uqr';

const WIDTH = 640;
const HEIGHT = 480;

/** A video of one frame that shows a QR code, as chromium's fake camera plays it (YUV4MPEG2, 4:2:0). */
export function qrVideo(text: string): Buffer {
  const code = encode(text, { ecc: 'L', border: 4 });
  const scale = Math.floor(HEIGHT / code.size);
  const left = Math.floor((WIDTH - code.size * scale) / 2);
  const luma = Buffer.alloc(WIDTH * HEIGHT, 235);
  code.data.forEach((row, y) => {
    row.forEach((isDark, x) => {
      if (!isDark) return;
      for (let line = y * scale; line < (y + 1) * scale; line++) {
        luma.fill(16, line * WIDTH + left + x * scale, line * WIDTH + left + (x + 1) * scale);
      }
    });
  });
  const chroma = Buffer.alloc((WIDTH * HEIGHT) / 2, 128);
  const head = Buffer.from(`YUV4MPEG2 W${WIDTH} H${HEIGHT} F10:1 Ip A1:1 C420jpeg\nFRAME\n`);
  return Buffer.concat([head, luma, chroma]);
}

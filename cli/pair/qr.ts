import { lstat, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { encode, renderUnicodeCompact } from 'uqr';
import { makeDirectory } from '../../lib/host/node/files.ts';
import { attempt } from '../../lib/kit/attempt.ts';
import { base64url, randomBytes } from '../../lib/kit/bytes.ts';
import { encodePng, type GreyPicture } from '../../lib/kit/png.ts';

/** Level L, not boosted: payloads are long, and a larger code is harder to scan off a screen than a weaker one. */
const LEVEL = { ecc: 'L', boostEcc: false } as const;

/** The largest code that a camera reads off a terminal: 117 modules, 1,273 bytes. Larger ones need a PNG. */
const MAX_TERMINAL_VERSION = 25;

/** A QR code in half blocks, two modules per character, or null if the text is too long for a terminal. */
export function terminalQr(text: string, { colour }: { colour: boolean }): string[] | null {
  const drawn = attempt(() => renderUnicodeCompact(text, { ...LEVEL, border: 1, maxVersion: MAX_TERMINAL_VERSION }));
  // Blocks are the light modules. Explicit colours keep the code correct on a light terminal. One sequence each: `line`
  // takes any other for foreign text, and makes it harmless.
  return drawn?.split('\n').map((row) => (colour ? `\u001b[97m\u001b[40m${row}\u001b[0m` : row)) ?? null;
}

/**
 * Writes a QR code as a PNG into `directory` and returns its path, or null if the text is too long. It contains credentials,
 * so only the owner can read it and its name is unguessable.
 */
export async function writeQrPng(text: string, directory: string): Promise<string | null> {
  const code = attempt(() => encode(text, { ...LEVEL, border: 0 }));
  if (!code) return null;
  const path = join(directory, `svc-pair-${base64url(randomBytes(12))}.png`);
  await makeDirectory(directory);
  await writeFile(path, await encodePng(pictureOf(code.data)), { flag: 'wx', mode: 0o600 });
  return path;
}

/** Milliseconds for which a code in a PNG is valid. */
const PNG_LIFETIME = 600_000;

/** Removes the PNG files of earlier calls whose codes have expired. They may still contain the key of an API server. */
export async function removeOldPngs(directory: string, now = Date.now()): Promise<void> {
  const names = await readdir(directory).catch((): string[] => []);
  for (const name of names.filter((name) => /^svc-pair-[\w-]{16}\.png$/.test(name))) {
    const path = join(directory, name);
    const found = await lstat(path).catch(() => null);
    if (found?.isFile() && now - found.mtimeMs > PNG_LIFETIME) await rm(path, { force: true }).catch(() => {});
  }
}

/** Pixels along the side of a module, and light modules around the code (four are the standard's quiet zone). */
const SCALE = 8;
const BORDER = 4;

/** The modules of a code (true = dark) in black and white. */
function pictureOf(modules: boolean[][]): GreyPicture {
  const side = (modules.length + 2 * BORDER) * SCALE;
  const rowBytes = Math.ceil(side / 8);
  const rows = new Uint8Array(side * rowBytes);
  for (let y = 0; y < side; y++) {
    const row = modules[Math.floor(y / SCALE) - BORDER];
    for (let x = 0; x < side; x++) {
      const isDark = row?.[Math.floor(x / SCALE) - BORDER] === true;
      const at = y * rowBytes + (x >> 3);
      if (!isDark) rows[at] = (rows[at] as number) | (0x80 >> (x & 7));
    }
  }
  return { width: side, height: side, depth: 1, rows };
}

import { describe, expect, it } from 'vitest';
import { readLongJson } from '../../../lib/kit/long-json.ts';

const MiB = 1024 * 1024;
const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

describe('long JSON (contract 02 §1.1)', () => {
  it('keeps what slices cut', async () => {
    const starts = ['', ' ', '  ', '   '];
    const wide = starts.map((start) => `${start}["${'\u4e2d\u{1f600}'.repeat(MiB)}"]`);
    for (const text of [...wide, ...starts.map((start) => `${start}["\u4e2d","${'\\"[],'.repeat(MiB)}"]`)]) {
      expect((await readLongJson(bytes(text))) === text).toBe(true);
      expect((await readLongJson(text)) === text).toBe(true);
    }
  });
});

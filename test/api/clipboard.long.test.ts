import { readdir, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { imageOf, put } from '../support/clipboard.ts';
import { describeMatrix, pair } from '../support/relay.ts';

const MiB = 1024 * 1024;

describeMatrix(
  'limits of POST /clipboard/inbox (contract 04 §6)',
  (start) => {
    it('accepts 25 MiB, refuses one byte more and any body over 36 MiB', async () => {
      const target = await start();
      const { token } = await pair(target);
      const { status, body } = await put(target, token, imageOf(25 * MiB));
      expect([status, body.size_bytes]).toEqual([200, 25 * MiB]);
      expect((await stat(body.path)).size).toBe(25 * MiB);
      expect((await put(target, token, imageOf(25 * MiB + 1))).status).toBe(413);
      expect((await put(target, token, `{"format":"${'x'.repeat(36 * MiB)}"}`)).status).toBe(413);
      expect(await readdir(join(target.agentHome, 'images/inbox'))).toHaveLength(1);
    });
  },
  ['node'],
);

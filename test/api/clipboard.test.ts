import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { imageOf, PNG, put } from '../support/clipboard.ts';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';

const BASE64 = PNG.toString('base64');

describeMatrix('POST /clipboard/inbox (contract 01 §7, 04 §6)', (start, runtime) => {
  it('writes a file on a host; 501 without a host', async () => {
    const target = await start();
    const { token } = await pair(target);
    const send = (body: unknown) => target.fetch('/clipboard/inbox', { ...post(body), headers: bearer(token) });
    const response = await send({ format: 'PNG', bytes_base64: BASE64, filename_hint: '../a b/..' });
    if (runtime === 'edge') {
      expect(response.status).toBe(501);
      return;
    }
    const { ok, path, size_bytes } = await response.json();
    expect(ok).toBe(true);
    expect(path).toMatch(/\/images\/inbox\/clip_\d{8}_\d{6}_\d+_ab_[a-z0-9]{6}\.png$/);
    expect((await readFile(path)).length).toBe(size_bytes);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    for (const bad of [
      {},
      { format: 'bmp', bytes_base64: BASE64 },
      { format: 'jpg', bytes_base64: BASE64 },
      { format: 'png', bytes_base64: '*' },
    ]) {
      expect((await send(bad)).status).toBe(400);
    }
    expect((await target.fetch('/clipboard/inbox', post({ format: 'png', bytes_base64: BASE64 }))).status).toBe(401);
  });
});

describeMatrix(
  'limits of POST /clipboard/inbox (contract 04 §6)',
  (start) => {
    it.each<[unknown, RegExp]>([
      ['[]', /object/],
      ['{', /JSON/],
      [{ bytes_base64: '' }, /format/],
      [{ format: 5, bytes_base64: '' }, /format/],
      [{ format: 'bmp' }, /bytes_base64/],
      [{ format: 'bmp', bytes_base64: '!' }, /format/],
      [{ format: 'png', bytes_base64: [] }, /bytes_base64/],
      [{ format: 'png', bytes_base64: `data:image/png;base64,${PNG.toString('base64')}` }, /base64/],
      [{ format: 'png', bytes_base64: '' }, /empty/],
      [{ format: 'gif', bytes_base64: PNG.toString('base64') }, /gif/],
    ])('%j is 400 and writes nothing', async (body, error) => {
      const target = await start();
      const { token } = await pair(target);
      expect(await put(target, token, body)).toEqual({
        status: 400,
        body: { ok: false, error: expect.stringMatching(error) },
      });
      expect(await readdir(target.agentHome)).not.toContain('images');
    });

    it('takes two requests of a session at a time; a third is 429 until one of them ends', async () => {
      const target = await start();
      const { token } = await pair(target);
      const other = await pair(target);
      const begun = Array.from({ length: 2 }, () => {
        const socket = connect(Number(new URL(target.url).port), '127.0.0.1');
        const head = { host: '127.0.0.1', 'content-length': 1000, ...bearer(token) };
        const lines = Object.entries(head).map((line) => line.join(': '));
        socket.write(['POST /clipboard/inbox HTTP/1.1', ...lines, '', '{'].join('\r\n'));
        return socket;
      });
      await expect.poll(async () => (await put(target, token, '[]')).status).toBe(429);
      const third = await target.fetch('/clipboard/inbox', { ...post({}), headers: bearer(token) });
      expect([third.headers.get('retry-after'), (await third.json()).ok]).toEqual(['2', false]);
      expect((await put(target, other.token, imageOf(16))).status).toBe(200);
      for (const socket of begun) socket.destroy();
      await expect.poll(async () => (await put(target, token, imageOf(16))).status).toBe(200);
    });

    it('answers a failed write with 500, without a path', async () => {
      const target = await start();
      const { token } = await pair(target);
      await mkdir(join(target.agentHome, 'images'));
      await writeFile(join(target.agentHome, 'images/inbox'), '');
      const { status, body } = await put(target, token, imageOf(16));
      expect([status, body.ok]).toEqual([500, false]);
      expect(body.error).not.toContain('/');
    });
  },
  ['node'],
);

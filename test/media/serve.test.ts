import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { bearer, describeMatrix, pair, post } from '../support/relay.ts';
import { temporaryDirectory } from '../support/temp.ts';

const PNG = Buffer.from('89504e470d0a1a0a0000000d49484452', 'hex');

function form(bytes: Uint8Array, name = 'picture.png', type = 'image/png'): FormData {
  const data = new FormData();
  data.append('note', 'ignored');
  data.append('file', new Blob([bytes as never], { type }), name);
  return data;
}

describeMatrix('media (contract 04 §3)', (start, runtime) => {
  it('what is uploaded comes back byte for byte, with its headers', async () => {
    const target = await start();
    const { token } = await pair(target);
    const sent = await target.fetch('/media/upload', {
      method: 'POST',
      body: form(PNG, 'Überblick 日本.png'),
      headers: bearer(token),
    });
    const ticket = await sent.json();
    expect(ticket).toEqual({
      ok: true,
      token: expect.stringMatching(/^[A-Za-z0-9_-]{22}$/),
      expires_at: expect.any(Number),
    });
    const got = await target.fetch(`/media/${ticket.token}`, { headers: bearer(token) });
    expect(got.status).toBe(200);
    console.log(runtime, [...got.headers]);
    expect(Buffer.from(await got.arrayBuffer())).toEqual(PNG);
    const head = await target.fetch(`/media/${ticket.token}`, { headers: bearer(token), method: 'HEAD' });
    console.log(runtime, head.status, [...head.headers]);
    const part = await target.fetch(`/media/${ticket.token}`, { headers: { ...bearer(token), range: 'bytes=1-3' } });
    console.log(runtime, part.status, [...part.headers], await part.text());
    const not = await target.fetch(`/media/${ticket.token}`, { headers: { ...bearer(token), range: 'bytes=100-' } });
    console.log(runtime, not.status, [...not.headers], await not.text());
    const inspect = await target.operator('/media/inspect');
    console.log(runtime, await inspect.text());
    const reg = await target.operator('/media/register', post({ path: '/tmp/x', content_type: 'image/png' }));
    console.log(runtime, reg.status, await reg.text());
  });
});

import { expect, it, vi } from 'vitest';
import { form, mediaDevice, PNG, statusOf } from '../support/media.ts';
import { describeMatrix, post } from '../support/relay.ts';

describeMatrix('media (contract 04 §3)', (start, runtime) => {
  it('an upload comes back byte for byte, with every header', async () => {
    const target = await start();
    const device = await mediaDevice(target);
    const bytes = Buffer.from(Array.from({ length: 300_000 }, (_, at) => (at * 7) % 256));
    const sent = await device.upload(form(bytes, 'Über/blick 日本.bin', 'application/x-thing; v=1'));
    expect(sent.status).toBe(200);
    expect(sent.headers.get('cache-control')).toBe('no-store');
    const ticket = await sent.json();
    expect(Object.keys(ticket)).toEqual(['ok', 'token', 'expires_at']);
    expect(ticket).toMatchObject({ ok: true, token: expect.stringMatching(/^[A-Za-z0-9_-]{22}$/) });
    expect(ticket.expires_at - Date.now() / 1000).toBeGreaterThan(86_000);

    const got = await device.get(`/media/${ticket.token}`);
    expect(got.status).toBe(200);
    expect(Buffer.from(await got.arrayBuffer()).equals(bytes)).toBe(true);
    const headers = Object.fromEntries(got.headers);
    expect(headers).toMatchObject({
      'content-type': 'application/x-thing; v=1',
      'content-length': '300000',
      'cache-control': 'private, max-age=3600',
      'accept-ranges': 'bytes',
      'x-content-type-options': 'nosniff',
    });
    expect(Buffer.from(headers['content-disposition'] ?? '', 'latin1').toString()).toBe(
      `inline; filename="blick 日本.bin"; filename*=UTF-8''blick%20%E6%97%A5%E6%9C%AC.bin`,
    );
    expect(headers).not.toHaveProperty('x-media-sensitive');
    expect(headers).not.toHaveProperty('content-encoding');

    const head = await device.get(`/media/${ticket.token}`, { method: 'HEAD' });
    expect(head.status).toBe(200);
    for (const name of [
      'content-type',
      'content-length',
      'content-disposition',
      'cache-control',
      'accept-ranges',
      'etag',
      'last-modified',
    ]) {
      expect([name, head.headers.get(name)]).toEqual([name, headers[name]]);
    }
    expect(await head.text()).toBe('');
  });

  it('ranges and conditions', async () => {
    const target = await start();
    const device = await mediaDevice(target);
    const path = `/media/${await device.put(Buffer.from('0123456789'), 'a.txt', 'text/plain')}`;
    const { headers: first } = await device.get(path);
    const [etag, modified] = [first.get('etag') ?? '', first.get('last-modified') ?? ''];
    expect(etag).toMatch(/^"[^"]+"$/);

    const part = await device.get(path, { headers: { range: 'bytes=2-4' } });
    expect([
      part.status,
      part.headers.get('content-range'),
      part.headers.get('content-length'),
      await part.text(),
    ]).toEqual([206, 'bytes 2-4/10', '3', '234']);
    const tail = await device.get(path, { headers: { range: 'bytes=-2', 'if-range': etag } });
    expect([tail.status, await tail.text()]).toEqual([206, '89']);
    const none = await device.get(path, { headers: { range: 'bytes=10-' } });
    expect([none.status, none.headers.get('content-range')]).toEqual([416, 'bytes */10']);
    expect(none.headers.get('cache-control')).toBe('no-store');
    expect((await none.json()).ok).toBe(false);
    for (const range of ['bytes=5-2', 'bytes=0-1,4-5', 'nonsense']) {
      const whole = await device.get(path, { headers: { range } });
      expect([whole.status, await whole.text()]).toEqual([200, '0123456789']);
    }
    const otherwise = await device.get(path, { headers: { range: 'bytes=0-1', 'if-range': '"other"' } });
    expect([otherwise.status, await otherwise.text()]).toEqual([200, '0123456789']);
    for (const headers of [{ 'if-none-match': etag }, { 'if-modified-since': modified }] as Record<string, string>[]) {
      const unchanged = await device.get(path, {
        headers: headers as HeadersInit as Record<string, string>,
        cache: 'no-store',
      });
      expect([unchanged.status, await unchanged.text(), unchanged.headers.get('etag')]).toEqual([304, '', etag]);
    }
    const headRange = await device.get(path, { method: 'HEAD', headers: { range: 'bytes=2-4' } });
    expect([headRange.status, headRange.headers.get('content-range'), await headRange.text()]).toEqual([
      206,
      'bytes 2-4/10',
      '',
    ]);
  });

  it('an empty file is one', async () => {
    const device = await mediaDevice(await start());
    const got = await device.get(`/media/${await device.put(Buffer.alloc(0))}`);
    expect([got.status, got.headers.get('content-length'), await got.text()]).toEqual([200, '0', '']);
  });

  it("an image's type is corrected, another's never", async () => {
    const device = await mediaDevice(await start());
    const typeOf = async (type: string) =>
      (await device.get(`/media/${await device.put(PNG, 'x', type)}`, { method: 'HEAD' })).headers.get('content-type');
    expect(await typeOf('image/jpeg')).toBe('image/png');
    expect(await typeOf('text/plain')).toBe('text/plain');
  });

  it('the operator marks an entry sensitive, once and for all', async () => {
    const target = await start();
    const device = await mediaDevice(target);
    const token = await device.put(PNG);
    for (let time = 0; time < 2; time++) {
      const marked = await target.operator(`/media/${token}/sensitive`, post({}));
      expect([marked.status, await marked.json()]).toEqual([200, { ok: true }]);
    }
    const got = await device.get(`/media/${token}`);
    expect(got.headers.get('x-media-sensitive')).toBe('1');
    for (const bad of ['x'.repeat(22), 'short', '%2e%2e', 'register', `${token}x`]) {
      expect([bad, await statusOf(target.operator(`/media/${bad}/sensitive`, { method: 'POST' }))]).toEqual([bad, 404]);
    }
    expect(
      await statusOf(
        device.get(`/media/${token}/sensitive`, { method: 'POST', headers: { 'x-forwarded-for': '1.2.3.4' } }),
      ),
    ).toBe(403);
  });

  it('who may call, before anything is looked up', async () => {
    const target = await start();
    const device = await mediaDevice(target);
    const token = await device.put(PNG);
    const via = { 'x-forwarded-for': '203.0.113.7' };
    for (const path of [
      `/media/${token}`,
      `/media/${'x'.repeat(22)}`,
      '/media/by-path',
      '/media/by-path?path=/etc/passwd',
    ]) {
      for (const method of ['GET', 'HEAD']) {
        const response = await target.fetch(path, { method });
        expect([
          path,
          response.status,
          response.headers.get('www-authenticate'),
          response.headers.get('cache-control'),
        ]).toEqual([path, 401, 'Bearer', 'no-store']);
        expect([
          path,
          await statusOf(target.fetch(path, { method, headers: { authorization: 'Bearer wrong' } })),
        ]).toEqual([path, 401]);
      }
    }
    // The edge platform closes the connection when nobody has read a body: a client may meet that before the answer.
    const strange = () => statusOf(target.fetch('/media/upload', { method: 'POST', body: form(PNG) }));
    await vi.waitFor(async () => expect(await strange()).toBe(401), { interval: 1 });
    expect(await statusOf(target.fetch('/media/inspect', { headers: via }))).toBe(403);
    expect(await statusOf(target.fetch('/media/register', { ...post({ path: '/tmp/none' }), headers: via }))).toBe(403);
    expect(await statusOf(target.fetch(`/media/${token}`, { headers: { authorization: `Bearer ${token}` } }))).toBe(
      401,
    );
  });

  it('fixed names are no tokens; wrong methods are 405; the control route of that name is left alone', async () => {
    const target = await start();
    const device = await mediaDevice(target);
    for (const [method, path, allow] of [
      ['GET', '/media/register', 'POST'],
      ['GET', '/media/upload', 'POST'],
      ['POST', '/media/by-path', 'GET, HEAD'],
      ['DELETE', '/media/inspect', 'GET, HEAD'],
      ['PUT', `/media/${'x'.repeat(22)}`, 'GET, HEAD'],
    ] as const) {
      const response = await device.get(path, { method });
      expect([path, response.status, response.headers.get('allow')]).toEqual([path, 405, allow]);
    }
    const control = await device.get('/media', post({ action: 'play' }));
    expect(control.status).toBe(503);
    for (const path of [
      `/media/${'x'.repeat(22)}`,
      '/media/short',
      '/media/..%2f..%2fetc%2fpasswd',
      '/media/%00',
      '/media/%',
    ]) {
      const response = await device.get(path);
      expect([path, response.status, response.headers.get('cache-control')]).toEqual([path, 404, 'no-store']);
    }
  });

  it('the operator sees what there is, and no path', async () => {
    const target = await start();
    const device = await mediaDevice(target);
    const first = await device.put(PNG, 'one.png');
    const second = await device.put(PNG, 'two.png');
    const { media } = await (await target.operator('/media/inspect')).json();
    expect(media.map(({ token }: { token: string }) => token).sort()).toEqual([first, second].sort());
    expect(media[0].created_at).toBeGreaterThanOrEqual(media[1].created_at);
    expect(Object.keys(media[0])).toEqual([
      'token',
      'file_name',
      'content_type',
      'size',
      'created_at',
      'expires_at',
      'last_accessed',
      'is_expired',
    ]);
    expect(media).toContainEqual(
      expect.objectContaining({
        token: first,
        file_name: 'one.png',
        content_type: 'image/png',
        size: 16,
        is_expired: false,
      }),
    );
    const info = await (await target.operator('/relay/info')).json();
    expect(info.media_entry_count).toBe(2);
    expect(info.capabilities).toContain('media');
  });

  it('an expired token is gone, and with it what was uploaded', async () => {
    const target = await start({ env: { RELAY_MEDIA_TTL_SECONDS: '1' } });
    const device = await mediaDevice(target);
    // The first look takes long: later it might come when the second is over.
    if (runtime === 'edge') expect(await target.objects?.()).toEqual([]);
    const token = await device.put(PNG);
    if (runtime === 'edge') expect(await target.objects?.()).toHaveLength(1);
    await vi.waitFor(async () => expect(await statusOf(device.get(`/media/${token}`, { method: 'HEAD' }))).toBe(404));
    if (runtime === 'edge') await vi.waitFor(async () => expect(await target.objects?.()).toEqual([]));
    expect((await (await target.operator('/media/inspect?include_expired=1')).json()).media).toEqual([]);
  });

  it('what a restart leaves of it: nothing on a host, everything at the edge', async () => {
    const target = await start();
    const device = await mediaDevice(target);
    const token = await device.put(PNG, 'kept.png');
    await target.operator(`/media/${token}/sensitive`, post({}));
    await target.restart();
    const got = await device.get(`/media/${token}`);
    if (runtime === 'node') return expect(got.status).toBe(404);
    expect([got.status, got.headers.get('x-media-sensitive')]).toEqual([200, '1']);
    expect(Buffer.from(await got.arrayBuffer()).equals(PNG)).toBe(true);
  });

  it('tokens cannot be guessed, nor tried out through their beginnings', async () => {
    const device = await mediaDevice(await start());
    const token = await device.put(PNG);
    const guesses = [
      token.slice(0, -1),
      `${token}A`,
      token.toLowerCase(),
      token.toUpperCase(),
      ` ${token}`,
      `${token}/`,
      `${token}%00`,
    ].filter((guess) => guess !== token);
    for (const guess of guesses) {
      const expected = guess === `${token}/` || guess === ` ${token}` ? [200, 404] : [404];
      expect(expected).toContain(await statusOf(device.get(`/media/${encodeURI(guess)}`)));
    }
  });
});

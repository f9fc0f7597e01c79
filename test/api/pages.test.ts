import { request } from 'node:http';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { describeMatrix, type Target } from '../support/relay.ts';

interface Raw {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: Buffer;
}

/** A request whose answer is left as it came: `fetch` unpacks it. */
function ask({ url }: Target, path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Raw> {
  return new Promise((resolve, reject) => {
    const { hostname, port } = new URL(url);
    const host = hostname === '127.0.0.1' ? `localhost:${port}` : `${hostname}:${port}`;
    const sent = request(
      { agent: false, host: '127.0.0.1', port, path, method, headers: { host, connection: 'close', ...headers } },
      (response) => {
        const chunks: Buffer[] = [];
        response.on('data', (chunk: Buffer) => chunks.push(chunk));
        response.on('end', () =>
          resolve({ status: response.statusCode ?? 0, headers: response.headers, body: Buffer.concat(chunks) }),
        );
      },
    );
    sent.on('error', reject).end();
  });
}

const consoleHost = ({ runtime, url }: Target): Record<string, string> =>
  runtime === 'node' ? { host: new URL(url).host } : {};

describeMatrix('the pages (contract 09 §5)', (start, runtime) => {
  it('§5 have the headers of the contract, in every encoding', async () => {
    const target = await start();
    const plain = await ask(target, '/app/', { 'accept-encoding': 'identity' });
    expect(plain.status).toBe(200);
    expect(plain.headers).toMatchObject({
      'content-type': 'text/html; charset=utf-8',
      'cache-control': 'no-cache',
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
      'cross-origin-opener-policy': 'same-origin',
      'cross-origin-resource-policy': 'same-origin',
      vary: 'Accept-Encoding',
    });
    expect(plain.headers['permissions-policy']).toContain('camera=(self)');
    expect(plain.headers['permissions-policy']).toContain('publickey-credentials-get=(self)');
    expect(plain.headers['content-security-policy']).toBe(
      "default-src 'none'; script-src 'self'; connect-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; " +
        "manifest-src 'self'; worker-src 'self'; style-src 'self'; style-src-elem 'self' 'unsafe-inline'; " +
        "style-src-attr 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'; " +
        "require-trusted-types-for 'script'; trusted-types svc",
    );
    const document = plain.body.toString();
    for (const [encoding, unpack] of [
      ['br', brotliDecompressSync],
      ['gzip', gunzipSync],
    ] as const) {
      const packed = await ask(target, '/app/', { 'accept-encoding': encoding });
      expect(packed.headers['content-encoding']).toBe(encoding);
      expect(unpack(packed.body).toString()).toBe(document);
      expect(packed.headers.etag).not.toBe(plain.headers.etag);
    }
    expect((await ask(target, '/app/', { 'accept-encoding': 'br;q=0, *' })).headers['content-encoding']).toBe(
      undefined,
    );
    const console = await ask(target, '/console/', consoleHost(target));
    expect(console.status).toBe(200);
    expect(console.headers['content-security-policy']).not.toContain('unsafe-inline');
  });

  it('§5 name files that never change, and answer 304 to who has one', async () => {
    const target = await start();
    const [, script = ''] =
      /src="(main-[^"]+\.js)"/.exec((await ask(target, '/app/', { 'accept-encoding': 'identity' })).body.toString()) ??
      [];
    const packed = { 'accept-encoding': 'br, gzip' };
    const file = await ask(target, `/app/${script}`, packed);
    expect(file.headers).toMatchObject({
      'content-type': 'text/javascript; charset=utf-8',
      'cache-control': 'public, max-age=31536000, immutable',
      'content-encoding': 'br',
    });
    const etag = String(file.headers.etag);
    const known = await ask(target, `/app/${script}`, { ...packed, 'if-none-match': `"other", ${etag}` });
    expect([known.status, known.body.length, known.headers.etag]).toEqual([304, 0, etag]);
    const head = await ask(target, `/app/${script}`, packed, 'HEAD');
    expect([head.status, head.body.length, head.headers.etag]).toEqual([200, 0, etag]);
  });

  it('§1 lead a browser from the bare address to the app, and nobody else', async () => {
    const target = await start();
    const page = await ask(target, '/', { accept: 'text/html,application/xhtml+xml' });
    expect([page.status, page.headers.location]).toEqual([302, 'app/']);
    expect((await ask(target, '/')).status).toBe(426);
    expect((await ask(target, '/', { accept: '*/*' })).status).toBe(426);
    const short = await ask(target, '/app');
    expect([short.status, short.headers.location]).toEqual([302, 'app/']);
  });

  it('§5 are no other files, and no other methods', async () => {
    const target = await start();
    for (const path of ['/app/none.js', '/app/../package.json', '/app/%2e%2e/x', '/app//', '/console/main.js.map']) {
      const { status } = await ask(target, path, path.startsWith('/console') ? consoleHost(target) : {});
      expect([path, status]).toEqual([path, 404]);
    }
    expect((await ask(target, '/app/', {}, 'POST')).status).toBe(405);
    // For the service worker; without one, the page says that it was missed.
    const shared = await ask(target, '/app/share', { 'content-type': 'multipart/form-data; boundary=x' }, 'POST');
    expect([shared.status, shared.headers.location]).toEqual([303, './#/shared?lost=1']);
    expect((await ask(target, '/app/share')).status).toBe(404);
  });

  if (runtime === 'node') {
    it('§5 keep the origins of app and console apart', async () => {
      const target = await start();
      const { port, host } = new URL(target.url);
      const app = await ask(target, '/app/?x=1', { host });
      expect([app.status, app.headers.location]).toEqual([302, `http://localhost:${port}/app/?x=1`]);
      const foreign: Record<string, string>[] = [{}, { host, 'x-forwarded-for': '1.2.3.4' }, { host: 'relay.example' }];
      for (const headers of foreign) {
        const refused = await ask(target, '/console/', headers);
        expect(refused.status).toBe(403);
        expect(refused.body.toString()).toContain(`ssh -L ${port}:127.0.0.1:${port} `);
      }
      // A page of the app, on `localhost`, is not the operator's.
      const browser = { 'x-svc-operator': '1', 'sec-fetch-site': 'same-origin' };
      expect((await ask(target, '/relay/devices', browser)).status).toBe(403);
      expect((await ask(target, '/relay/devices', { ...browser, host })).status).toBe(200);
      expect((await ask(target, '/relay/devices')).status).toBe(200);
    });
  }
});

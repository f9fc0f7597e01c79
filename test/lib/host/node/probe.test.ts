import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createServer, type RequestListener } from 'node:http';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer, type Server } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { probe } from '../../../../lib/host/node/probe.ts';
import { TIMEOUT } from '../../../support/limits.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

async function listening(server: Server & { closeAllConnections?(): void }): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.closeAllConnections?.();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

const served = async (listener: RequestListener) => `http://127.0.0.1:${await listening(createServer(listener))}/x`;

describe('probe (07 §5.2)', () => {
  it('is ok from 200 to 399, exists except for 404, and follows no redirect', async () => {
    let status = 200;
    let asked = 0;
    const url = await served((_request, response) => {
      asked += 1;
      response.writeHead(status, { location: '/elsewhere' }).end('{"a":1}');
    });
    for (const [given, ok, exists] of [
      [200, true, true],
      [302, true, true],
      [399, true, true],
      [401, false, true],
      [404, false, false],
      [500, false, true],
    ] as const) {
      status = given;
      expect(await probe('GET', url, TIMEOUT)).toEqual({ ok, exists, status, method: 'GET', url, json: { a: 1 } });
    }
    expect(asked).toBe(6);
  });

  it('has no JSON for other bodies', async () => {
    const url = await served((_request, response) => response.end('<html>'));
    expect(await probe('GET', url, TIMEOUT)).toEqual({ ok: true, exists: true, status: 200, method: 'GET', url });
    expect(await probe('HEAD', url, TIMEOUT)).toEqual({ ok: true, exists: true, status: 200, method: 'HEAD', url });
  });

  it('sends an empty body with POST', async () => {
    const url = await served((request, response) => response.end(JSON.stringify(request.headers)));
    const { json } = await probe('POST', url, TIMEOUT);
    expect(json).toMatchObject({ 'content-length': '0', accept: 'application/json' });
    expect(Object.keys(json as object).sort()).toEqual([
      'accept',
      'accept-encoding',
      'connection',
      'content-length',
      'host',
    ]);
  });

  it('reports the status of an endless or oversized response, but not as ok', async () => {
    const stalls = await served((_request, response) => response.writeHead(200).write('{"a"'));
    expect(await probe('GET', stalls, 3_000)).toMatchObject({
      ok: false,
      exists: true,
      status: 200,
      error: expect.stringMatching(/within 3 s/),
    });
    const floods = await served((_request, response) => response.end('x'.repeat(300 * 1024)));
    expect(await probe('GET', floods, TIMEOUT)).toMatchObject({
      ok: false,
      status: 200,
      error: expect.stringMatching(/more than 256 KiB/),
    });
    const cuts = await served((_request, response) => {
      response.writeHead(200, { 'content-length': '100' }).write('x', () => response.destroy());
    });
    expect(await probe('GET', cuts, TIMEOUT)).toMatchObject({
      ok: false,
      status: 200,
      error: expect.stringMatching(/reset|aborted/),
    });
  });

  it('explains a missing response in a few words', async () => {
    const silent = await listening(createTcpServer(() => {}));
    const nothing = { ok: false, exists: false, status: null };
    expect(await probe('GET', `http://127.0.0.1:${silent}`, 100)).toMatchObject({
      ...nothing,
      error: expect.stringMatching(/within 0.1 s/),
    });
    expect(await probe('GET', 'http://127.0.0.1:1', TIMEOUT)).toMatchObject({
      ...nothing,
      error: 'connection refused',
    });
    for (const url of ['', 'nonsense', 'ftp://127.0.0.1', 'file:///etc/passwd']) {
      expect(await probe('GET', url, TIMEOUT)).toMatchObject({
        ...nothing,
        error: expect.stringMatching(/not an http/),
      });
    }
  });

  it('accepts any certificate of this machine', async () => {
    const directory = await temporaryDirectory();
    const [key, cert] = [join(directory, 'key.pem'), join(directory, 'cert.pem')];
    const words = ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '1'];
    execFileSync('openssl', [...words, '-subj', '/CN=relay', '-keyout', key, '-out', cert], { stdio: 'ignore' });
    const server = createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }, (_request, response) =>
      response.end('{}'),
    );
    const port = await listening(server);
    expect(await probe('GET', `https://127.0.0.1:${port}`, TIMEOUT)).toMatchObject({ ok: true, json: {} });
    expect(await probe('GET', `http://127.0.0.1:${port}`, TIMEOUT)).toMatchObject({ ok: false, status: null });
  });
});

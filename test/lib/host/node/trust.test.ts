import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, type TestContext } from 'vitest';
import { WebSocketServer } from 'ws';
import { readTrust } from '../../../../lib/host/node/trust.ts';
import { createNodeUpstream } from '../../../../lib/host/node/upstream.ts';
import { createNodeDialUpstream } from '../../../../lib/host/node/upstream-socket.ts';
import { privateAuthority } from '../../../support/certificate.ts';

type Bundles = Parameters<typeof readTrust>[0];

/** An HTTPS and WebSocket server with a certificate of its own authority. */
async function startServer(context: TestContext, name: string) {
  const directory = await mkdtemp(join(tmpdir(), 'svc-relay-ca-'));
  onTestFinished(() => rm(directory, { recursive: true, force: true }));
  const { ca, cert, key } = await privateAuthority(context, directory, name);
  const server = createServer({ cert: await readFile(cert), key: await readFile(key) }, (_request, response) =>
    response.end('ok'),
  );
  new WebSocketServer({ server }).on('connection', (socket) => socket.send('hello'));
  await new Promise<void>((resolve) => server.listen(0, 'localhost', resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  return { ca, directory, url: `https://localhost:${(server.address() as AddressInfo).port}/` };
}

/** Reads the bundles, and tells whether calls and sockets reach a server with them. */
async function trusting(bundles: Bundles) {
  const warnings: string[] = [];
  const trust = await readTrust(bundles, (message) => warnings.push(message));
  const [upstream, dial] = [createNodeUpstream({ trust }), createNodeDialUpstream({ trust })];
  const signal = AbortSignal.timeout(30_000);
  const reaches = async (url: string, keepAlive = false): Promise<boolean> => {
    const status = upstream({ method: 'GET', url, headers: {}, keepAlive, signal }).then(
      ({ status }) => status,
      ({ message }) => message,
    );
    const message = new Promise((resolve) => {
      const socket = dial(
        { url: url.replace('https:', 'wss:'), headers: {}, signal, maxMessage: 100 },
        { message: resolve, closed() {} },
      );
      socket.then(
        (open) => onTestFinished(() => open.terminate()),
        (error) => resolve(error.message),
      );
    });
    const [answered, said] = await Promise.all([status, message]);
    if (answered === 200 && said === 'hello') return true;
    for (const reason of [answered, said]) expect(reason).toMatch(/certificate/);
    return false;
  };
  return { reaches, warnings };
}

describe('private authorities (contract 05 §1)', () => {
  it('a server of a private authority is refused without it', async (context) => {
    const { url } = await startServer(context, 'one');
    const { reaches, warnings } = await trusting({});
    expect([await reaches(url), warnings]).toEqual([false, []]);
  });

  it('every variable adds it, to calls and to sockets', async (context) => {
    const { url, ca } = await startServer(context, 'one');
    for (const name of ['caBundle', 'sslCertFile', 'requestsCaBundle', 'curlCaBundle', 'nodeExtraCaCerts']) {
      const { reaches, warnings } = await trusting({ [name]: ca });
      expect([name, await reaches(url), await reaches(url, true), warnings]).toEqual([name, true, true, []]);
    }
  });

  it('the first bundle that exists is taken, and NODE_EXTRA_CA_CERTS beside it', async (context) => {
    const [one, two, three] = [
      await startServer(context, 'one'),
      await startServer(context, 'two'),
      await startServer(context, 'three'),
    ];
    const missing = join(one.directory, 'missing.pem');
    const { reaches, warnings } = await trusting({
      nodeExtraCaCerts: three.ca,
      caBundle: missing,
      sslCertFile: one.ca,
      requestsCaBundle: two.ca,
    });
    expect([await reaches(one.url), await reaches(two.url), await reaches(three.url)]).toEqual([true, false, true]);
    expect(warnings).toEqual([
      `SVC_CA_BUNDLE names a file that cannot be read (ENOENT), which is left out: ${missing}`,
    ]);
  });

  it('a file without a certificate is reported and left out', async (context) => {
    const { url, ca, directory } = await startServer(context, 'one');
    const empty = join(directory, 'empty.pem');
    await writeFile(empty, 'nothing');
    const { reaches, warnings } = await trusting({ nodeExtraCaCerts: empty, caBundle: empty, curlCaBundle: ca });
    expect(await reaches(url)).toBe(true);
    expect(warnings).toHaveLength(2);
    expect(warnings.join()).toMatch(/NODE_EXTRA_CA_CERTS.*without a certificate.*SVC_CA_BUNDLE/);
  });

  it('a bundle may hold several certificates, and text between them', async (context) => {
    const [one, two] = [await startServer(context, 'one'), await startServer(context, 'two')];
    const both = join(one.directory, 'both.pem');
    await writeFile(both, `# one\r\n${await readFile(one.ca)}\n# two\n${await readFile(two.ca)}`);
    const { reaches } = await trusting({ caBundle: both });
    expect([await reaches(one.url), await reaches(two.url)]).toEqual([true, true]);
  });
});

import { once } from 'node:events';
import { createServer as createTlsServer } from 'node:https';
import { type AddressInfo, createServer as createTcpServer } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { WebSocketServer } from 'ws';
import type { PinnedOrigin, SocketEnd } from '../../../../lib/host/dial.ts';
import { createDial } from '../../../../lib/host/node/dial.ts';
import { createPinnedConnector } from '../../../../lib/host/node/pinned.ts';
import { createCallRelay } from '../../../../lib/host/node/relay-call.ts';
import { createTrust } from '../../../../lib/host/node/trust.ts';
import { type Identity, makeIdentity } from '../../../support/certificate.ts';

/** An origin that answers HTTP with the request, echoes WebSocket messages, and records server names. */
async function serve(identity: Identity, host = '127.0.0.1') {
  const names: (string | false | null | undefined)[] = [];
  const requests: string[] = [];
  const server = createTlsServer({ cert: identity.cert, key: identity.key }, (request, response) => {
    requests.push(`${request.method} ${request.headers.host} ${request.url}`);
    if (request.url === '/relay/moved') return response.writeHead(302, { location: 'http://127.0.0.1:1/' }).end();
    return response.end('hello');
  });
  server.on('secureConnection', (socket: TLSSocket) => {
    names.push(socket.servername);
    // A client that refuses the certificate resets the connection.
    socket.on('error', () => {});
  });
  server.on('tlsClientError', () => {});
  const sockets = new WebSocketServer({ server, path: '/relay/ws' });
  sockets.on('connection', (socket) => socket.on('message', (data) => socket.send(String(data))));
  await new Promise<void>((resolve, reject) => server.once('error', reject).listen(0, host, resolve));
  onTestFinished(() => {
    for (const socket of sockets.clients) socket.terminate();
    server.closeAllConnections();
    server.close();
  });
  return { port: (server.address() as AddressInfo).port, names, requests };
}

const originOf = ({ pin, certDer }: Identity): PinnedOrigin => ({ pin, certDer });

/** Connects, says hello over a WebSocket, and returns the echo or how the socket ended. */
function greet(
  port: number,
  origin: PinnedOrigin,
  { host = '127.0.0.1', extra = [] as string[], scheme = 'wss' } = {},
) {
  const dial = createDial(createPinnedConnector({ trust: createTrust(extra) }));
  return new Promise<string | SocketEnd>((resolve) => {
    const socket = dial(
      `${scheme}://${host}:${port}/relay/ws`,
      {
        open: () => socket.send('hello'),
        message(text) {
          resolve(text);
          socket.close();
        },
        alive() {},
        close: resolve,
      },
      { origin },
    );
  });
}

describe('a pinned origin (08 §2.5)', () => {
  it('is reached by the address in its certificate, without a server name, and over HTTP too', async (context) => {
    const identity = await makeIdentity(context, { san: 'IP:127.0.0.1' });
    const { port, names, requests } = await serve(identity);
    expect(await greet(port, originOf(identity))).toBe('hello');
    expect(names).toEqual([false]);
    const call = (path: string) =>
      createCallRelay(createPinnedConnector())({
        socketUrl: `wss://127.0.0.1:${port}/relay/ws`,
        route: { origin: originOf(identity) },
        refuse: (spki) => (spki === Buffer.from(identity.pin.slice(7), 'base64').toString('hex') ? null : 'no'),
        method: 'GET',
        path,
        headers: {},
        limit: 100,
      });
    expect(await call('/sessions?x=1')).toMatchObject({ status: 200 });
    // A redirect is an answer like any other.
    expect(await call('/moved')).toMatchObject({ status: 302 });
    expect(requests).toEqual([`GET 127.0.0.1:${port} /relay/sessions?x=1`, `GET 127.0.0.1:${port} /relay/moved`]);
  });

  it('is reached by the name in its certificate, as server name', async (context) => {
    const identity = await makeIdentity(context, { san: 'DNS:localhost' });
    const { port, names } = await serve(identity, 'localhost');
    expect(await greet(port, originOf(identity), { host: 'localhost' })).toBe('hello');
    expect(names).toEqual(['localhost']);
  });

  it('is reached by IPv6', async (context) => {
    const identity = await makeIdentity(context, { san: 'IP:::1' });
    const { port } = await serve(identity, '::1').catch(() => context.skip('no IPv6 here'));
    expect(await greet(port, originOf(identity), { host: '[::1]' })).toBe('hello');
  });

  it('may have a certificate of a known authority, as long as the key stays', async (context) => {
    const paired = await makeIdentity(context, { san: 'IP:127.0.0.1' });
    const authority = await makeIdentity(context, { san: 'DNS:authority' });
    const renewed = await makeIdentity(context, { san: 'IP:127.0.0.1', key: paired.key, issuer: authority });
    const { port } = await serve(renewed);
    expect(renewed.pin).toBe(paired.pin);
    expect(await greet(port, originOf(paired), { extra: [authority.cert] })).toBe('hello');
    expect(await greet(port, originOf(paired))).toMatchObject({ code: 1006, reason: expect.stringMatching(/neither/) });
    // Another key of the same authority.
    const other = await makeIdentity(context, { san: 'IP:127.0.0.1', issuer: authority });
    const second = await serve(other);
    expect(await greet(second.port, originOf(paired), { extra: [authority.cert] })).toMatchObject({
      reason: expect.stringMatching(/not the pinned one/),
      isOtherPeer: true,
    });
  });

  it('never vouches for a certificate that its key has signed', async (context) => {
    const paired = await makeIdentity(context, { san: 'IP:127.0.0.1' });
    const issued = await makeIdentity(context, { san: 'IP:127.0.0.1', key: paired.key, issuer: paired });
    const { port } = await serve({ ...issued, cert: issued.cert + paired.cert });
    expect(await greet(port, originOf(paired))).toMatchObject({ reason: expect.stringMatching(/neither/) });
  });

  describe('is refused before anything is sent', () => {
    const refused = async (port: number, origin: PinnedOrigin, reason: RegExp, host?: string) =>
      expect(await greet(port, origin, { host })).toEqual({ code: 1006, reason: expect.stringMatching(reason) });

    it('with another key and the same name', async (context) => {
      const [paired, other] = [
        await makeIdentity(context, { san: 'IP:127.0.0.1' }),
        await makeIdentity(context, { san: 'IP:127.0.0.1' }),
      ];
      const { port, requests } = await serve(other);
      expect(await greet(port, originOf(paired))).toEqual({
        code: 1006,
        reason: expect.stringMatching(/neither the paired one/),
        isOtherPeer: true,
      });
      expect(requests).toEqual([]);
    });

    it('with a pin that is not the one of the paired certificate, without connecting', async (context) => {
      const [paired, other] = [
        await makeIdentity(context, { san: 'IP:127.0.0.1' }),
        await makeIdentity(context, { san: 'IP:127.0.0.1' }),
      ];
      const { port, names } = await serve(paired);
      await refused(port, { ...originOf(paired), pin: other.pin }, /contradicts itself: the key/);
      for (const pin of ['', paired.pin.slice(7), `${paired.pin} `, paired.pin.replace('sha256/', 'SHA256/')]) {
        await refused(port, { ...originOf(paired), pin }, /not the pinned one/);
      }
      await refused(port, { ...originOf(paired), certDer: 'AAAA' }, /no usable certificate/);
      expect(names).toEqual([]);
    });

    it('with an expired certificate', async (context) => {
      const expired = await makeIdentity(context, { san: 'IP:127.0.0.1', days: -1 });
      const { port, requests } = await serve(expired);
      await refused(port, originOf(expired), /expired/);
      expect(requests).toEqual([]);
    });

    it('with the address or name of another, however similar', async (context) => {
      const near = await makeIdentity(context, { san: 'IP:127.0.0.10' });
      const { port } = await serve(near);
      await refused(port, originOf(near), /not for 127\.0\.0\.1$/);
      const named = await makeIdentity(context, { san: 'DNS:127.0.0.1' });
      await refused((await serve(named)).port, originOf(named), /not for 127\.0\.0\.1$/);
      const longer = await makeIdentity(context, { san: 'DNS:localhost.example' });
      await refused((await serve(longer, 'localhost')).port, originOf(longer), /not for localhost$/, 'localhost');
      // The common name is no name: these certificates have it, and no SAN of the host.
      const common = await makeIdentity(context, { san: 'DNS:other.example' });
      await refused((await serve(common, 'localhost')).port, originOf(common), /not for localhost$/, 'localhost');
    });

    it('over a URL without TLS', async (context) => {
      const identity = await makeIdentity(context, { san: 'IP:127.0.0.1' });
      const { port, names } = await serve(identity);
      expect(await greet(port, originOf(identity), { scheme: 'ws' })).toMatchObject({ code: 1006 });
      expect(names).toEqual([]);
    });
  });

  it('lets go of the connection when it is given up during the handshake', async (context) => {
    const identity = await makeIdentity(context, { san: 'IP:127.0.0.1' });
    // Accepts, and never answers.
    const silent = createTcpServer().listen(0, '127.0.0.1');
    onTestFinished(() => void silent.close());
    await once(silent, 'listening');
    const accepted = once(silent, 'connection');
    const { port } = silent.address() as AddressInfo;
    const dial = createDial(createPinnedConnector());
    const ended = new Promise<SocketEnd>((close) => {
      const socket = dial(
        `wss://127.0.0.1:${port}/relay/ws`,
        { open() {}, message() {}, alive() {}, close },
        { origin: originOf(identity) },
      );
      void accepted.then(() => socket.terminate());
    });
    const [peer] = await accepted;
    peer.resume();
    await Promise.all([ended, once(peer, 'close')]);
  });
});

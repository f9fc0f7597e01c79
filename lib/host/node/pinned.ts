import { X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import type { Duplex } from 'node:stream';
import { type ConnectionOptions, connect, type DetailedPeerCertificate, type TLSSocket } from 'node:tls';
import { RelayError } from '../../errors.ts';
import { attempt } from '../../kit/attempt.ts';
import { OtherPeer, type PinnedOrigin, type PinnedRoute } from '../dial.ts';
import { explain } from './explain.ts';
import { pinOf } from './identity.ts';
import { createTrust, type Trust } from './trust.ts';
import { openTunnel } from './tunnel.ts';

/** Milliseconds for the TCP connection and the TLS handshake together. */
const CONNECT_TIMEOUT = 10_000;

export interface PinnedConnector {
  /**
   * Connects to the origin of a `wss:` URL. Resolves once the peer has proved to be the pinned origin; until then only
   * the handshake is sent. Rejects with a sentence for people.
   * @param signal aborts the attempt
   */
  connect(url: string, route: PinnedRoute, signal: AbortSignal): Promise<TLSSocket>;
}

/**
 * Connects to pinned origins (contract 08 §2.5). The certificate must contain the name or address of the URL, its chain
 * must end at a known authority or be the paired certificate itself, and its key must be the pinned one. All of it is
 * checked against the pairing link before the handshake, and against the peer after it.
 */
export function createPinnedConnector({ trust = createTrust() }: { trust?: Trust } = {}): PinnedConnector {
  return {
    async connect(url, { origin, tunnel }, signal) {
      const { hostname, port } = new URL(url);
      const host = hostname.replace(/^\[|\]$/g, '');
      const paired = readPaired(origin, host);
      signal.throwIfAborted();
      const stream = tunnel && alive(await openTunnel(tunnel, { trust, signal }));
      const options: ConnectionOptions = {
        ...(stream ? { socket: stream } : { host, port: Number(port) || 443 }),
        // RFC 6066 allows names only.
        ...(isIP(host) === 0 && { servername: host }),
        secureContext: trust.contextWith(paired.toString()),
        ALPNProtocols: ['http/1.1'],
        rejectUnauthorized: true,
        checkServerIdentity: (_host, { raw }) => otherPeer(mismatch(raw, origin.pin, host)),
      };
      return alive(await shakeHands(options, stream, signal, (socket) => refusal(socket, paired, origin.pin, host)));
    },
  };
}

/** A stream that has just been opened. @throws its error if it has failed in the same turn, since its events are over. */
function alive<T extends Duplex>(stream: T): T {
  if (stream.destroyed) throw stream.errored ?? new Error('the connection ended');
  return stream;
}

/**
 * The certificate of the pairing link. @throws RelayError `invalid` when the link's pin and certificate do not match.
 */
function readPaired({ pin, certDer }: PinnedOrigin, host: string): X509Certificate {
  const paired = attempt(() => new X509Certificate(Buffer.from(certDer, 'base64')));
  if (!paired) throw new RelayError('invalid', 'the pairing link has no usable certificate');
  const problem = mismatch(paired.raw, pin, host);
  if (problem !== null) throw new RelayError('invalid', `the pairing link contradicts itself: ${problem}`);
  return paired;
}

const otherPeer = (reason: string | null): OtherPeer | undefined =>
  reason === null ? undefined : new OtherPeer(reason);

/** Returns why a certificate is not one for `host` with the pinned key, or null. */
function mismatch(der: Buffer | undefined, pin: string, host: string): string | null {
  if (!der) return 'the relay shows no certificate';
  const certificate = new X509Certificate(der);
  const isForHost = isIP(host) ? certificate.checkIP(host) : certificate.checkHost(host, { subject: 'never' });
  if (!isForHost) return `the certificate is not for ${host}`;
  return pinOf(certificate) === pin ? null : 'the key of the certificate is not the pinned one';
}

/** Returns why a peer is refused although its handshake succeeded. */
function refusal(socket: TLSSocket, paired: X509Certificate, pin: string, host: string): Error | undefined {
  if (!socket.authorized) return new OtherPeer('the certificate is not trusted');
  const peer = socket.getPeerCertificate(true);
  const problem = mismatch(peer.raw, pin, host);
  if (problem !== null) return new OtherPeer(problem);
  if (socket.alpnProtocol !== false && socket.alpnProtocol !== 'http/1.1') {
    return new Error('the relay does not speak HTTP/1.1');
  }
  // The paired certificate vouches for itself only, not for certificates that its key has signed.
  if (peer.raw.equals(paired.raw)) return undefined;
  return issuers(peer).some(({ raw }) => raw.equals(paired.raw)) ? new OtherPeer(NOT_PAIRED) : undefined;
}

function issuers(peer: DetailedPeerCertificate): DetailedPeerCertificate[] {
  const chain: DetailedPeerCertificate[] = [];
  let current = peer;
  // The last certificate of a chain is its own issuer.
  while (current.issuerCertificate && current.issuerCertificate !== current && chain.length < 20) {
    current = current.issuerCertificate;
    chain.push(current);
  }
  return chain;
}

const NOT_PAIRED = 'the certificate is neither the paired one nor of a known authority';
const UNTRUSTED = new Set([
  'DEPTH_ZERO_SELF_SIGNED_CERT',
  'SELF_SIGNED_CERT_IN_CHAIN',
  'UNABLE_TO_VERIFY_LEAF_SIGNATURE',
  'UNABLE_TO_GET_ISSUER_CERT_LOCALLY',
]);

function shakeHands(
  options: ConnectionOptions,
  tunnel: Duplex | undefined,
  signal: AbortSignal,
  refuse: (socket: TLSSocket) => Error | undefined,
): Promise<TLSSocket> {
  return new Promise((resolve, reject) => {
    const socket = connect(options);
    const settle = () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', abort);
      socket.off('error', failed);
      socket.off('close', closed);
    };
    const fail = (reason: string | Error) => {
      settle();
      socket.on('error', () => {});
      socket.destroy();
      tunnel?.destroy();
      reject(typeof reason === 'string' ? new Error(reason) : reason);
    };
    const abort = () => fail('aborted');
    const failed = (error: NodeJS.ErrnoException) => {
      if (UNTRUSTED.has(error.code ?? '')) fail(new OtherPeer(NOT_PAIRED));
      else fail(error instanceof OtherPeer ? error : explain(error));
    };
    const closed = () => fail('the connection ended during the TLS handshake');
    const timer = setTimeout(() => fail('the relay did not answer in time'), CONNECT_TIMEOUT);
    signal.addEventListener('abort', abort);
    socket.on('error', failed);
    socket.on('close', closed);
    if (tunnel) {
      // When one of the two streams ends, so does the other.
      tunnel.on('error', (error) => socket.destroy(error));
      tunnel.on('close', () => socket.destroy());
      socket.on('close', () => tunnel.destroy());
    }
    socket.once('secureConnect', () => {
      const reason = refuse(socket);
      if (reason) return fail(reason);
      settle();
      // The tunnel may fail before the caller has its own listener.
      socket.on('error', () => {});
      resolve(socket);
    });
    if (signal.aborted) abort();
  });
}

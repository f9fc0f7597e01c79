import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { connect as connectTls } from 'node:tls';
import type { LoopbackGuard } from '../../lib/host/node/loopback-guard.ts';
import { upstreamReason } from '../../lib/host/upstream.ts';
import {
  type ConnectTarget,
  createLocalLink,
  type LocalLink,
  type Opening,
  openPlain,
} from '../runtime/node/local-link.ts';

/** The plugin always reaches the relay on this host. */
const HOST = '127.0.0.1';

export interface RelayLinkOptions {
  /** Asked for each request. */
  port(): number;
  /**
   * File of the relay's certificate (PEM), where it has one now: the connection is https, and pinned to the certificate.
   * Asked for each connection.
   */
  certificate?(): string | undefined;
  /** Milliseconds, including TLS. */
  connectTimeout: number;
  /** Milliseconds of silence on a connection in use or kept: less than the relay keeps one. */
  idle?: number;
  /** Judges each connection before anything is sent. Default: all may be used. */
  guard?: LoopbackGuard;
}

export interface RelayLink extends LocalLink {
  /** Authority of the relay, for `Host`. */
  readonly host: string;
  readonly port: number;
  /** The detail of a 502 (contract 07 §4.1). */
  unreachable(error: unknown): string;
}

/** Connections to the relay on this host. */
export function createRelayLink(options: RelayLinkOptions): RelayLink {
  const { port, certificate, connectTimeout, idle = 60_000, guard } = options;
  const open = (target: ConnectTarget) => {
    const file = certificate?.();
    return file === undefined ? openPlain(target) : openPinned(target, file);
  };
  return {
    ...createLocalLink({ host: HOST, port, connectTimeout, idle, open, guard }),
    get host() {
      return `${HOST}:${port()}`;
    },
    get port() {
      return port();
    },
    unreachable: (error) => `relay unreachable at ${HOST}:${port()}: ${upstreamReason(error)}`,
  };
}

async function openPinned(target: ConnectTarget, certificate: string): Promise<Opening> {
  const pin = await readPin(certificate);
  // Checked by its pin, before anything is sent.
  const socket = connectTls({ ...target, rejectUnauthorized: false });
  return {
    socket,
    ready: 'secureConnect',
    check: () =>
      socket.getPeerX509Certificate()?.fingerprint256 === pin
        ? undefined
        : new Error('it does not present the certificate of RELAY_SSL_CERT'),
  };
}

/** Read for each connection, since a certificate is renewed while the dashboard runs. */
async function readPin(file: string): Promise<string> {
  try {
    return new X509Certificate(await readFile(file)).fingerprint256;
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    throw new Error(`the certificate of RELAY_SSL_CERT cannot be read (${code ?? message})`);
  }
}

import { X509Certificate } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { Agent, type ClientRequest, type IncomingMessage, type RequestOptions, request } from 'node:http';
import { connect as connectPlain, type Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { upstreamReason } from '../../lib/host/upstream.ts';

/** The plugin always reaches the relay on this host. */
const HOST = '127.0.0.1';
const MAX_IDLE = 64;

/** A connection was not made in time. */
export class ConnectTimeout extends Error {}

export interface RelayLinkOptions {
  port: number;
  /** File of the relay's certificate (PEM), where it has one: the connection is https, and pinned to the certificate. */
  certificate?: string;
  /** Milliseconds, including TLS. */
  connectTimeout: number;
  /**
   * Milliseconds of silence on a connection in use or kept: less than the relay keeps one. Setting another for each
   * request would cost a tenth of a short one.
   */
  idle?: number;
}

export type RelayLink = ReturnType<typeof createRelayLink>;

/** Connections to the relay on this host. */
export function createRelayLink({ port, certificate, connectTimeout, idle = 60_000 }: RelayLinkOptions) {
  async function connect(): Promise<Socket> {
    const pin = certificate === undefined ? undefined : await readPin(certificate);
    // Node's agent expects its own timeout to be set already.
    const target = { host: HOST, port, noDelay: true, timeout: idle };
    // Checked by its pin below, before anything is sent.
    const socket = pin === undefined ? connectPlain(target) : connectTls({ ...target, rejectUnauthorized: false });
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => socket.destroy(new ConnectTimeout('timed out while connecting')), connectTimeout);
      socket.once('error', reject);
      socket.once('close', () => clearTimeout(timer));
      socket.once(pin === undefined ? 'connect' : 'secureConnect', () => {
        clearTimeout(timer);
        if (pin === undefined || (socket as TLSSocket).getPeerX509Certificate()?.fingerprint256 === pin) {
          socket.off('error', reject);
          resolve(socket);
        } else socket.destroy(new Error('it does not present the certificate of RELAY_SSL_CERT'));
      });
    });
  }

  /** Node's agent takes a connection from here when it is ready, and never sends on one that was not checked. */
  const createAgent = (keepAlive: boolean): Agent => {
    const agent = new Agent({ keepAlive, timeout: idle, maxFreeSockets: MAX_IDLE });
    return Object.assign(agent, {
      createConnection(_options: unknown, done: (error: Error | null, socket?: Socket) => void) {
        connect().then(
          (socket) => done(null, socket),
          (error) => done(error),
        );
      },
    });
  };
  const kept = createAgent(true);
  const single = createAgent(false);

  return {
    host: `${HOST}:${port}`,
    /** For one connection of its own, such as that of a WebSocket. */
    agent: single,

    /** Begins a request. `keepAlive` takes and leaves an idle connection, which may turn out to be closed. */
    request(
      options: RequestOptions & { keepAlive: boolean },
      answered: (response: IncomingMessage) => void,
    ): ClientRequest {
      return request({ ...options, host: HOST, port, agent: options.keepAlive ? kept : single }, answered);
    },

    /** The detail of a 502 (contract 07 §4.1). */
    unreachable: (error: unknown): string => `relay unreachable at ${HOST}:${port}: ${upstreamReason(error)}`,

    /** Ends every connection. */
    close(): void {
      kept.destroy();
      single.destroy();
    },
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

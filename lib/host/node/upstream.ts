import { type LookupAddress, type LookupOptions, lookup } from 'node:dns';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest, type RequestOptions } from 'node:https';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { ConnectionOptions } from 'node:tls';
import type { Upstream, UpstreamRequest, UpstreamResponse } from '../upstream.ts';
import { type CallOptions, carriesCredential, createAgents } from './agents.ts';
import type { LoopbackGuard } from './loopback-guard.ts';
import type { Trust } from './trust.ts';

const CONNECT_TIMEOUT = 10_000;
/** Milliseconds for which an idle connection is kept, unless the server announces less. */
const IDLE_TIMEOUT = 15_000;
const MAX_IDLE_PER_SERVER = 4;

export interface NodeUpstreamOptions {
  /** Milliseconds, including TLS; of a socket, until it is open, unless the request says otherwise. */
  connectTimeout?: number;
  /** Which certificates are accepted. Default: those of Node. */
  trust?: Trust;
  /** Checks connections that are to carry a credential. Default: all pass. */
  guard?: LoopbackGuard;
}

/**
 * An `Upstream` on Node's own streams: unlike the global `fetch`, it sets no limit of five minutes on a silent server, and
 * receives a body no faster than it is read.
 */
export function createNodeUpstream(options: NodeUpstreamOptions = {}): Upstream {
  const { connectTimeout = CONNECT_TIMEOUT, trust, guard } = options;
  const idle = { keepAlive: true, timeout: IDLE_TIMEOUT, maxFreeSockets: MAX_IDLE_PER_SERVER };
  const agents = createAgents({ guard, connectTimeout, idle });

  function call({
    method,
    url,
    headers,
    body,
    signal,
    keepAlive,
    mayConnect,
  }: UpstreamRequest): Promise<UpstreamResponse> {
    const target = new URL(url);
    const secure = target.protocol === 'https:';
    const isWhole = typeof body === 'string' || body instanceof Uint8Array;
    const length = isWhole ? { 'content-length': String(Buffer.byteLength(body)) } : {};
    const isReusable = keepAlive === true && isRepeatable(method);
    return new Promise((resolve, reject) => {
      const options: RequestOptions & ConnectionOptions & CallOptions = {
        method,
        headers: { ...headers, ...length, 'accept-encoding': 'identity' },
        agent: agents.pick({ secure, keepAlive: isReusable, guarded: carriesCredential(target, headers) }),
        secureContext: secure ? trust?.secureContext() : undefined,
        signal,
        callSignal: signal,
        ...(mayConnect && { lookup: guardedLookup(mayConnect) }),
      };
      const request = (secure ? httpsRequest : httpRequest)(url, options);
      request.on('response', (response) =>
        resolve({ status: response.statusCode ?? 0, headers: headersOf(response), body: response }),
      );
      request.on('error', (error) => reject(request.reusedSocket ? new StaleConnection(error) : error));
      // Without a connection, Node reports an abort only once it would have one.
      const onAbort = () => reject(signal.reason);
      signal.addEventListener('abort', onAbort);
      request.on('close', () => {
        signal.removeEventListener('abort', onAbort);
        reject(new Error('connection closed'));
      });
      if (body === undefined || isWhole) request.end(body);
      // A failure of either side reaches the other: the request gets the `error`, and the iteration of the chunks is
      // left.
      else pipeline(Readable.from(body, { objectMode: false }), request).catch(() => {});
    });
  }

  return async (request) => {
    try {
      return await call(request);
    } catch (error) {
      if (!(error instanceof StaleConnection)) throw error;
      // The server closed the idle connection before it answered. Only a repeatable call uses a kept connection.
      request.signal.throwIfAborted();
      return call({ ...request, keepAlive: false });
    }
  };
}

type LookedUp = (error: NodeJS.ErrnoException | null, address: string | LookupAddress[], family?: number) => void;

/**
 * Resolves the name of a connection without the addresses that the caller refuses, so that it connects to a checked
 * address.
 */
const guardedLookup =
  (mayConnect: (address: string) => boolean) =>
  (name: string, options: LookupOptions, done: LookedUp): void => {
    lookup(name, { ...options, all: true }, (error, addresses) => {
      if (error) return done(error, []);
      const [first, ...rest] = addresses.filter(({ address }) => mayConnect(address));
      if (!first) return done(new Error('its address is not a public one'), []);
      if (options.all) done(null, [first, ...rest]);
      else done(null, first.address, first.family);
    });
  };

const isRepeatable = (method: string): boolean => method === 'GET' || method === 'HEAD';

/** A reused connection gave no answer. */
class StaleConnection extends Error {
  constructor(cause: Error) {
    super(cause.message, { cause });
  }
}

function headersOf({ headers }: IncomingMessage): Record<string, string> {
  const pairs = Object.entries(headers).map(([name, value]) => [name, [value].flat().join(', ')]);
  return Object.fromEntries(pairs);
}

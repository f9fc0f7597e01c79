import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, vi } from 'vitest';
import type { OnEnd } from '../fake-api-server.ts';
import { type ProviderSockets, serveProviderSockets } from './provider-socket.ts';

/** One call to the fake provider, with functions that answer it. */
export interface ProviderCall {
  method: string;
  /** Path and query, as they were sent. */
  target: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  body: Buffer;
  json(): Record<string, unknown>;
  /** Sends a complete response: an object as JSON, text and bytes as they are. */
  answer(status: number, body: unknown, headers?: Record<string, string>): void;
  /** Sends audio in chunks of `size` bytes, each written only when the last one has left, then ends the response. */
  audio(bytes: Uint8Array, options?: { size?: number; headers?: Record<string, string> }): Promise<void>;
  /** Begins a response that goes on with `write` and `end`. */
  begin(headers?: Record<string, string>): void;
  /** Writes a part of the body. Settles when more may be written or the connection has closed. */
  write(bytes: Uint8Array | string): Promise<void>;
  end(): void;
  /** Destroys the connection. */
  cut(): void;
  /** Whether the caller closed the connection before the response was complete. */
  readonly isAbandoned: boolean;
}

type Handle = (call: ProviderCall) => void | Promise<void>;

export interface Provider extends ProviderSockets {
  /** `http://127.0.0.1:<port>`, to which the `*_BASE_URL` variables point. */
  url: string;
  calls: ProviderCall[];
  /** Answers every call from now on; without it a call is left unanswered. */
  onCall(handle: Handle): void;
  /** Resolves with the call at `index` once it has arrived. */
  call(index: number): Promise<ProviderCall>;
}

/**
 * A provider of speech, faked on loopback: HTTP and WebSocket. Closed after the test, which fails on violations; `onEnd`
 * is the test's own hook in a concurrent one.
 */
export async function startProvider(onEnd: OnEnd = onTestFinished): Promise<Provider> {
  const calls: ProviderCall[] = [];
  let handle: Handle = () => {};
  const server = createServer(async (incoming, response) => {
    const call = await received(incoming, response).catch(() => undefined);
    // The client hung up within its request.
    if (!call) return;
    calls.push(call);
    await handle(call);
  });
  const sockets = serveProviderSockets(server);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onEnd(() => {
    for (const socket of sockets.sockets) socket.cut();
    for (const stream of sockets.ignored) stream.destroy();
    server.closeAllConnections();
    server.close();
    expect(sockets.violations).toEqual([]);
  });
  return {
    ...sockets,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    calls,
    onCall(next) {
      handle = next;
    },
    call: (index) =>
      vi.waitFor(
        () => {
          const call = calls[index];
          if (!call) throw new Error(`only ${calls.length} calls came`);
          return call;
        },
        { interval: 5 },
      ),
  };
}

async function received(incoming: IncomingMessage, response: ServerResponse): Promise<ProviderCall> {
  const parts: Buffer[] = [];
  for await (const part of incoming) parts.push(part);
  const body = Buffer.concat(parts);
  const url = new URL(incoming.url ?? '', 'http://fake');
  let isAbandoned = false;
  response.on('error', () => {});
  response.on('close', () => {
    isAbandoned = !response.writableFinished;
  });
  const call: ProviderCall = {
    method: incoming.method ?? '',
    target: incoming.url ?? '',
    path: url.pathname,
    query: url.searchParams,
    headers: incoming.headers,
    body,
    json: () => JSON.parse(String(body)),
    answer(status, content, headers = {}) {
      const isPlain = typeof content === 'string' || content instanceof Uint8Array;
      response.writeHead(status, isPlain ? headers : { 'content-type': 'application/json', ...headers });
      response.end(isPlain ? content : JSON.stringify(content));
    },
    async audio(bytes, { size = bytes.length || 1, headers } = {}) {
      call.begin(headers);
      for (let at = 0; at < bytes.length && !isAbandoned; at += size) {
        await new Promise((resolve) => response.write(bytes.subarray(at, at + size), resolve));
      }
      call.end();
    },
    begin(headers = {}) {
      response.writeHead(200, { 'content-type': 'application/octet-stream', ...headers });
      response.flushHeaders();
    },
    write: (bytes) =>
      new Promise((resolve) => {
        if (isAbandoned || response.write(bytes)) return resolve();
        const settle = () => {
          response.off('drain', settle).off('close', settle);
          resolve();
        };
        response.on('drain', settle).on('close', settle);
      }),
    end: () => void response.end(),
    cut: () => void incoming.socket.destroy(),
    get isAbandoned() {
      return isAbandoned;
    },
  };
  return call;
}

import { createServer, type IncomingHttpHeaders, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, onTestFinished, vi } from 'vitest';
import { POLL } from './limits.ts';

/** One request to the fake API server, with functions that answer it. */
export interface Exchange {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  body: string;
  /** Sends a complete response. */
  answer(status: number, body: unknown, headers?: Record<string, string>): void;
  /** Begins an event stream. */
  open(): void;
  /** Writes a part of the stream. Settles when more may be written or the connection has closed. */
  write(data: string | Uint8Array): Promise<void>;
  /** Writes one event that has only data. */
  event(data: unknown): Promise<void>;
  end(): void;
  /** Destroys the connection. */
  cut(): void;
  /** True once the caller has closed the connection before the response was complete. */
  readonly abandoned: boolean;
  /** True once the whole response has been sent. */
  readonly finished: boolean;
}

/** Resolves once the caller has closed the connection of a request, which otherwise is named. */
export const whenAbandoned = (exchange: Exchange | undefined): Promise<void> =>
  vi.waitFor(
    () => {
      const { method, path, finished, abandoned } = exchange ?? {};
      expect({ method, path, finished, abandoned }).toMatchObject({ finished: false, abandoned: true });
    },
    { interval: POLL },
  );

type Handle = (exchange: Exchange) => void | Promise<void>;

/** Registers work for the end of a test. */
export type OnEnd = (work: () => void) => void;

export interface FakeApi {
  url: string;
  requests: Exchange[];
  /** Answers `POST …/chat/stream`. */
  onStream(handle: Handle): void;
  /** Answers every request, including streams. Undefined: as before again. */
  onAny(handle: Handle | undefined): void;
  /** Resolves with the request at `index` once it has arrived. */
  request(index: number): Promise<Exchange>;
}

/** The agent's API server, faked on loopback. Closed after the test; `onEnd` is the test's own hook in a concurrent one. */
export async function startFakeApi(onEnd: OnEnd = onTestFinished): Promise<FakeApi> {
  const requests: Exchange[] = [];
  let stream: Handle = (exchange) => {
    exchange.open();
    exchange.end();
  };
  let any: Handle | undefined;
  const route: Handle = (exchange) => {
    if (any) return any(exchange);
    if (exchange.path.endsWith('/chat/stream')) return stream(exchange);
    if (exchange.method === 'POST') return exchange.answer(201, { session: { id: 's1', title: 'T', model: 'm' } });
    return exchange.answer(200, []);
  };
  const server = createServer(async (incoming, response) => {
    const exchange = await read(incoming, response).catch(() => undefined);
    // The client hung up within its request.
    if (!exchange) return;
    requests.push(exchange);
    await route(exchange);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onEnd(() => {
    server.closeAllConnections();
    server.close();
  });
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    requests,
    onStream(handle) {
      stream = handle;
    },
    onAny(handle) {
      any = handle;
    },
    request: (index) =>
      vi.waitFor(
        () => {
          const exchange = requests[index];
          if (!exchange) throw new Error(`only ${requests.length} requests came`);
          return exchange;
        },
        { interval: 5 },
      ),
  };
}

async function read(incoming: IncomingMessage, response: ServerResponse): Promise<Exchange> {
  let abandoned = false;
  response.on('close', () => {
    abandoned = !response.writableFinished;
  });
  response.on('error', () => {});
  let body = '';
  incoming.setEncoding('utf8');
  for await (const part of incoming) body += part;
  const url = new URL(incoming.url ?? '', 'http://fake');
  const exchange: Exchange = {
    method: incoming.method ?? '',
    path: url.pathname,
    query: url.searchParams,
    headers: incoming.headers,
    body,
    answer(status, content, headers = {}) {
      response.writeHead(status, { 'content-type': 'application/json', ...headers });
      response.end(typeof content === 'string' ? content : JSON.stringify(content));
    },
    open() {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.flushHeaders();
    },
    write(data) {
      return new Promise((resolve) => {
        if (abandoned || response.write(data)) return resolve();
        const settle = () => {
          response.off('drain', settle).off('close', settle);
          resolve();
        };
        response.on('drain', settle).on('close', settle);
      });
    },
    event: (data) => exchange.write(`data: ${JSON.stringify(data)}\n\n`),
    end: () => void response.end(),
    cut: () => void incoming.socket.destroy(),
    get abandoned() {
      return abandoned;
    },
    get finished() {
      return response.writableFinished;
    },
  };
  return exchange;
}

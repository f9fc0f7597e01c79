import { createHash } from 'node:crypto';
import type { IncomingHttpHeaders, IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';
import { vi } from 'vitest';
import { frame, OPCODE } from '../raw-socket.ts';

/** One connection to the fake provider's WebSocket: frames are written and read by hand, without any extension. */
export interface ProviderSocket {
  path: string;
  query: URLSearchParams;
  headers: IncomingHttpHeaders;
  /** Every text message so far, parsed. */
  messages: Record<string, unknown>[];
  /** Resolves with the message at `index` once it has arrived. */
  message(index: number): Promise<Record<string, unknown>>;
  /** Calls with every message that arrives from now on. */
  onMessage(handle: (message: Record<string, unknown>) => void): void;
  /** Sends one text message, an object as JSON. Settles when more may be written, or the connection has ended. */
  send(message: unknown): Promise<void>;
  /** Sends bytes as they are. */
  write(bytes: Uint8Array): Promise<void>;
  close(code?: number): void;
  /** Destroys the connection. */
  cut(): void;
  /** Reads no further. */
  stall(): void;
  readonly isOver: boolean;
  /** The code of the client's close frame; undefined without one. */
  readonly closeCode: number | undefined;
}

export interface ProviderSockets {
  sockets: ProviderSocket[];
  /** Violations of RFC 6455 by clients: unmasked frames, reserved bits, offered extensions, invalid UTF-8. */
  violations: string[];
  /** Called with each new connection. */
  onSocket(handle: (socket: ProviderSocket) => void | Promise<void>): void;
  /** Refuses upgrades with an HTTP status, until it is called without one. */
  refuseSockets(status: number | undefined, body?: string): void;
  /** Leaves upgrades without an answer. */
  ignoreSockets(): void;
  /** The connections of those. */
  ignored: Duplex[];
  /** Resolves with the connection at `index` once it is open. */
  socket(index: number): Promise<ProviderSocket>;
}

/** Serves WebSockets on a server: `violations` must be empty at the end of a test. */
export function serveProviderSockets(server: Server): ProviderSockets {
  const sockets: ProviderSocket[] = [];
  const violations: string[] = [];
  let handle: (socket: ProviderSocket) => void | Promise<void> = () => {};
  let refusal: { status: number; body: string } | undefined;
  let isIgnoring = false;
  const ignored: Duplex[] = [];
  server.on('upgrade', (request: IncomingMessage, stream: Duplex, head: Buffer) => {
    stream.on('error', () => {});
    if (isIgnoring) {
      ignored.push(stream.resume().on('end', () => stream.destroy()));
      return;
    }
    if (refusal) {
      const { status, body } = refusal;
      stream.end(
        `HTTP/1.1 ${status} No\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
      );
      return;
    }
    const { 'sec-websocket-key': key = '', 'sec-websocket-version': version } = request.headers;
    if (request.method !== 'GET' || version !== '13' || Buffer.from(key, 'base64').length !== 16) {
      violations.push('the opening handshake is wrong');
    }
    const extensions = request.headers['sec-websocket-extensions'];
    if (extensions !== undefined) violations.push(`extensions are offered: ${extensions}`);
    const accept = createHash('sha1').update(`${key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
    stream.write(
      `HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: ${accept}\r\n\r\n`,
    );
    const socket = accepted(request, stream, head, violations);
    sockets.push(socket);
    void handle(socket);
  });
  return {
    sockets,
    violations,
    ignored,
    ignoreSockets() {
      isIgnoring = true;
    },
    onSocket(next) {
      handle = next;
    },
    refuseSockets(status, body = '') {
      refusal = status === undefined ? undefined : { status, body };
    },
    socket: (index) => vi.waitFor(() => sockets[index] ?? missing(`connection ${index}`), { interval: 5 }),
  };
}

const missing = (what: string): never => {
  throw new Error(`${what} has not come`);
};

function accepted(request: IncomingMessage, stream: Duplex, head: Buffer, violations: string[]): ProviderSocket {
  const url = new URL(request.url ?? '', 'http://fake');
  const messages: Record<string, unknown>[] = [];
  let received: Buffer = head;
  let parts: Buffer[] = [];
  let isOver = false;
  let closeCode: number | undefined;
  const handlers: ((message: Record<string, unknown>) => void)[] = [];

  function read(): void {
    for (let next = takeFrame(received); next; next = takeFrame(received)) {
      received = received.subarray(next.size);
      if (!next.masked) violations.push('a frame is not masked');
      if (next.rsv !== 0) violations.push('a reserved bit is set');
      if (next.opcode === OPCODE.close) {
        closeCode = next.payload.length >= 2 ? next.payload.readUInt16BE(0) : 1005;
        stream.end(frame({ opcode: OPCODE.close, masked: false, payload: next.payload }));
      } else if (next.opcode === OPCODE.ping) {
        stream.write(frame({ opcode: OPCODE.pong, masked: false, payload: next.payload }));
      } else if (next.opcode === OPCODE.text || next.opcode === OPCODE.continuation) {
        parts.push(next.payload);
        if (next.fin) message();
      } else if (next.opcode !== OPCODE.pong) {
        violations.push(`a frame has opcode ${next.opcode}`);
      }
    }
  }

  function message(): void {
    const payload = Buffer.concat(parts);
    parts = [];
    let parsed: Record<string, unknown>;
    try {
      parsed = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(payload));
    } catch {
      violations.push('a message is not JSON in UTF-8');
      return;
    }
    messages.push(parsed);
    for (const handler of handlers) handler(parsed);
  }

  const write = (bytes: Uint8Array): Promise<void> =>
    new Promise((resolve) => {
      if (isOver || stream.write(bytes)) return resolve();
      const settle = () => {
        stream.off('drain', settle).off('close', settle);
        resolve();
      };
      stream.on('drain', settle).on('close', settle);
    });

  stream.on('data', (chunk: Buffer) => {
    received = Buffer.concat([received, chunk]);
    read();
  });
  for (const end of ['end', 'close']) {
    stream.on(end, () => {
      isOver = true;
      stream.end();
    });
  }
  read();
  return {
    path: url.pathname,
    query: url.searchParams,
    headers: request.headers,
    messages,
    message: (index) => vi.waitFor(() => messages[index] ?? missing(`message ${index}`), { interval: 5 }),
    onMessage: (handler) => void handlers.push(handler),
    send: (content) =>
      write(frame({ masked: false, payload: typeof content === 'string' ? content : JSON.stringify(content) })),
    write,
    close(code = 1000) {
      const payload = Buffer.alloc(2);
      payload.writeUInt16BE(code);
      stream.write(frame({ opcode: OPCODE.close, masked: false, payload }));
    },
    cut: () => void stream.destroy(),
    stall: () => void stream.pause(),
    get isOver() {
      return isOver;
    },
    get closeCode() {
      return closeCode;
    },
  };
}

/** The first whole frame of a client, unmasked; undefined until all of it has arrived. */
function takeFrame(bytes: Buffer) {
  if (bytes.length < 2) return undefined;
  const [first = 0, second = 0] = bytes;
  const short = second & 0x7f;
  const extended = short === 126 ? 2 : short === 127 ? 8 : 0;
  const masked = second >= 0x80;
  const at = 2 + extended + (masked ? 4 : 0);
  if (bytes.length < at) return undefined;
  const length = extended === 2 ? bytes.readUInt16BE(2) : extended === 8 ? Number(bytes.readBigUInt64BE(2)) : short;
  if (bytes.length < at + length) return undefined;
  const mask = bytes.subarray(at - 4, at);
  const payload = Buffer.from(bytes.subarray(at, at + length));
  if (masked)
    for (let index = 0; index < length; index++) payload[index] = (payload[index] ?? 0) ^ (mask[index & 3] ?? 0);
  return { fin: first >= 0x80, rsv: (first >> 4) & 7, opcode: first & 15, masked, payload, size: at + length };
}

import { randomBytes } from 'node:crypto';
import { connect as connectTcp, type Socket } from 'node:net';
import { type ConnectionOptions, connect as connectTls } from 'node:tls';
import { TIMEOUT } from './limits.ts';

/** Every bit of a client's frame. The defaults make a valid frame (RFC 6455 §5.2). */
export interface FrameBits {
  fin?: boolean;
  /** The three reserved bits as a number: 4, 2, 1. */
  rsv?: number;
  opcode?: number;
  masked?: boolean;
  payload?: Buffer | string;
  /** The announced length, if it differs from the payload's. */
  length?: number | bigint;
  /** Bits of the length field (7, 16 or 64), if not the fewest possible. */
  lengthBits?: 7 | 16 | 64;
}

export const OPCODE = { continuation: 0, text: 1, binary: 2, close: 8, ping: 9, pong: 10 } as const;

/** Encodes one frame. */
export function frame({ fin = true, rsv = 0, opcode = OPCODE.text, masked = true, ...rest }: FrameBits = {}): Buffer {
  const payload = Buffer.from(rest.payload ?? '');
  const length = BigInt(rest.length ?? payload.length);
  const bits = rest.lengthBits ?? (length < 126n ? 7 : length < 65_536n ? 16 : 64);
  const size = bits === 7 ? 0 : bits / 8;
  const head = Buffer.alloc(2 + size);
  head[0] = (fin ? 0x80 : 0) | (rsv << 4) | opcode;
  head[1] = (masked ? 0x80 : 0) | (bits === 7 ? Number(length) : bits === 16 ? 126 : 127);
  if (bits === 16) head.writeUInt16BE(Number(length), 2);
  if (bits === 64) head.writeBigUInt64BE(length, 2);
  if (!masked) return Buffer.concat([head, payload]);
  const mask = randomBytes(4);
  const bytes = Buffer.concat([head, mask, payload]);
  // In place: `map` takes six times as long, 0.3 s for 39 MiB.
  const start = head.length + mask.length;
  for (let at = start; at < bytes.length; at++) bytes[at] = (bytes[at] as number) ^ (mask[(at - start) & 3] as number);
  return bytes;
}

export const textFrame = (channel: string, type: string, payload: unknown = {}, id = 'raw'): Buffer =>
  frame({ payload: JSON.stringify({ channel, type, id, payload }) });

export interface ServerFrame {
  fin: boolean;
  rsv: number;
  opcode: number;
  masked: boolean;
  payload: Buffer;
}

export interface RawResponse {
  status: number;
  headers: Record<string, string>;
  body: string;
}

export type RawConnection = Awaited<ReturnType<typeof connectRaw>>;

/** A TCP connection, or TLS with `secure`, that collects what it receives and sends nothing by itself. */
export async function connectRaw(port: number, secure?: ConnectionOptions) {
  const target = { port, host: '127.0.0.1', noDelay: true };
  const socket: Socket = secure ? connectTls({ ...target, ...secure }) : connectTcp(target);
  let received: Buffer = Buffer.alloc(0);
  let over = false;
  const waiters = new Set<() => void>();
  const wake = () => {
    for (const waiter of [...waiters]) waiter();
  };
  socket.on('error', () => {});
  socket.on('data', (chunk: Buffer) => {
    received = received.length === 0 ? chunk : Buffer.concat([received, chunk]);
    wake();
  });
  socket.on('end', () => {
    over = true;
    wake();
  });
  socket.on('close', () => {
    over = true;
    wake();
  });
  await new Promise<void>((resolve, reject) => {
    socket.once(secure ? 'secureConnect' : 'connect', resolve);
    socket.once('error', reject);
  });

  function until<T>(what: string, look: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        waiters.delete(attempt);
        reject(new Error(`waited in vain for ${what}; unread: ${JSON.stringify(received.toString('latin1', 0, 300))}`));
      }, TIMEOUT);
      const attempt = () => {
        const found = look();
        if (found === undefined && !(over && what !== 'the end')) return;
        clearTimeout(timer);
        waiters.delete(attempt);
        if (found !== undefined) resolve(found);
        else reject(new Error(`the connection ended before ${what}`));
      };
      waiters.add(attempt);
      attempt();
    });
  }

  const take = (size: number): Buffer => {
    const taken = received.subarray(0, size);
    received = received.subarray(size);
    return taken;
  };

  const head = () =>
    until('a response head', () => {
      const at = received.indexOf('\r\n\r\n');
      if (at < 0) return undefined;
      const [first = '', ...lines] = take(at + 4)
        .toString('latin1')
        .trimEnd()
        .split('\r\n');
      const headers: Record<string, string> = {};
      for (const line of lines) {
        const colon = line.indexOf(':');
        headers[line.slice(0, colon).toLowerCase()] = line.slice(colon + 1).trim();
      }
      return { status: Number(first.split(' ')[1]), headers };
    });

  const connection = {
    socket,
    write: (data: Buffer | string): boolean => socket.write(data),
    /** Bytes received and not yet read. */
    unread: () => received.length,
    isOver: () => over,
    /** Discards bytes that were received. */
    take,
    head,
    /**
     * Reads one whole response. Without a length, the body extends to the end of the connection. Of an event stream, which
     * does not end, only the head is read.
     */
    async response(method = 'GET'): Promise<RawResponse> {
      const { status, headers } = await head();
      const isEndless = headers['content-type'] === 'text/event-stream';
      if (isEndless || method === 'HEAD' || status === 204 || status === 304) return { status, headers, body: '' };
      const length = headers['content-length'];
      if (length !== undefined) {
        const size = Number(length);
        return {
          status,
          headers,
          body: await until('a body', () => (received.length >= size ? String(take(size)) : undefined)),
        };
      }
      await connection.ended();
      const whole = String(take(received.length));
      return { status, headers, body: headers['transfer-encoding'] === 'chunked' ? unchunk(whole) : whole };
    },
    /** Reads the next frame of the server. */
    frame: (): Promise<ServerFrame> =>
      until('a frame', () => {
        if (received.length < 2) return undefined;
        const [first, second] = received as unknown as [number, number];
        let length = second & 0x7f;
        let at = 2;
        if (length === 126) {
          if (received.length < 4) return undefined;
          length = received.readUInt16BE(2);
          at = 4;
        } else if (length === 127) {
          if (received.length < 10) return undefined;
          length = Number(received.readBigUInt64BE(2));
          at = 10;
        }
        if (received.length < at + length) return undefined;
        const payload = take(at + length).subarray(at);
        return { fin: first >= 128, rsv: (first >> 4) & 7, opcode: first & 15, masked: second >= 128, payload };
      }),
    /** Reads the next text frame as an envelope. */
    async envelope(): Promise<{ channel: string; type: string; id: string; payload: Record<string, unknown> }> {
      for (;;) {
        const { opcode, payload } = await connection.frame();
        if (opcode === OPCODE.text) return JSON.parse(String(payload));
        if (opcode === OPCODE.close) throw new Error(`closed with ${payload.readUInt16BE(0)}`);
      }
    },
    /** Skips to the server's close frame and returns its code and reason. */
    async closing(): Promise<{ code: number; reason: string }> {
      for (;;) {
        const { opcode, payload } = await connection.frame();
        if (opcode === OPCODE.close) return { code: payload.readUInt16BE(0), reason: String(payload.subarray(2)) };
      }
    },
    /** Waits until the server ends the connection. */
    ended: (): Promise<true> => until('the end', () => (over ? (true as const) : undefined)),
    destroy: () => void socket.destroy(),
    reset: () => void socket.resetAndDestroy(),
  };
  return connection;
}

function unchunk(text: string): string {
  let rest = text;
  let whole = '';
  for (;;) {
    const at = rest.indexOf('\r\n');
    const size = Number.parseInt(rest.slice(0, at), 16);
    if (at < 0 || !(size > 0)) return whole;
    whole += rest.slice(at + 2, at + 2 + size);
    rest = rest.slice(at + 4 + size);
  }
}

/** Encodes a request with exactly these `headers` and `Host`. */
export function request(
  method: string,
  path: string,
  headers: Record<string, string | string[]> = {},
  body: Buffer | string = '',
): Buffer {
  const all: Record<string, string | string[]> = { host: '127.0.0.1', ...headers };
  const lines = Object.entries(all).flatMap(([name, value]) => [value].flat().map((one) => `${name}: ${one}\r\n`));
  return Buffer.concat([
    Buffer.from(`${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n`, 'latin1'),
    Buffer.from(body),
  ]);
}

/** Sends bytes on a new connection and returns the first response. */
export async function exchange(
  port: number,
  bytes: Buffer,
  method = 'GET',
  secure?: ConnectionOptions,
): Promise<RawResponse> {
  const connection = await connectRaw(port, secure);
  try {
    connection.write(bytes);
    return await connection.response(method);
  } finally {
    connection.destroy();
  }
}

export const handshakeHeaders = (): Record<string, string> => ({
  upgrade: 'websocket',
  connection: 'Upgrade',
  'sec-websocket-version': '13',
  'sec-websocket-key': randomBytes(16).toString('base64'),
});

/** A connection after the opening handshake. */
export async function openRaw(
  port: number,
  {
    path = '/ws',
    headers = {},
    secure,
  }: { path?: string; headers?: Record<string, string>; secure?: ConnectionOptions } = {},
): Promise<RawConnection & { upgrade: { status: number; headers: Record<string, string> } }> {
  const connection = await connectRaw(port, secure);
  connection.write(request('GET', path, { ...handshakeHeaders(), ...headers }));
  const upgrade = await connection.head();
  if (upgrade.status !== 101) {
    connection.destroy();
    throw Object.assign(new Error(`HTTP ${upgrade.status}`), upgrade);
  }
  return Object.assign(connection, { upgrade });
}

/** An authenticated raw socket. */
export async function openAuthenticated(port: number, payload: Record<string, unknown>): Promise<RawConnection> {
  const raw = await openRaw(port);
  raw.write(textFrame('system', 'auth', payload));
  const { type } = await raw.envelope();
  if (type !== 'auth.ok') throw new Error(`expected auth.ok, got ${type}`);
  return raw;
}

import { type IncomingMessage, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';

/** The only version of the protocol, and the form of a handshake's key. */
export const WEBSOCKET_VERSION = '13';
const KEY = /^[+/0-9A-Za-z]{22}==$/;

/** True if a request is a complete opening handshake (RFC 6455 §4.2.1). */
export function isHandshake({ method, headers }: IncomingMessage): boolean {
  if (method !== 'GET' || headers.upgrade?.toLowerCase() !== 'websocket') return false;
  return headers['sec-websocket-version'] === WEBSOCKET_VERSION && KEY.test(headers['sec-websocket-key'] ?? '');
}

export const errorBody = (error: string): string => JSON.stringify({ ok: false, error });

/** Answers with an error on a connection for which Node makes no response, and ends it. */
export function endWithError(socket: Duplex, status: number, error: string, headers: Record<string, string>): void {
  const body = errorBody(error);
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    `content-length: ${body.length}`,
    'connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`, () => socket.destroy());
}

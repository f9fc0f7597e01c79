import { type IncomingMessage, type ServerResponse, STATUS_CODES } from 'node:http';
import type { Duplex } from 'node:stream';
import type { RequestTarget } from './plugin.ts';

/** A request that the dashboard has admitted, with what follows the mount path in its target. */
export interface Exchange extends RequestTarget {
  req: IncomingMessage;
  res: ServerResponse;
  /** The signed-in user. */
  principal: string;
}

export const JSON_HEADERS = {
  'content-type': 'application/json',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};
const HEADERS = Object.entries(JSON_HEADERS).flat();

/** Answers with JSON. Does nothing once a response has begun, or the client has gone. */
export function sendJson(res: ServerResponse, status: number, body: unknown, headers: readonly string[] = []): void {
  if (res.headersSent || res.destroyed) return;
  const bytes = Buffer.from(JSON.stringify(body));
  res.writeHead(status, [...HEADERS, 'content-length', String(bytes.length), ...headers]);
  res.end(res.req.method === 'HEAD' ? undefined : bytes);
}

/** Answers with an error in the plugin's form, `{"detail": ...}` (contract 07 §4). */
export const refuse = (res: ServerResponse, status: number, detail: string, headers?: readonly string[]): void =>
  sendJson(res, status, { detail }, headers);

/** Milliseconds for which a refused client may go on sending. */
const CLOSE_TIMEOUT = 2_000;

/** Refuses an upgrade with a plain response, and ends the connection. */
export function refuseUpgrade(socket: Duplex, status: number, body: Buffer | string, headers: readonly string[]): void {
  if (!socket.writable) {
    socket.destroy();
    return;
  }
  const lines = [`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`];
  for (let index = 0; index < headers.length; index += 2) lines.push(`${headers[index]}: ${headers[index + 1]}`);
  lines.push(`content-length: ${Buffer.byteLength(body)}`, 'connection: close');
  // Discards what still arrives: closing with unread bytes would reset the connection before the response is read.
  socket.resume();
  socket.write(`${lines.join('\r\n')}\r\n\r\n`, 'latin1');
  socket.end(body);
  const timer = setTimeout(() => socket.destroy(), CLOSE_TIMEOUT);
  socket.once('close', () => clearTimeout(timer));
}

/** Refuses an upgrade with an error in the plugin's form. */
export const refuseUpgradeWith = (socket: Duplex, status: number, detail: string): void =>
  refuseUpgrade(socket, status, JSON.stringify({ detail }), HEADERS);

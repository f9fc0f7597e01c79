import type { IncomingMessage } from 'node:http';

/** The only version of the protocol, and the form of a handshake's key. */
export const WEBSOCKET_VERSION = '13';
const KEY = /^[+/0-9A-Za-z]{22}==$/;

/** True if a request is a complete opening handshake (RFC 6455 §4.2.1). */
export function isHandshake({ method, headers }: IncomingMessage): boolean {
  if (method !== 'GET' || headers.upgrade?.toLowerCase() !== 'websocket') return false;
  return headers['sec-websocket-version'] === WEBSOCKET_VERSION && KEY.test(headers['sec-websocket-key'] ?? '');
}

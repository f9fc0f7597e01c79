import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Upstream } from '../upstream.ts';

const CONNECT_TIMEOUT = 10_000;

/**
 * An `Upstream` on Node's own streams: unlike the global `fetch`, it sets no limit of five minutes on a silent server, and
 * receives a body no faster than it is read. `connectTimeout` is in milliseconds and includes TLS.
 */
export function createNodeUpstream({ connectTimeout = CONNECT_TIMEOUT } = {}): Upstream {
  return ({ method, url, headers, body, signal }) =>
    new Promise((resolve, reject) => {
      const secure = new URL(url).protocol === 'https:';
      const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
      const request = (secure ? httpsRequest : httpRequest)(url, {
        method,
        headers: { ...headers, ...length, 'accept-encoding': 'identity' },
        // A new connection: a kept one may be about to close, and a POST cannot be repeated.
        agent: false,
        signal,
      });
      const timer = setTimeout(() => request.destroy(new Error('timed out while connecting')), connectTimeout);
      request.once('socket', (socket) => {
        socket.once(secure ? 'secureConnect' : 'connect', () => clearTimeout(timer));
      });
      request.on('response', (response) => resolve({ status: response.statusCode ?? 0, body: response }));
      request.on('error', reject);
      request.on('close', () => {
        clearTimeout(timer);
        reject(new Error('connection closed'));
      });
      request.end(body);
    });
}

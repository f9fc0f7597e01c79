import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';

export const phoneHeaders = {
  accept: 'application/json',
  authorization: `Bearer ${'A'.repeat(43)}`,
  'user-agent': 'svc-relay-bench/1',
  'x-svc-relay-session': 'A'.repeat(43),
};
const CHUNK = Buffer.alloc(64 * 1024, 7);

/**
 * One exchange with a TLS server, with a body of `size` bytes: on its own connection to `port`, or on the secured one of
 * `agent`. Returns the status and how many bytes were received.
 */
export function transfer({ port, agent }, method, path, headers, size = 0) {
  return new Promise((resolve, reject) => {
    const request = agent ? httpRequest : httpsRequest;
    const call = request({
      host: '127.0.0.1',
      port,
      method,
      path,
      agent: agent ?? false,
      rejectUnauthorized: false,
      headers: { ...phoneHeaders, ...headers, ...(size > 0 && { 'content-length': size }) },
    });
    call.on('error', reject);
    call.on('response', (response) => {
      let received = 0;
      response.on('data', (chunk) => {
        received += chunk.length;
      });
      response.on('error', reject);
      response.on('end', () => resolve({ status: response.statusCode, received }));
    });
    let left = size;
    const more = () => {
      while (left > 0) {
        const chunk = left >= CHUNK.length ? CHUNK : CHUNK.subarray(0, left);
        left -= chunk.length;
        if (!call.write(chunk)) return void call.once('drain', more);
      }
      call.end();
    };
    more();
  });
}

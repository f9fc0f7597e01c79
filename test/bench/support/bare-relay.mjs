/**
 * A server in the relay's place that does the minimum: `bare-relay.mjs PORT {"body"}`. `GET /media/…` is answered with the
 * range that was asked for, `POST` once its body has been read, and everything else with `body`.
 */
import { createServer } from 'node:http';

const [port, options] = process.argv.slice(2);
const { body = '{}' } = JSON.parse(options);
const headers = {
  'content-type': 'application/json',
  'cache-control': 'no-store',
  'content-length': Buffer.byteLength(body),
};
const CHUNK = Buffer.alloc(64 * 1024, 7);

function sendRange(response, range) {
  const [, first, last] = /^bytes=(\d+)-(\d+)$/.exec(range);
  let left = Number(last) - Number(first) + 1;
  response.writeHead(206, {
    'content-type': 'video/mp4',
    'content-range': `bytes ${first}-${last}/${2 ** 31}`,
    'content-length': left,
  });
  const more = () => {
    while (left > 0) {
      const size = Math.min(left, CHUNK.length);
      left -= size;
      if (!response.write(size === CHUNK.length ? CHUNK : CHUNK.subarray(0, size)))
        return void response.once('drain', more);
    }
    response.end();
  };
  more();
}

createServer((request, response) => {
  if (request.headers.range) return sendRange(response, request.headers.range);
  const answer = () => response.writeHead(200, headers).end(body);
  if (request.method === 'GET') return answer();
  request.resume().once('end', answer);
}).listen(Number(port), '127.0.0.1');

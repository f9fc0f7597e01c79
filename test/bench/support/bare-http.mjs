/** The minimum for a request on `node:http`: `bare-http.mjs PORT {"body":…}`. */
import { createServer } from 'node:http';

const [port, options] = process.argv.slice(2);
const { body = '{}' } = JSON.parse(options);
const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) };

createServer((_request, response) => {
  response.writeHead(200, headers);
  response.end(body);
}).listen(Number(port), '127.0.0.1');

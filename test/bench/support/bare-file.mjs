/** The plain way of serving a file on `node:http`: `bare-file.mjs PORT {"path":…,"size":…}`. */
import { createReadStream } from 'node:fs';
import { createServer } from 'node:http';

const [port, options] = process.argv.slice(2);
const { path, size } = JSON.parse(options);

createServer((request, response) => {
  if (request.url !== '/file') return response.writeHead(200).end('{}');
  response.writeHead(200, { 'content-type': 'application/octet-stream', 'content-length': size });
  createReadStream(path).pipe(response);
}).listen(Number(port), '127.0.0.1');

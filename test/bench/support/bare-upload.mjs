/** The plain way of taking a file on `node:http`, multipart framing and all: `bare-upload.mjs PORT {"directory":…}`. */
import { createWriteStream } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { pipeline } from 'node:stream';

const [port, options] = process.argv.slice(2);
const { directory } = JSON.parse(options);

createServer((request, response) => {
  if (request.method !== 'POST') return response.end('{}');
  const path = join(directory, 'upload');
  pipeline(request, createWriteStream(path, { flush: true }), async (error) => {
    await unlink(path);
    response.writeHead(error ? 500 : 200, { connection: 'close' }).end('{}');
  });
}).listen(Number(port), '127.0.0.1');

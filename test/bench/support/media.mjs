import { readFileSync } from 'node:fs';
import { mkdir, open, rm } from 'node:fs/promises';
import { connect } from 'node:net';
import { join } from 'node:path';
import { startMeter } from './cpu.mjs';
import { httpRequest } from './http.mjs';
import { pairDevices } from './processes.mjs';

const HEAD_END = Buffer.from('\r\n\r\n');
const MiB = 1024 * 1024;

/** Registers a sparse file of `size` bytes with a new relay. Reading it costs no disk access. */
export async function registerSparse(stage, size) {
  const relay = await stage.relay({ env: { RELAY_MEDIA_MAX_SIZE_MB: '4096' } });
  const [token] = await pairDevices(relay, 1);
  const workspace = join(relay.home, 'workspace');
  await mkdir(workspace);
  const path = join(workspace, 'film.mp4');
  const file = await open(path, 'w');
  await file.truncate(size);
  await file.close();
  const body = JSON.stringify({ path, content_type: 'video/mp4' });
  const answer = await httpRequest(relay.port, 'POST', '/media/register', { body });
  if (answer.status !== 200) throw new Error(`register was answered with ${answer.status} ${answer.body}`);
  const headers = { authorization: `Bearer ${token}` };
  return { relay, path, url: `/media/${JSON.parse(answer.body).token}`, headers, end: () => rm(path) };
}

/** One whole download, or range, on its own connection: megabytes per second, and server CPU per megabyte. */
export function download(server, path, size, headers = {}) {
  return new Promise((resolve, reject) => {
    const read = startMeter(server);
    const lines = Object.entries({ host: '127.0.0.1', connection: 'close', ...headers });
    let head = '';
    let received = -1;
    const onread = {
      buffer: Buffer.allocUnsafe(MiB),
      callback(count, buffer) {
        if (received >= 0) received += count;
        else {
          head += buffer.latin1Slice(0, count);
          const end = head.indexOf('\r\n\r\n');
          if (end >= 0) received = head.length - end - HEAD_END.length;
        }
        return true;
      },
    };
    const socket = connect({ port: server.port, host: '127.0.0.1', onread });
    socket.on('error', reject);
    socket.on('close', () => {
      if (!/^HTTP\/1\.1 20[06] /.test(head) || received !== size) reject(new Error(`${received} bytes after ${head}`));
      else resolve(read(size / 1e6));
    });
    socket.write(`GET ${path} HTTP/1.1\r\n${lines.map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`);
  });
}

const CHUNK = Buffer.alloc(256 * 1024, 7);

/** Uploads `size` bytes as fast as the server takes them and resolves with the status. */
export function upload(port, token, size, path = '/media/upload', headers = {}) {
  return new Promise((resolve, reject) => {
    const start = '--b\r\ncontent-disposition: form-data; name="file"; filename="film.mp4"\r\n\r\n';
    const end = '\r\n--b--\r\n';
    const head = [
      `POST ${path} HTTP/1.1`,
      'host: 127.0.0.1',
      `authorization: Bearer ${token}`,
      ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
      'content-type: multipart/form-data; boundary=b',
      `content-length: ${start.length + size + end.length}`,
      'connection: close',
    ];
    let answer = '';
    let left = size;
    const socket = connect({ port, host: '127.0.0.1' });
    socket.on('error', reject);
    socket.on('data', (chunk) => {
      answer += chunk;
    });
    socket.on('close', () => resolve(Number(answer.split(' ')[1])));
    socket.write(`${head.join('\r\n')}\r\n\r\n${start}`);
    const more = () => {
      while (left > 0) {
        const some = Math.min(left, CHUNK.length);
        left -= some;
        if (!socket.write(some === CHUNK.length ? CHUNK : CHUNK.subarray(0, some)))
          return void socket.once('drain', more);
      }
      socket.write(end);
    };
    more();
  });
}

/** Peak resident memory of a server in MiB. */
export const peakMemory = ({ child }) =>
  Number(/VmHWM:\s+(\d+) kB/.exec(readFileSync(`/proc/${child.pid}/status`, 'latin1'))[1]) / 1024;

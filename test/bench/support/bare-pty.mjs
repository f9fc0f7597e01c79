/**
 * The minimum for a pseudo-terminal: `bare-pty.mjs PORT {}`. `GET /flood?COMMAND` runs a command and reads its whole
 * output; `GET /echo?COUNT` types that many keys into a program and awaits each echo. Both answer with a number:
 * megabytes per second, and the median milliseconds to the echo.
 */
import { createServer } from 'node:http';
import { spawn } from '@lydell/node-pty';
import { median } from './bench.mjs';

const [port] = process.argv.slice(2);
const size = { cols: 80, rows: 24, encoding: null };

function flood(command) {
  return new Promise((resolve) => {
    let bytes = 0;
    const began = performance.now();
    const terminal = spawn('/bin/sh', ['-c', command], size);
    terminal.onData((chunk) => {
      bytes += chunk.length;
    });
    terminal.onExit(() => resolve(bytes / 1000 / (performance.now() - began)));
  });
}

async function echo(count) {
  const terminal = spawn('/bin/cat', [], size);
  const times = [];
  let heard;
  terminal.onData(() => heard?.());
  for (let key = 0; key < count; key++) {
    const began = performance.now();
    await new Promise((resolve) => {
      heard = resolve;
      terminal.write('x');
    });
    times.push(performance.now() - began);
  }
  terminal.kill('SIGKILL');
  return median(times);
}

createServer(async (request, response) => {
  const { pathname, search } = new URL(request.url, 'http://localhost');
  const argument = decodeURIComponent(search.slice(1));
  if (pathname === '/flood') response.end(String(await flood(argument)));
  else if (pathname === '/echo') response.end(String(await echo(Number(argument))));
  else response.end();
}).listen(Number(port), '127.0.0.1');

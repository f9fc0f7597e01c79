import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { median } from './bench.mjs';
import { run, startMeter } from './cpu.mjs';

const HEAD_END = Buffer.from('\r\n\r\n');
const CONNECTIONS = 32;
const WARM_UP = 700;
const MEASURED = 2_000;
/** Requests that are waited for. */
const MIN_WARM_UP = 4_000;
const MIN_MEASURED = 2_000;

const requestText = (method, path, headers = {}, body = '') => {
  const all = { host: '127.0.0.1', ...headers, ...(body ? { 'content-length': Buffer.byteLength(body) } : {}) };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}\r\n${body}`;
};

/** Sends one request on its own connection. Returns status, headers (lower case) and body. */
export function httpRequest(port, method, path, { headers, body } = {}) {
  return new Promise((resolve, reject) => {
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    const chunks = [];
    socket.on('error', reject);
    socket.on('data', (chunk) => chunks.push(chunk));
    socket.on('end', () => {
      const answer = Buffer.concat(chunks);
      const headEnd = answer.indexOf(HEAD_END);
      if (headEnd < 0) return reject(new Error('the connection ended without an answer'));
      const [status, ...fields] = answer.toString('latin1', 0, headEnd).split('\r\n');
      resolve({
        status: Number(status.split(' ')[1]),
        headers: Object.fromEntries(fields.map((field) => field.toLowerCase().split(': '))),
        body: answer.toString('utf8', headEnd + HEAD_END.length),
      });
    });
    socket.write(requestText(method, path, { ...headers, connection: 'close' }, body));
  });
}

/**
 * Requests per second that a server answers over kept-alive connections, each with one request at a time, and its CPU
 * per request. The client must be much faster than the server: it parses heads only for their length and counts bytes.
 */
export async function httpRate(server, path, headers, { method = 'GET', body, connections = CONNECTIONS } = {}) {
  const request = Buffer.from(requestText(method, path, headers, body), 'latin1');
  let answers = 0;
  const count = () => void answers++;
  const clients = await Promise.all(Array.from({ length: connections }, () => openClient(server, request, count)));
  try {
    const failure = Promise.race(clients.map((client) => client.failed));
    for (const client of clients) client.begin();
    await Promise.race([run(WARM_UP, MIN_WARM_UP, () => answers), failure]);
    const before = answers;
    const read = startMeter(server);
    await Promise.race([run(MEASURED, MIN_MEASURED, () => answers), failure]);
    return read(answers - before);
  } finally {
    for (const client of clients) client.end();
  }
}

/** Median time to an answer in ms and server CPU per request, with one request after another on one kept-alive connection. */
export async function httpLatency(server, path, headers, { method = 'GET', body } = {}) {
  const request = Buffer.from(requestText(method, path, headers, body), 'latin1');
  const times = [];
  let asked = 0;
  const client = await openClient(server, request, () => {
    const now = performance.now();
    if (asked > 0) times.push(now - asked);
    asked = now;
  });
  try {
    client.begin();
    await Promise.race([delay(WARM_UP), client.failed]);
    times.length = 0;
    const read = startMeter(server);
    await Promise.race([delay(MEASURED), client.failed]);
    return { value: median(times), cpu: read(times.length).cpu };
  } finally {
    client.end();
  }
}

const delay = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Sends `request` again after each answer from `begin()` to `end()`; `failed` rejects at the first failure. */
function openClient({ port, tls }, request, onAnswer) {
  return new Promise((resolve, reject) => {
    // Bytes still missing from the current answer. Bodies may differ in length, so every head is looked at.
    let missing = 0;
    let fail;
    const failed = new Promise((_, no) => {
      fail = no;
    });
    failed.catch(() => {});
    const onread = {
      buffer: Buffer.allocUnsafe(64 * 1024),
      callback(size, buffer) {
        missing = missing === 0 ? answerSize(buffer, size) - size : missing - size;
        if (!(missing >= 0)) return fail(new Error(`unexpected answer: ${buffer.toString('latin1', 0, 200)}`));
        if (missing === 0) {
          onAnswer();
          socket.write(request);
        }
        return true;
      },
    };
    const target = { port, host: '127.0.0.1', noDelay: true };
    const socket = tls ? connectTls({ ...target, rejectUnauthorized: false }) : connect({ ...target, onread });
    if (tls) socket.on('data', (chunk) => onread.callback(chunk.length, chunk));
    socket.on('error', (error) => {
      reject(error);
      fail(error);
    });
    socket.on('close', () => fail(new Error('the server closed a connection')));
    socket.on(tls ? 'secureConnect' : 'connect', () =>
      resolve({ failed, begin: () => socket.write(request), end: () => void socket.destroy() }),
    );
  });
}

const OK = Buffer.from('HTTP/1.1 200 ');

/** Size of head and body of the answer that begins at the start of `buffer`; NaN unless it is a 200 with a length. */
function answerSize(buffer, size) {
  const headEnd = buffer.indexOf(HEAD_END);
  if (headEnd < 0 || headEnd >= size || buffer.compare(OK, 0, OK.length, 0, OK.length) !== 0) return Number.NaN;
  const head = buffer.latin1Slice(0, headEnd);
  const length = /\r\ncontent-length: (\d+)/i.exec(head);
  return length ? headEnd + HEAD_END.length + Number(length[1]) : Number.NaN;
}

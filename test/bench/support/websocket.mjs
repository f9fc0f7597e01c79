import { connect } from 'node:net';
import { run, startMeter } from './cpu.mjs';

const upgrade = (path, headers) =>
  [
    `GET ${path} HTTP/1.1`,
    'host: 127.0.0.1',
    'connection: Upgrade',
    'upgrade: websocket',
    'sec-websocket-version: 13',
    'sec-websocket-key: c3ZjLXJlbGF5LWJlbmNoLQ==',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
    '\r\n',
  ].join('\r\n');
const SWITCHING = Buffer.from('HTTP/1.1 101 ');
const HEAD_END = Buffer.from('\r\n\r\n');

/** A masked text frame. The mask is zero, which is allowed and costs no computing. */
export const textFrame = (text) => frame(0x81, Buffer.from(text));

const pongFrame = (payload) => frame(0x8a, payload);

function frame(first, payload) {
  const head =
    payload.length < 126
      ? Buffer.from([first, 0x80 | payload.length, 0, 0, 0, 0])
      : Buffer.from([first, 0xfe, payload.length >> 8, payload.length & 0xff, 0, 0, 0, 0]);
  return Buffer.concat([head, payload]);
}

/** Opcode and payload range of the frame at `at`; undefined while it is incomplete. Frames of at most 64 KiB. */
function frameAt(buffer, at) {
  if (buffer.length < at + 2) return undefined;
  const short = buffer[at + 1];
  if (short > 126) throw new Error('a frame is too long for this client');
  const start = at + (short === 126 ? 4 : 2);
  if (buffer.length < start) return undefined;
  const end = start + (short === 126 ? buffer.readUInt16BE(at + 2) : short);
  return buffer.length < end ? undefined : { opcode: buffer[at] & 0x0f, start, end };
}

/**
 * Connects, upgrades, sends one text and waits for the answer (`first`). A raw client, because `ws` would cost as much
 * as the server under measurement. Pings are answered.
 */
export function openSocket(port, text, { path = '/ws', headers = {} } = {}) {
  return new Promise((resolve, reject) => {
    let rest = Buffer.alloc(0);
    let upgraded = false;
    let listener;
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    const fail = (error) => {
      socket.destroy();
      if (listener) listener.failed(error);
      else reject(error);
    };
    socket.on('error', fail);
    socket.on('close', () => fail(new Error('the server closed a socket')));
    socket.on('connect', () => socket.write(upgrade(path, headers)));
    socket.on('data', (chunk) => {
      rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
      if (!upgraded) {
        const headEnd = rest.indexOf(HEAD_END);
        if (headEnd < 0) return;
        if (rest.compare(SWITCHING, 0, SWITCHING.length, 0, SWITCHING.length) !== 0) {
          fail(new Error(`no upgrade: ${rest.toString('latin1', 0, headEnd)}`));
          return;
        }
        upgraded = true;
        rest = rest.subarray(headEnd + HEAD_END.length);
        socket.write(textFrame(text));
      }
      let at = 0;
      for (let frame = frameAt(rest, at); frame; frame = frameAt(rest, at)) {
        at = frame.end;
        if (frame.opcode === 9) socket.write(pongFrame(rest.subarray(frame.start, frame.end)));
        if (frame.opcode === 8) fail(new Error('the server sent a close frame'));
        if (frame.opcode !== 1) continue;
        if (listener) listener.text(rest, frame.start, frame.end);
        else resolve({ ...api, first: rest.toString('utf8', frame.start, frame.end) });
      }
      rest = rest.subarray(at);
    });
    const api = {
      write: (frames) => socket.write(frames),
      /** Passes every later text to `text(buffer, start, end)`. */
      listen(given) {
        listener = given;
      },
      end() {
        listener = { failed() {}, text() {} };
        socket.destroy();
      },
    };
  });
}

/** Operations that are waited for. */
const MIN_WARM_UP = 2_000;
const MIN_MEASURED = 1_000;

/**
 * Round trips per second of `message` on one open socket of `server`, with `inFlight` under way all the time, and server
 * CPU per round trip. `isAnswer` checks the first answer; the others are counted.
 */
export async function roundTripRate(server, socket, message, { inFlight, isAnswer, warmUp = 700, measured = 2_000 }) {
  const sent = textFrame(message);
  let answers = 0;
  let owed = 0;
  let sending = true;
  const failure = new Promise((_, reject) => {
    socket.listen({
      failed: reject,
      text(buffer, start, end) {
        if (answers++ === 0 && !isAnswer(buffer.toString('utf8', start, end))) reject(new Error('unexpected answer'));
        owed++;
        // Answers that arrived in one chunk are sent as one chunk.
        if (owed === 1) queueMicrotask(flush);
      },
    });
  });
  failure.catch(() => {});
  function flush() {
    const count = owed;
    owed = 0;
    if (sending) socket.write(count === 1 ? sent : Buffer.concat(Array(count).fill(sent)));
  }
  socket.write(Buffer.concat(Array(inFlight).fill(sent)));
  await Promise.race([run(warmUp, MIN_WARM_UP, () => answers), failure]);
  const before = answers;
  const read = startMeter(server);
  await Promise.race([run(measured, MIN_MEASURED, () => answers), failure]);
  sending = false;
  return read(answers - before);
}

/**
 * Sockets per second that are opened, exchange one text each way and are dropped, and server CPU per socket. Each of
 * `texts` has its own loop, which opens one socket after another.
 */
export async function connectRate(server, texts, { isAnswer, warmUp = 500, measured = 1_500 }) {
  let count = 0;
  let running = true;
  const loop = async (text) => {
    while (running) {
      const socket = await openSocket(server.port, text);
      socket.end();
      if (count++ === 0 && !isAnswer(socket.first)) throw new Error(`unexpected answer: ${socket.first}`);
    }
  };
  const loops = Promise.all(texts.map(loop));
  loops.catch(() => {});
  await Promise.race([run(warmUp, MIN_WARM_UP, () => count), loops]);
  const before = count;
  const read = startMeter(server);
  await Promise.race([run(measured, MIN_MEASURED, () => count), loops]);
  const result = read(count - before);
  running = false;
  await loops;
  return result;
}

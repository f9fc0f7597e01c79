/**
 * A realtime provider that does the minimum: `bare-realtime.mjs PORT {}`.
 *
 * A request for a response is answered with the audio that the JSON in the last text item asks for: `frames` of 4,096
 * bytes, one every `interval` ms, or all as fast as they are taken. Each begins with the time at which it was sent,
 * nanoseconds of the machine's monotonic clock. `GET /heard` returns the times at which audio arrived, and forgets them.
 */
import { createServer } from 'node:http';
import { WebSocketServer } from 'ws';

const [port] = process.argv.slice(2);
const FRAME = 4096;
const MAX_BUFFERED = 256 * 1024;
const TICK = 1;
const IDS = '"response_id":"r","item_id":"i","content_index":0';
let heard = [];

function frame() {
  const bytes = Buffer.alloc(FRAME, 1);
  bytes.writeBigUInt64LE(process.hrtime.bigint(), 0);
  return `{"type":"response.output_audio.delta",${IDS},"delta":"${bytes.toString('base64')}"}`;
}

function speak(socket, { frames, interval }) {
  const began = performance.now();
  let sent = 0;
  socket.send('{"type":"response.created","response":{"id":"r"}}');
  const timer = setInterval(() => {
    // A late timer sends what is due, so that the rate holds.
    const due = interval ? Math.min(frames, Math.floor((performance.now() - began) / interval)) : frames;
    for (; sent < due && socket.bufferedAmount < MAX_BUFFERED; sent++) socket.send(frame());
    if (sent < frames) return;
    clearInterval(timer);
    socket.send(`{"type":"response.output_audio.done",${IDS}}`);
    socket.send('{"type":"response.done","response":{"id":"r","status":"completed","output":[]}}');
  }, interval ?? TICK);
  socket.on('close', () => clearInterval(timer));
}

const server = createServer((request, response) => {
  if (request.url !== '/heard') return response.end('ok');
  response.end(JSON.stringify(heard));
  heard = [];
}).listen(Number(port), '127.0.0.1');

new WebSocketServer({ server, perMessageDeflate: false }).on('connection', (socket) => {
  let script;
  socket.on('error', () => {});
  socket.on('message', (data) => {
    const { type, item } = JSON.parse(data);
    if (type === 'input_audio_buffer.append') heard.push(String(process.hrtime.bigint()));
    else if (type === 'session.update') socket.send('{"type":"session.updated","session":{"model":"bench"}}');
    else if (type === 'conversation.item.create') script = JSON.parse(item.content[0].text);
    else if (type === 'response.create') speak(socket, script);
  });
});

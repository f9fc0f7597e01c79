/**
 * A provider of speech that does the minimum: `bare-provider.mjs PORT {}`.
 *
 * `POST /audio/speech` sends the raw PCM that the JSON in `input` asks for: `frames` of 4,096 bytes, one every `interval`
 * ms, or all as fast as they are taken. Each begins with the time at which it was sent, nanoseconds of the machine's
 * monotonic clock. `POST /audio/transcriptions` reads its body.
 */
import { createServer } from 'node:http';

const [port] = process.argv.slice(2);
const FRAME = 4096;

function frame() {
  const bytes = Buffer.alloc(FRAME, 1);
  bytes.writeBigUInt64LE(process.hrtime.bigint(), 0);
  return bytes;
}

function speak(response, { frames, interval }) {
  let left = frames;
  response.writeHead(200, { 'content-type': 'application/octet-stream' });
  if (interval) {
    const began = performance.now();
    const timer = setInterval(() => {
      // A late timer sends what is due, so that the rate holds.
      const due = Math.min(frames, Math.floor((performance.now() - began) / interval));
      for (; frames - left < due; left--) response.write(frame());
      if (left > 0) return;
      clearInterval(timer);
      response.end();
    }, interval);
    response.on('close', () => clearInterval(timer));
    return;
  }
  const more = () => {
    while (left > 0) {
      left--;
      if (!response.write(frame())) return void response.once('drain', more);
    }
    response.end();
  };
  more();
}

createServer((request, response) => {
  const chunks = [];
  const isSpeech = request.url === '/audio/speech';
  response.on('error', () => {});
  request.on('data', (chunk) => isSpeech && chunks.push(chunk));
  request.on('end', () => {
    if (isSpeech) speak(response, JSON.parse(JSON.parse(Buffer.concat(chunks)).input));
    else response.end('ok');
  });
}).listen(Number(port), '127.0.0.1');

import { connect } from 'node:net';
import { httpRequest } from './http.mjs';
import { pairDevices } from './processes.mjs';
import { openSocket, textFrame } from './websocket.mjs';

const FRAME = 4096;
/** Seconds of audio in a frame: 16-bit mono at 24 kHz. */
export const FRAME_SECONDS = FRAME / 2 / 24_000;
/** Base64 of the eight bytes of a timestamp, and of one more. */
const STAMP = 12;
const AUDIO = Buffer.from('"audio_base64":"');
const EVENT_ID = Buffer.from('"event_id":');
const HEAD_END = Buffer.from('\r\n\r\n');

/** A relay whose provider is fake, `count` paired devices, and the provider itself. */
export async function startVoice(stage, { devices = 1, collectable = false } = {}) {
  const provider = await stage.bare('provider', {}, { collectable });
  const env = { OPENAI_API_KEY: 'bench', OPENAI_BASE_URL: `http://127.0.0.1:${provider.port}` };
  const relay = await stage.relay({ env, collectable });
  return { relay, provider, tokens: await pairDevices(relay, devices) };
}

/**
 * Has the relay say `script` (see `bare-provider.mjs`) in a new session. `onFrame` gets the time that each frame was sent at.
 * Every event is acknowledged, as phones do. Resolves after the last one with the number of frames.
 */
export async function listenThroughRelay({ port }, token, script, onFrame = () => {}) {
  const headers = { authorization: `Bearer ${token}` };
  const body = JSON.stringify({ provider: 'openai_tts' });
  const answer = await httpRequest(port, 'POST', '/voice/output/session', { headers, body });
  if (answer.status !== 200) throw new Error(`a session was answered with ${answer.status} ${answer.body}`);
  const { websocket_path: path } = JSON.parse(answer.body);
  const create = JSON.stringify({ type: 'response.create', text: JSON.stringify(script) });
  const socket = await openSocket(port, create, { path, headers });
  let frames = 0;
  await new Promise((resolve, reject) => {
    socket.listen({
      failed: reject,
      text(buffer, start, end) {
        const event = buffer.subarray(start, end);
        const audio = event.indexOf(AUDIO);
        if (audio >= 0) {
          frames++;
          const at = audio + AUDIO.length;
          onFrame(Buffer.from(event.latin1Slice(at, at + STAMP), 'base64').readBigUInt64LE(0));
          const id = Number.parseInt(event.latin1Slice(numberAfter(event, EVENT_ID)), 10);
          socket.write(textFrame(`{"type":"client.ack","event_id":${id},"audio_event_id":${frames}}`));
          return;
        }
        const { type, message } = JSON.parse(event);
        if (type === 'voice.error') reject(new Error(message));
        if (type === 'voice.response.done') resolve();
      },
    });
  });
  socket.write(textFrame('{"type":"session.close"}'));
  socket.end();
  if (frames !== script.frames) throw new Error(`${frames} of ${script.frames} frames were heard`);
  return frames;
}

const numberAfter = (event, name) => event.indexOf(name) + name.length;

/** Reads the same from the provider itself. */
export function listenDirectly({ port }, script, onFrame = () => {}) {
  const body = JSON.stringify({ input: JSON.stringify(script) });
  return new Promise((resolve, reject) => {
    let head = Buffer.alloc(0);
    let hasHead = false;
    let rest = Buffer.alloc(0);
    let frames = 0;
    const socket = connect({ port, host: '127.0.0.1', noDelay: true });
    const read = (bytes) => {
      rest = rest.length === 0 ? bytes : Buffer.concat([rest, bytes]);
      // HTTP/1.0 is answered without chunks.
      for (; rest.length >= FRAME; rest = rest.subarray(FRAME)) {
        frames++;
        onFrame(rest.readBigUInt64LE(0));
      }
    };
    socket.on('error', reject);
    socket.on('data', (chunk) => {
      if (hasHead) return read(chunk);
      head = Buffer.concat([head, chunk]);
      const end = head.indexOf(HEAD_END);
      hasHead = end >= 0;
      if (hasHead) read(head.subarray(end + HEAD_END.length));
    });
    socket.on('close', () => {
      if (frames === script.frames) resolve(frames);
      else reject(new Error(`${frames} of ${script.frames} frames came from the provider`));
    });
    const lines = ['POST /audio/speech HTTP/1.0', 'host: 127.0.0.1', `content-length: ${body.length}`];
    socket.write(`${lines.join('\r\n')}\r\n\r\n${body}`);
  });
}

import { httpRequest } from './http.mjs';
import { pairDevices } from './processes.mjs';
import { openSocket, textFrame } from './websocket.mjs';

/** Hertz of phones' microphones, and bytes of a chunk of theirs. */
const MIC_RATE = 16_000;
const MIC_CHUNK = 6400;
/** Seconds of audio in a chunk. */
export const MIC_SECONDS = MIC_CHUNK / 2 / MIC_RATE;
const MIC = Buffer.alloc(MIC_CHUNK, 1).toString('base64');
/** Chunks under way at once when they are sent as fast as they are taken. */
const WINDOW = 32;
/** Base64 of the eight bytes of a timestamp, and of one more. */
const STAMP = 12;
const EVENT_ID = Buffer.from('"event_id":');
const RECEIVED = Buffer.from('"voice.input_audio.received"');
const POLL = 5;

/** How a phone speaks to the relay, and how the relay speaks to the provider. */
const PHONE = {
  hello: '{"type":"session.start"}',
  append: (id) => `{"type":"input_audio.append","audio_base64":"${MIC}","sample_rate":${MIC_RATE},"chunk_id":${id}}`,
  ask: (text) => [{ type: 'response.create', text }],
  audio: Buffer.from('"audio_base64":"'),
  done: 'voice.response.done',
};
const BROKER = {
  hello: '{"type":"session.update"}',
  append: () => `{"type":"input_audio_buffer.append","audio":"${MIC}"}`,
  ask: (text) => [
    { type: 'conversation.item.create', item: { content: [{ type: 'input_text', text }] } },
    { type: 'response.create' },
  ],
  audio: Buffer.from('"delta":"'),
  done: 'response.done',
};

/** A relay whose realtime provider is fake, `devices` paired devices, and the provider itself. */
export async function startAgent(stage, { devices = 1, collectable = false } = {}) {
  const provider = await stage.bare('realtime', {}, { collectable });
  const env = {
    OPENAI_API_KEY: 'bench',
    OPENAI_REALTIME_URL: `ws://127.0.0.1:${provider.port}/`,
    RELAY_WEBAPI_URL: 'http://127.0.0.1:1',
  };
  const relay = await stage.relay({ env, collectable });
  return { relay, provider, tokens: await pairDevices(relay, devices) };
}

/** A conversation through the relay, in a new session. */
export async function converseThroughRelay({ port }, token) {
  const headers = { authorization: `Bearer ${token}` };
  const body = JSON.stringify({ provider: 'openai_realtime', model: 'gpt-realtime-2.1', voice: 'marin' });
  const answer = await httpRequest(port, 'POST', '/voice/realtime-agent/session', { headers, body });
  if (answer.status !== 200) throw new Error(`a session was answered with ${answer.status} ${answer.body}`);
  const { websocket_path: path } = JSON.parse(answer.body);
  return conversation(await openSocket(port, PHONE.hello, { path, headers }), PHONE);
}

/** The same bytes to and from the provider itself. */
export const converseDirectly = async ({ port }) =>
  conversation(await openSocket(port, BROKER.hello, { path: '/?model=bench' }), BROKER);

function conversation(socket, dialect) {
  let acknowledged = 0;
  let frames = 0;
  let onFrame = () => {};
  let finish = () => {};
  let fail = () => {};
  const failed = new Promise((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});
  socket.listen({
    failed: fail,
    text(buffer, start, end) {
      const event = buffer.subarray(start, end);
      const audio = event.indexOf(dialect.audio);
      if (audio >= 0) {
        frames++;
        const at = audio + dialect.audio.length;
        onFrame(Buffer.from(event.latin1Slice(at, at + STAMP), 'base64').readBigUInt64LE(0));
      } else if (event.indexOf(RECEIVED) >= 0) acknowledged++;
      else {
        const { type, message } = JSON.parse(event);
        if (type === 'voice.error') fail(new Error(message));
        if (type === dialect.done) finish();
      }
      if (dialect === PHONE) acknowledge(event);
    },
  });

  /** Phones acknowledge every event. */
  function acknowledge(event) {
    const id = Number.parseInt(event.latin1Slice(event.indexOf(EVENT_ID) + EVENT_ID.length), 10);
    socket.write(textFrame(`{"type":"client.ack","event_id":${id},"audio_event_id":${frames}}`));
  }

  return {
    /** Resolves with the number of frames once the provider has said `script` (see `bare-realtime.mjs`). */
    async listen(script, handle = () => {}) {
      onFrame = handle;
      const before = frames;
      const done = new Promise((resolve) => {
        finish = resolve;
      });
      for (const message of dialect.ask(JSON.stringify(script))) socket.write(textFrame(JSON.stringify(message)));
      await Promise.race([done, failed]);
      if (frames - before !== script.frames)
        throw new Error(`${frames - before} of ${script.frames} frames were heard`);
      return script.frames;
    },
    /** Sends chunks of the microphone, one every `interval` ms, or as fast as they are taken. Returns when each was sent. */
    async speak({ frames: count, interval }, handle = () => {}) {
      const times = [];
      const [began, before] = [performance.now(), acknowledged];
      while (times.length < count) {
        const due = interval ? Math.floor((performance.now() - began) / interval) : count;
        const room = dialect === PHONE && !interval ? acknowledged - before + WINDOW : count;
        while (times.length < Math.min(count, due, room)) {
          times.push(process.hrtime.bigint());
          socket.write(textFrame(dialect.append(times.length)));
          handle();
        }
        await Promise.race([new Promise((resolve) => setTimeout(resolve, interval && 1)), failed]);
      }
      return times;
    },
    end() {
      if (dialect === PHONE) socket.write(textFrame('{"type":"session.close"}'));
      socket.end();
    },
  };
}

/** The times at which the provider heard the last `count` chunks. */
export async function heardBy({ port }, count) {
  const times = [];
  while (times.length < count) {
    const { body } = await httpRequest(port, 'GET', '/heard');
    times.push(...JSON.parse(body).map(BigInt));
    await new Promise((resolve) => setTimeout(resolve, POLL));
  }
  return times;
}

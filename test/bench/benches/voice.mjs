import { setTimeout as sleep } from 'node:timers/promises';
import { startMeter } from '../support/cpu.mjs';
import { collectedMemory } from '../support/processes.mjs';
import { FRAME_SECONDS, listenDirectly, listenThroughRelay, startVoice } from '../support/voice.mjs';

const MiB = 1024 * 1024;
/** A frame every 5 ms: 17 times as fast as it is heard. */
const PACED = { frames: 600, interval: 5 };
/** 170 seconds of audio, as fast as it is taken. */
const FLOOD = { frames: 2_000 };

const SOCKETS = 100;
/** A caller may have 16 sessions. */
const PER_DEVICE = 15;
const REAL_TIME = Math.round(FRAME_SECONDS * 1000);
/** Milliseconds until every socket speaks, and between the two measurements of memory. */
const WARM_UP = 4_000;
const MEASURED = 10_000;

/** Milliseconds from the provider to the client of each frame, without the first tenth. */
async function latencies(listen) {
  const times = [];
  await listen((sent) => times.push(Number(process.hrtime.bigint() - sent) / 1e6));
  return times.slice(times.length / 10).sort((a, b) => a - b);
}

const percentile = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];

/** Time of a frame from the provider through the relay; the baseline hears the provider itself. */
const latency = ({ name, title, share, max }) => ({
  name,
  title,
  unit: 'ms',
  max,
  async prepare(stage) {
    const { relay, provider, tokens } = await startVoice(stage);
    const at = async (listen) => percentile(await latencies(listen), share);
    return {
      relay: () => at((heard) => listenThroughRelay(relay, tokens[0], PACED, heard)),
      bare: () => at((heard) => listenDirectly(provider, PACED, heard)),
    };
  },
});

const rate = {
  name: 'voice',
  title: 'voice output, audio as fast as it goes',
  unit: 's of audio/s',
  minRatio: 0.03,
  operation: 's of audio',
  async prepare(stage) {
    const { relay, provider, tokens } = await startVoice(stage);
    const measure = async (server, listen) => {
      const read = startMeter(server);
      return read((await listen()) * FRAME_SECONDS);
    };
    return {
      relay: () => measure(relay, () => listenThroughRelay(relay, tokens[0], FLOOD)),
      bare: () => measure(provider, () => listenDirectly(provider, FLOOD)),
    };
  },
};

/** Growth of memory while everyone speaks in real time, which must be none; the baseline is the provider alone. */
const sockets = {
  name: 'voice-sockets',
  title: `growth of memory in ${MEASURED / 1000} s, ${SOCKETS} voice sockets at once`,
  unit: 'MiB',
  max: 16,
  operation: 's of audio',
  rounds: 1,
  async prepare(stage) {
    const devices = Math.ceil(SOCKETS / PER_DEVICE);
    // Enough for both measurements of memory, each of which takes 1.5 s.
    const frames = Math.ceil((WARM_UP + MEASURED + 8_000) / REAL_TIME);
    const script = { frames, interval: REAL_TIME };
    const { relay, provider, tokens } = await startVoice(stage, { devices, collectable: true });
    const measure = async (server, listen) => {
      let heard = 0;
      const count = () => heard++;
      const all = Promise.all(Array.from({ length: SOCKETS }, (_, at) => listen(at, count)));
      all.catch(() => {});
      await Promise.race([sleep(WARM_UP), all]);
      const before = await collectedMemory(server);
      const already = heard;
      const read = startMeter(server);
      await Promise.race([sleep(MEASURED), all]);
      const { cpu } = read((heard - already) * FRAME_SECONDS);
      const after = await collectedMemory(server);
      await all;
      return { value: Math.max(0, after - before) / MiB, cpu };
    };
    return {
      relay: () =>
        measure(relay, (at, count) => listenThroughRelay(relay, tokens[Math.floor(at / PER_DEVICE)], script, count)),
      bare: () => measure(provider, (_at, count) => listenDirectly(provider, script, count)),
    };
  },
};

export default [
  latency({ name: 'voice-p50', title: 'a voice frame from provider to client, p50', share: 0.5, max: 3 }),
  latency({ name: 'voice-p99', title: 'a voice frame from provider to client, p99', share: 0.99, max: 40 }),
  rate,
  sockets,
];

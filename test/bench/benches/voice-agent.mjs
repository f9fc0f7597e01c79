import { setTimeout as sleep } from 'node:timers/promises';
import { startMeter } from '../support/cpu.mjs';
import { collectedMemory } from '../support/processes.mjs';
import { FRAME_SECONDS } from '../support/voice.mjs';
import { converseDirectly, converseThroughRelay, heardBy, MIC_SECONDS, startAgent } from '../support/voice-agent.mjs';

const MiB = 1024 * 1024;
/** A frame every 5 ms: 17 times as fast as it is heard, and 40 times as fast as it is spoken. */
const PACED = { frames: 400, interval: 5 };
/** As fast as it is taken: 85 seconds of speech, 200 of a microphone. */
const FLOOD = { frames: 1_000 };

const SESSIONS = 50;
/** A caller may have 8 sessions. */
const PER_DEVICE = 8;
/** Milliseconds until everybody speaks, and between the two measurements of memory. */
const WARM_UP = 4_000;
const MEASURED = 10_000;
/** Milliseconds of conversation: enough for both measurements of memory, each of which takes 1.5 s. */
const SPAN = WARM_UP + MEASURED + 8_000;
const paceOf = (seconds) => {
  const interval = Math.round(seconds * 1000);
  return { frames: Math.ceil(SPAN / interval), interval };
};

const elapsed = (from, to) => Number(to - from) / 1e6;
const percentile = (times, share) => {
  // Without the first tenth.
  const sorted = times.slice(times.length / 10).sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
};

/** Milliseconds of each frame from the provider to the phone. */
async function downward(conversation) {
  const times = [];
  await conversation.listen(PACED, (sent) => times.push(elapsed(sent, process.hrtime.bigint())));
  return times;
}

/** Milliseconds of each chunk of the microphone from the phone to the provider. */
async function upward(conversation, provider) {
  const sent = await conversation.speak(PACED);
  const heard = await heardBy(provider, sent.length);
  return heard.map((at, index) => elapsed(sent[index], at));
}

const bothSides = ({ relay, provider, tokens }, measure) => {
  const side = (server, open) => async () => {
    const conversation = await open();
    try {
      return await measure(conversation, provider, server);
    } finally {
      conversation.end();
    }
  };
  return {
    relay: side(relay, () => converseThroughRelay(relay, tokens[0])),
    bare: side(provider, () => converseDirectly(provider)),
  };
};

const latency = ({ times, share, ...bench }) => ({
  ...bench,
  unit: 'ms',
  prepare: async (stage) =>
    bothSides(await startAgent(stage), async (conversation, provider) =>
      percentile(await times(conversation, provider), share),
    ),
});

const rate = ({ flood, ...bench }) => ({
  ...bench,
  unit: 's of audio/s',
  minRatio: 0.02,
  operation: 's of audio',
  prepare: async (stage) =>
    bothSides(await startAgent(stage), async (conversation, provider, server) => {
      const read = startMeter(server);
      return read(await flood(conversation, provider));
    }),
});

/**
 * Growth of memory while everyone speaks and hears in real time, which must be none; the baseline is the provider alone.
 * CPU is counted per second of a conversation, which has both directions.
 */
const sessions = {
  name: 'voice-agent-sessions',
  title: `growth of memory in ${MEASURED / 1000} s, ${SESSIONS} conversations at once`,
  unit: 'MiB',
  max: 16,
  operation: 's of conversation',
  rounds: 1,
  async prepare(stage) {
    const devices = Math.ceil(SESSIONS / PER_DEVICE);
    const { relay, provider, tokens } = await startAgent(stage, { devices, collectable: true });
    const measure = async (server, open) => {
      const conversations = await Promise.all(Array.from({ length: SESSIONS }, (_, at) => open(at)));
      let [heard, spoken] = [0, 0];
      const all = Promise.all(
        conversations.flatMap((conversation) => [
          conversation.listen(paceOf(FRAME_SECONDS), () => heard++),
          conversation.speak(paceOf(MIC_SECONDS), () => spoken++),
        ]),
      );
      all.catch(() => {});
      await Promise.race([sleep(WARM_UP), all]);
      const before = await collectedMemory(server);
      const [heardBefore, spokenBefore] = [heard, spoken];
      const read = startMeter(server);
      await Promise.race([sleep(MEASURED), all]);
      const seconds = (heard - heardBefore) * FRAME_SECONDS + (spoken - spokenBefore) * MIC_SECONDS;
      const { cpu } = read(seconds / 2);
      const after = await collectedMemory(server);
      await all;
      for (const conversation of conversations) conversation.end();
      return { value: Math.max(0, after - before) / MiB, cpu };
    };
    return {
      relay: () => measure(relay, (at) => converseThroughRelay(relay, tokens[Math.floor(at / PER_DEVICE)])),
      bare: () => measure(provider, () => converseDirectly(provider)),
    };
  },
};

const DOWN = 'an agent frame from provider to phone';
const UP = 'a microphone frame from phone to provider';

export default [
  latency({ name: 'voice-agent-down-p50', title: `${DOWN}, p50`, times: downward, share: 0.5, max: 4 }),
  latency({ name: 'voice-agent-down-p99', title: `${DOWN}, p99`, times: downward, share: 0.99, max: 40 }),
  latency({ name: 'voice-agent-up-p50', title: `${UP}, p50`, times: upward, share: 0.5, max: 4 }),
  latency({ name: 'voice-agent-up-p99', title: `${UP}, p99`, times: upward, share: 0.99, max: 40 }),
  rate({
    name: 'voice-agent-down',
    title: 'speech of the agent as fast as it goes',
    flood: async (conversation) => (await conversation.listen(FLOOD)) * FRAME_SECONDS,
  }),
  rate({
    name: 'voice-agent-up',
    title: 'microphone as fast as it goes',
    async flood(conversation, provider) {
      const { length } = await conversation.speak(FLOOD);
      await heardBy(provider, length);
      return length * MIC_SECONDS;
    },
  }),
  sessions,
];

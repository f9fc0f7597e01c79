import { startMeter } from '../support/cpu.mjs';
import { peakMemory, upload } from '../support/media.mjs';
import { startVoice } from '../support/voice.mjs';

/** The largest clip. */
const SIZE = 25 * 1024 * 1024;
const PATH = '/voice/transcribe';
const ROUNDS = 4;
const AT_ONCE = 8;

async function send(port, token, path) {
  const status = await upload(port, token, SIZE, path);
  if (status !== 200) throw new Error(`a clip was answered with ${status}`);
}

/** The baseline sends the clip to the provider itself. */
const rate = {
  name: 'transcribe',
  title: 'POST /voice/transcribe, 25 MiB',
  unit: 'MB/s',
  minRatio: 0.1,
  operation: 'MB',
  async prepare(stage) {
    const { relay, provider, tokens } = await startVoice(stage);
    const measure = async (server, path) => {
      const read = startMeter(server);
      for (let round = 0; round < ROUNDS; round++) await send(server.port, tokens[0], path);
      return read((ROUNDS * SIZE) / 1e6);
    };
    return { relay: () => measure(relay, PATH), bare: () => measure(provider, '/audio/transcriptions') };
  },
};

const memory = {
  name: 'transcribe-memory',
  title: `peak memory after ${AT_ONCE} concurrent clips of 25 MiB`,
  unit: 'MiB',
  max: 160,
  rounds: 1,
  async prepare(stage) {
    const { relay, provider, tokens } = await startVoice(stage);
    const measure = async (server, path) => {
      await Promise.all(Array.from({ length: AT_ONCE }, () => send(server.port, tokens[0], path)));
      return peakMemory(server);
    };
    return { relay: () => measure(relay, PATH), bare: () => measure(provider, '/audio/transcriptions') };
  },
};

export default [rate, memory];

import { peakMemory, upload } from '../support/media.mjs';
import { pairDevices } from '../support/processes.mjs';

const UPLOADS = 50;
const PER_SESSION = 4;
const SIZE = 100 * 1024 ** 2;

export default {
  name: 'uploads',
  title: 'peak memory after 50 concurrent uploads of 100 MiB',
  unit: 'MiB',
  max: 300,
  rounds: 1,
  async prepare(stage) {
    const relay = await stage.relay();
    const tokens = await pairDevices(relay, Math.ceil(UPLOADS / PER_SESSION));
    const bare = await stage.bare('http');
    return {
      async relay() {
        const all = Array.from({ length: UPLOADS }, (_, at) =>
          upload(relay.port, tokens[Math.floor(at / PER_SESSION)], SIZE),
        );
        const refused = (await Promise.all(all)).filter((status) => status !== 200);
        if (refused.length > 0) throw new Error(`uploads were answered with ${refused.join(', ')}`);
        return peakMemory(relay);
      },
      bare: async () => peakMemory(bare),
    };
  },
};

import { startMeter } from '../support/cpu.mjs';
import { upload } from '../support/media.mjs';
import { pairDevices } from '../support/processes.mjs';

const SIZE = 100 * 1024 ** 2;

export default {
  name: 'upload',
  title: 'POST /media/upload, 100 MiB',
  unit: 'MB/s',
  minRatio: 0.5,
  operation: 'MB',
  rounds: 5,
  async prepare(stage) {
    const relay = await stage.relay();
    const [token] = await pairDevices(relay, 1);
    const bare = await stage.bare('upload', { directory: relay.home });
    const measure = async (server) => {
      const read = startMeter(server);
      const status = await upload(server.port, token, SIZE);
      if (status !== 200) throw new Error(`the upload was answered with ${status}`);
      return read(SIZE / 1e6);
    };
    return { relay: () => measure(relay), bare: () => measure(bare) };
  },
};

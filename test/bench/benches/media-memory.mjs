import { download, peakMemory, registerSparse } from '../support/media.mjs';

const SIZE = 2 * 1024 ** 3;

export default {
  name: 'media-memory',
  title: 'peak memory after a download of 2 GiB',
  unit: 'MiB',
  max: 160,
  rounds: 1,
  async prepare(stage) {
    const { relay, path, url, headers } = await registerSparse(stage, SIZE);
    const bare = await stage.bare('file', { path, size: SIZE });
    const measure = async (server, ...file) => {
      await download(server, ...file);
      return peakMemory(server);
    };
    return { relay: () => measure(relay, url, SIZE, headers), bare: () => measure(bare, '/file', SIZE) };
  },
};

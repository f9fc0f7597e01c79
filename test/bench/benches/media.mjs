import { download, registerSparse } from '../support/media.mjs';

const SIZE = 2 * 1024 ** 3;

export default {
  name: 'media',
  title: 'GET /media/{token}, 2 GiB',
  unit: 'MB/s',
  least: 0.7,
  rounds: 5,
  async prepare(stage) {
    const { relay, path, url, headers } = await registerSparse(stage, SIZE);
    const bare = await stage.bare('file', { path, size: SIZE });
    // The first one also fills the page cache, which says nothing of either.
    await download(bare.port, '/file', SIZE);
    return {
      relay: async () => (await download(relay.port, url, SIZE, headers)) / 1e6,
      bare: async () => (await download(bare.port, '/file', SIZE)) / 1e6,
    };
  },
};

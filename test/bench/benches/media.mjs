import { download, registerSparse } from '../support/media.mjs';

const SIZE = 2 * 1024 ** 3;

export default {
  name: 'media',
  title: 'GET /media/{token}, 2 GiB',
  unit: 'MB/s',
  minRatio: 0.7,
  operation: 'MB',
  rounds: 5,
  async prepare(stage) {
    const { relay, path, url, headers } = await registerSparse(stage, SIZE);
    const bare = await stage.bare('file', { path, size: SIZE });
    // Fills the page cache, so that the first round is no slower than the others.
    await download(bare, '/file', SIZE);
    return {
      relay: () => download(relay, url, SIZE, headers),
      bare: () => download(bare, '/file', SIZE),
    };
  },
};

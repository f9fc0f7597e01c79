import { expect, it } from 'vitest';
import { type CountsCache, readCounts } from '../../cli/runtime/edge/broker-health.ts';

/** The platform's cache on a clock of its own, epoch seconds. */
function createCache() {
  const entries = new Map<string, { text: string; until: number }>();
  const cache = {
    now: 0,
    match: async (url: string) => {
      const entry = entries.get(url);
      return entry && entry.until > cache.now ? new Response(entry.text) : undefined;
    },
    put: async (url: string, response: Response) => {
      const [, seconds] = /max-age=(\d+)/.exec(response.headers.get('cache-control') ?? '') ?? [];
      entries.set(url, { text: await response.text(), until: cache.now + Number(seconds) });
    },
  };
  return cache as typeof cache & CountsCache;
}

it('12 §6: a counter that fails is no counter at zero, and its failure is not cached', async () => {
  const cache = createCache();
  const failing = async () => {
    throw new Error('overloaded');
  };
  expect(await readCounts(cache, failing)).toBeNull();
  const counts = { hosts_online: 2, active_streams: 3 };
  expect(await readCounts(cache, async () => counts)).toEqual(counts);
  cache.now = 14;
  expect(await readCounts(cache, failing)).toEqual(counts);
  cache.now = 20;
  expect(await readCounts(cache, failing), 'the last that are known').toEqual(counts);
  const later = { hosts_online: 0, active_streams: 0 };
  expect(await readCounts(cache, async () => later), 'asked again at once').toEqual(later);
});

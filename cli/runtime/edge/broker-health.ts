import type { Counts } from '../../../lib/reach/broker/http.ts';

/** Cache key of the last sums, and the seconds for which they are valid (contract 12 §6). */
const FRESH = { url: 'https://health.invalid/', seconds: 15 };
/** Cache key of the sums for a counter that does not answer. */
const LAST = { url: 'https://health.invalid/last', seconds: 86_400 };

/** The used part of the platform's cache. */
export type CountsCache = Pick<Cache, 'match' | 'put'>;

/**
 * The sums of the counter, cached for 15 s; while the counter does not answer, its last sums. Null if there are none: a
 * failure is neither zero nor cached.
 */
export async function readCounts(cache: CountsCache, ask: () => Promise<Counts>): Promise<Counts | null> {
  const cached = async ({ url }: typeof FRESH) => (await cache.match(url))?.json() as Promise<Counts> | undefined;
  const fresh = await cached(FRESH);
  if (fresh) return fresh;
  const counts = await ask().catch(() => null);
  if (!counts) return (await cached(LAST)) ?? null;
  const put = ({ url, seconds }: typeof FRESH) =>
    cache.put(url, Response.json(counts, { headers: { 'cache-control': `max-age=${seconds}` } }));
  await Promise.all([put(FRESH), put(LAST)]);
  return counts;
}

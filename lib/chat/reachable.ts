import type { Config } from '../config.ts';
import type { Upstream } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { singleFlight } from '../kit/single-flight.ts';

const TIMEOUT = 2_000;
const REMEMBER_REACHABLE = 60_000;
const REMEMBER_UNREACHABLE = 10_000;

export interface ReachabilityDeps {
  config: Pick<Config, 'webapiUrl'>;
  upstream: Upstream;
  clock: Clock;
}

/**
 * Checks whether the agent's API server answers; otherwise a relay away from the agent's host does not announce `chat`
 * (contract 01 §12). Sends no credential. Caches the result for a minute, a failure for ten seconds.
 */
export function createReachability({ config, upstream, clock }: ReachabilityDeps): () => Promise<boolean> {
  let known: { isReachable: boolean; until: number } | undefined;

  async function ask(): Promise<boolean> {
    const over = new AbortController();
    const cancel = clock.after(TIMEOUT, () => over.abort());
    try {
      const { status } = await upstream({
        method: 'GET',
        url: `${config.webapiUrl}/health`,
        headers: {},
        signal: over.signal,
      });
      // The platform itself answers 52x for a server that it cannot reach.
      return status < 500;
    } catch {
      return false;
    } finally {
      cancel();
      over.abort();
    }
  }

  const askAgain = singleFlight(async () => {
    const isReachable = await ask();
    known = { isReachable, until: clock.monotonic() + (isReachable ? REMEMBER_REACHABLE : REMEMBER_UNREACHABLE) };
    return isReachable;
  });

  return async () => (known && clock.monotonic() < known.until ? known.isReachable : askAgain());
}

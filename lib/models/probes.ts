import { describeError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { createSemaphore } from '../kit/semaphore.ts';
import { sha256 } from '../kit/sha256.ts';
import { createSingleFlight, type Share } from '../kit/single-flight.ts';
import type { Log } from '../log.ts';
import { createEffortCache } from './cache.ts';
import { createCall } from './call.ts';
import type { ModelEfforts } from './efforts.ts';
import { providers } from './providers/index.ts';
import type { EffortLookup } from './providers/provider.ts';
import { type ProfileSettings, targetOf } from './target.ts';

/** Concurrent calls, over all requests of a relay. */
const MAX_CALLS = 4;
/** Calls in the queue, about as many as could finish before every request's deadline. */
const MAX_WAITING = 256;

/** The profile on whose behalf providers are queried. */
export interface ProbeContext {
  /** The profile's home, which identifies it. */
  profile: string;
  /** Generation of the profile's rows, taken before the settings were read. */
  generation: number;
  settings: ProfileSettings;
}

export interface ProbesDeps {
  upstream: Upstream;
  clock: Clock;
  log: Log;
  hasHost: boolean;
  userAgent: string;
}

/** Live queries to providers: bounded, shared by identical requests, cached (contract 07 §3). */
export function createProbes({ upstream, clock, log, hasHost, userAgent }: ProbesDeps) {
  const cache = createEffortCache(clock);
  const flights = createSingleFlight<EffortLookup>();
  const semaphore = createSemaphore(MAX_CALLS, MAX_WAITING);

  return {
    /** The generation of a profile's rows; with `refresh` a new one, without any rows. */
    generation: (profile: string, refresh: boolean): number =>
      refresh ? cache.refresh(profile) : cache.generation(profile),

    /**
     * Looks up these models in memory, else queries the provider. Calls `onFound` with each result as it comes. `done`
     * resolves after the last one and never rejects; `leave` stops waiting, and aborts calls that nobody else waits for.
     */
    probe(
      name: string,
      models: readonly string[],
      context: ProbeContext,
      onFound: (model: string, efforts: ModelEfforts) => void,
    ): { done: Promise<unknown>; leave(): void } {
      const shares: Share<EffortLookup>[] = [];
      let hasLeft = false;
      const leave = () => {
        hasLeft = true;
        for (const share of shares) share.leave();
      };
      const provider = providers.get(name);
      const target = provider && targetOf(name, provider, context.settings, { hasHost });
      if (!target) return { done: Promise.resolve(), leave };
      const { profile, generation } = context;
      // Another account or address gets separate rows. Only a hash of the secret is stored.
      const place = JSON.stringify([name, target.base, sha256(target.secret ?? '')]);
      const rowKey = (model: string) => JSON.stringify([place, model]);

      /** Reports cached models and returns the others. */
      const recall = (wanted: string[]): string[] =>
        wanted.filter((model) => {
          const known = cache.get(profile, rowKey(model));
          if (known) onFound(model, known);
          return !known;
        });

      const run = async ([query, wanted]: [string, string[]]) => {
        const unknown = recall(wanted);
        if (unknown.length === 0) return;
        // The generation is part of the key, so that a refresh joins no call that began before it.
        const share = flights.join(JSON.stringify([profile, generation, place, query]), (signal) =>
          provider.query(query, target, createCall({ upstream, clock, semaphore, userAgent }, signal)),
        );
        shares.push(share);
        try {
          const lookup = await share.outcome;
          for (const model of unknown) {
            const efforts = lookup(model);
            if (!efforts) continue;
            const found: ModelEfforts = { efforts, exact: true, source: provider.source };
            cache.set(profile, generation, rowKey(model), found);
            onFound(model, found);
          }
        } catch (error) {
          if (!hasLeft) log.debug(`cannot learn the model capabilities of ${name}: ${describeError(error)}`);
        }
      };
      const queries = provider.queries?.(models) ?? new Map([['catalog', [...models]]]);
      return { done: Promise.all([...queries].map(run)), leave };
    },
  };
}

import { describeError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import { sha256 } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import { createSemaphore } from '../kit/semaphore.ts';
import { createSingleFlight, type Share } from '../kit/single-flight.ts';
import type { Log } from '../log.ts';
import type { Answer } from './answer.ts';
import { createAnswerCache } from './cache.ts';
import { createCall } from './call.ts';
import type { ProfileSettings } from './profile.ts';
import { providers } from './providers/index.ts';
import type { Reading } from './providers/provider.ts';
import { targetOf } from './target.ts';

/** Calls in flight at once, over all requests of a relay. */
const MAX_CALLS = 4;
/** Further ones that may wait for their turn: about as many as could be had before everybody's deadline. */
const MAX_WAITING = 256;

/** A profile of which providers are asked. */
export interface Asking {
  /** The profile's home: what makes it another one than others. */
  profile: string;
  /** Of the profile's rows, as it was before the settings were read. */
  generation: number;
  settings: ProfileSettings;
}

export interface Probes {
  /** The generation of a profile's rows; with `refresh` a new one, without any rows. */
  generation(profile: string, refresh: boolean): number;
  /**
   * What one provider says about these models: from memory, else by asking it. `found` is called with each answer as
   * it comes.
   */
  ask(
    provider: string,
    models: readonly string[],
    asking: Asking,
    found: (model: string, answer: Answer) => void,
  ): Inquiry;
}

export interface Inquiry {
  /** When there will be no further answer. Never rejects. */
  readonly done: Promise<unknown>;
  /** Waits for nothing any more. What nobody else waits for is ended. */
  leave(): void;
}

export interface ProbesParts {
  upstream: Upstream;
  clock: Clock;
  log: Log;
  hasHost: boolean;
  userAgent: string;
}

/** Live questions to providers: bounded, shared by those who ask the same, remembered (contract 07 §3). */
export function createProbes({ upstream, clock, log, hasHost, userAgent }: ProbesParts): Probes {
  const cache = createAnswerCache(clock);
  const flights = createSingleFlight<Reading>();
  const semaphore = createSemaphore(MAX_CALLS, MAX_WAITING);

  return {
    generation: (profile, refresh) => (refresh ? cache.refresh(profile) : cache.generation(profile)),

    ask(name, models, asking, found) {
      const shares: Share<Reading>[] = [];
      let left = false;
      const leave = () => {
        left = true;
        for (const share of shares) share.leave();
      };
      const provider = providers.get(name);
      const target = provider && targetOf(name, provider, asking.settings, { hasHost });
      if (!target) return { done: Promise.resolve(), leave };
      const { profile, generation } = asking;
      // Rows of another account or address are other rows. Only a hash of the secret is kept.
      const place = JSON.stringify([name, target.base, sha256(target.secret ?? '')]);
      const rowKey = (model: string) => JSON.stringify([place, model]);

      /** Leaves those that are not known yet. */
      const recall = (asked: string[]): string[] =>
        asked.filter((model) => {
          const known = cache.get(profile, rowKey(model));
          if (known) found(model, known);
          return !known;
        });

      const askFor = async ([question, asked]: [string, string[]]) => {
        const unknown = recall(asked);
        if (unknown.length === 0) return;
        // With the generation, so that a refresh does not join a question that was asked before it.
        const share = flights.join(JSON.stringify([profile, generation, place, question]), (signal) =>
          provider.ask(question, target, createCall({ upstream, clock, semaphore, userAgent }, signal)),
        );
        shares.push(share);
        try {
          const reading = await share.outcome;
          for (const model of unknown) {
            const efforts = reading(model);
            if (!efforts) continue;
            const answer: Answer = { efforts, exact: true, source: provider.source };
            cache.set(profile, generation, rowKey(model), answer);
            found(model, answer);
          }
        } catch (error) {
          if (!left) log.debug(`${name} did not say what its models can do: ${describeError(error)}`);
        }
      };
      return { done: Promise.all([...provider.questions(models)].map(askFor)), leave };
    },
  };
}

import { sha256 } from '../bytes.ts';
import type { Clock } from '../clock.ts';
import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { Upstream } from '../web/upstream.ts';
import type { Answer } from './answer.ts';
import { createAnswerCache } from './cache.ts';
import { createCall } from './call.ts';
import { createFlights } from './flights.ts';
import type { ProfileSettings } from './profile.ts';
import { providers } from './providers/index.ts';
import type { Provider, Reading, Target } from './providers/provider.ts';
import { createSlots } from './slots.ts';
import { targetOf } from './target.ts';

/** Calls in flight at once, over all requests of a relay. */
const CALLS = 4;
/** Further ones that may wait for their turn: about as many as could be had before everybody's deadline. */
const MOST_WAITING = 256;

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
   * it comes. Resolves when there will be no further one, at the latest when `signal` is aborted; never rejects.
   */
  ask(
    provider: string,
    models: string[],
    asking: Asking,
    signal: AbortSignal,
    found: (model: string, answer: Answer) => void,
  ): Promise<void>;
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
  const flights = createFlights<Reading>();
  const slots = createSlots(CALLS, MOST_WAITING);

  async function askOne(
    { provider, question, key }: { provider: Provider; question: string; key: string },
    target: Target,
    { profile, generation }: Asking,
    signal: AbortSignal,
  ): Promise<Reading> {
    // With the generation, so that a refresh does not join a question that was asked before it.
    const flight = JSON.stringify([profile, generation, key, question]);
    return flights.join(flight, signal, (signal) =>
      provider.ask(question, target, createCall({ upstream, clock, slots, userAgent }, signal)),
    );
  }

  return {
    generation: (profile, refresh) => (refresh ? cache.refresh(profile) : cache.generation(profile)),

    async ask(name, models, asking, signal, found) {
      const provider = providers.get(name);
      const target = provider && targetOf(name, provider, asking.settings, { hasHost });
      if (!target) return;
      // Rows of another account or address are other rows. Only a hash of the secret is kept.
      const key = JSON.stringify([name, target.base, sha256(target.secret ?? '')]);
      const rowKey = (model: string) => JSON.stringify([key, model]);

      const askFor = async ([question, asked]: [string, string[]]) => {
        const unknown = asked.filter((model) => {
          const known = cache.get(asking.profile, rowKey(model));
          if (known) found(model, known);
          return !known;
        });
        if (unknown.length === 0) return;
        try {
          const reading = await askOne({ provider, question, key }, target, asking, signal);
          for (const model of unknown) {
            const efforts = reading(model);
            if (!efforts) continue;
            const answer: Answer = { efforts, exact: true, source: provider.source };
            cache.set(asking.profile, asking.generation, rowKey(model), answer);
            found(model, answer);
          }
        } catch (error) {
          if (!signal.aborted) log.debug(`${name} did not say what its models can do: ${describeError(error)}`);
        }
      };
      await Promise.all([...provider.questions(models)].map(askFor));
    },
  };
}

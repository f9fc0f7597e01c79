import type { Storage } from 'unstorage';
import type { SwitchRecord } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import type { Log } from '../log.ts';

const KEY = 'allow-insecure-api-bearer';

export interface SecurityParts {
  store: Storage<SwitchRecord>;
  config: Pick<Config, 'allowInsecureApiBearer'>;
  log: Log;
  /** A switch has changed. */
  changed?(allowInsecureApiBearer: boolean): void;
}

/** Switches that the operator may flip at runtime (contract 01 §8.2). */
export interface Security {
  /** True if the API key is accepted for voice over plain http. */
  readonly allowInsecureApiBearer: boolean;
  /** Refusing takes effect at once, allowing once it is stored. Resolves then; rejects when it cannot be stored. */
  setAllowInsecureApiBearer(value: boolean): Promise<void>;
}

/**
 * Opens the switches. A restart resets them to the configuration, a sleep of the process (edge) does not. A switch flipped
 * under another configuration no longer counts.
 */
export async function openSecurity({ store, config, log, changed }: SecurityParts): Promise<Security> {
  const configured = config.allowInsecureApiBearer;
  const saved = await store.getItem(KEY);
  let allow = saved?.configured === configured && typeof saved.value === 'boolean' ? saved.value : configured;
  let requested = allow;
  return {
    get allowInsecureApiBearer() {
      return allow;
    },

    async setAllowInsecureApiBearer(value) {
      requested = value;
      if (!value) allow = false;
      await store.setItem(KEY, { value, configured });
      // It may have been flipped back in the meantime.
      allow = value && requested;
      if (value) log.warn('the API key is now accepted for voice over plain http, until the relay restarts');
      else log.info('the API key is no longer accepted for voice over plain http');
      changed?.(allow);
    },
  };
}

import type { Storage } from 'unstorage';
import type { SwitchRecord } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import { createEvent } from '../kit/event.ts';
import type { Log } from '../log.ts';

const KEY = 'allow-insecure-api-bearer';

export interface SecurityDeps {
  store: Storage<SwitchRecord>;
  config: Pick<Config, 'allowInsecureApiBearer'>;
  log: Log;
}

export type Security = Awaited<ReturnType<typeof openSecurity>>;

/**
 * Switches that the operator may change at runtime (contract 01 §8.2). A restart resets them to the configuration, a sleep of the process (edge) does not. A switch that was
 * set under a different configuration no longer counts.
 */
export async function openSecurity({ store, config, log }: SecurityDeps) {
  const changes = createEvent<[allowInsecureApiBearer: boolean]>();
  const configured = config.allowInsecureApiBearer;
  const saved = await store.getItem(KEY);
  let allow = saved?.configured === configured && typeof saved.value === 'boolean' ? saved.value : configured;
  let requested = allow;
  return {
    /** Calls back when the switch has changed. */
    onChange: changes.on,

    /** True if the API key is accepted for voice over plain http. */
    get allowInsecureApiBearer(): boolean {
      return allow;
    },

    /** Disabling takes effect at once, enabling once it is stored. Resolves then; rejects if it cannot be stored. */
    async setAllowInsecureApiBearer(value: boolean): Promise<void> {
      requested = value;
      if (!value) allow = false;
      await store.setItem(KEY, { value, configured });
      // It may have been disabled again meanwhile.
      allow = value && requested;
      if (value) log.warn('the API key is now accepted for voice over plain http, until the relay restarts');
      else log.info('the API key is no longer accepted for voice over plain http');
      changes.emit(allow);
    },
  };
}

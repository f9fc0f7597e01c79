import type { Storage } from 'unstorage';
import type { SwitchRecord } from '../../storage/schema.ts';
import type { Config } from '../config.ts';
import { notStored } from '../errors.ts';
import { createApplied } from '../kit/applied.ts';
import type { Clock } from '../kit/clock.ts';
import { createEvent } from '../kit/event.ts';
import type { Log } from '../log.ts';

const KEY = 'allow-insecure-api-bearer';

const DISABLED = 'the API key is no longer accepted for voice over plain http';

export interface SecurityDeps {
  clock: Clock;
  store: Storage<SwitchRecord>;
  config: Pick<Config, 'allowInsecureApiBearer'>;
  log: Log;
}

export type Security = Awaited<ReturnType<typeof openSecurity>>;

/**
 * Switches that the operator may change at runtime (contract 01 §8.2). A restart resets them to the configuration, a sleep of
 * the process (edge) does not. A switch that was set under a different configuration no longer counts.
 */
export async function openSecurity({ store, config, clock, log }: SecurityDeps) {
  const changes = createEvent<[allowInsecureApiBearer: boolean]>();
  const configured = config.allowInsecureApiBearer;
  const saved = await store.getItem(KEY);
  let allow = saved?.configured === configured && typeof saved.value === 'boolean' ? saved.value : configured;
  let requested = allow;
  const save = (value: boolean): Promise<void> => store.setItem(KEY, { value, configured });
  const disabled = createApplied({ clock, log, what: DISABLED, save: () => save(allow) });
  return {
    /** Calls back when the switch has changed. */
    onChange: changes.on,

    /** True if the API key is accepted for voice over plain http. */
    get allowInsecureApiBearer(): boolean {
      return allow;
    },

    /**
     * Disabling takes effect at once, enabling once it is stored. Resolves then.
     * @throws RelayError `unavailable` if it cannot be stored.
     */
    async setAllowInsecureApiBearer(value: boolean): Promise<void> {
      requested = value;
      if (value) {
        await save(value).catch((error) => Promise.reject(notStored(error)));
        // It may have been disabled again meanwhile.
        allow = requested;
        if (allow) log.warn('the API key is now accepted for voice over plain http, until the relay restarts');
        changes.emit(allow);
      } else {
        allow = false;
        log.info(DISABLED);
        changes.emit(allow);
        await disabled.store();
      }
    },

    stop: disabled.stop,
  };
}

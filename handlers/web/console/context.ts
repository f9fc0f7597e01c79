import type { ReadonlySignal, Signal } from '@preact/signals';
import type { Api } from '../shared/api.ts';
import { createRequired } from '../shared/context.ts';
import type { PairingStore } from './stores/pairing.ts';
import type { RelayStore } from './stores/relay.ts';

/** Context of every screen of the console. */
export interface Console {
  /** The relay's operator routes. */
  api: Api;
  /** An operator token or the operator key, in memory only, for relays that do not know this browser otherwise. */
  credential: Signal<string | null>;
  relay: RelayStore;
  pairing: PairingStore;
  /** True if the relay does not answer: the screen shows old data, and changes are disabled. */
  isAway: ReadonlySignal<boolean>;
}

/** `const { relay } = useConsole()`. */
export const [ProvideConsole, useConsole] = createRequired<Console>('The console');

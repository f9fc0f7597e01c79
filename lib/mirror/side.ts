import type { Log } from '../log.ts';
import type { Origin } from './frames.ts';
import type { Outbox } from './outbox.ts';

/** This side of the mirror, as everything sees it that both sides have. */
export interface Side {
  side: Origin;
  outbox: Outbox;
  log: Log;
  /** True while there is another side. */
  isOn(): boolean;
  isLinked(): boolean;
}

import type { QueuedMessage } from '../../storage/schema.ts';
import type { Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import type { ClockJump } from '../steady-clock.ts';
import { hasExpired } from './delivery.ts';
import type { PhoneHistory } from './history.ts';

export interface AsideDeps {
  clock: Clock;
  jump: ClockJump | undefined;
  history: Pick<PhoneHistory, 'became'>;
  log: Log;
}

/**
 * Sets aside those of the loaded messages that expired by a clock which may be wrong. They stay stored until it is known
 * (contract 11 §2).
 */
export function createAside(loaded: readonly QueuedMessage[], { clock, jump, history, log }: AsideDeps) {
  const before = jump?.state() === 'ahead' ? jump.from * 1000 : undefined;
  const hasEnded = ({ message }: QueuedMessage): boolean => hasExpired(message, clock.now());
  let entries = loaded.filter((entry) => before !== undefined && hasEnded(entry) && !hasExpired(entry.message, before));
  const others = loaded.filter((entry) => !entries.includes(entry));
  if (entries.length > 0) log.warn(`${countOf(entries)} expired by a clock that may be wrong: kept aside for a day`);

  /** Takes messages out: one, or all. Returns their number. */
  function take(messageId: string | undefined, became: 'expired' | 'cancelled'): number {
    const isMeant = ({ message }: QueuedMessage) => messageId === undefined || message.message_id === messageId;
    const meant = entries.filter(isMeant);
    entries = entries.filter((entry) => !isMeant(entry));
    for (const { message } of meant) history.became(message.message_id, became);
    return meant.length;
  }

  return {
    /** The other loaded messages. */
    others,

    entries: (): readonly QueuedMessage[] => entries,

    take,

    /**
     * Returns the messages that have not expired, to be queued again, once the clock has returned; none, since all have expired,
     * once it has proved right; undefined while that is unknown.
     */
    settle(): readonly QueuedMessage[] | undefined {
      const outcome = jump?.state() ?? 'ahead';
      if (entries.length === 0 || outcome === 'ahead') return undefined;
      const returned = outcome === 'returned' ? entries.filter((entry) => !hasEnded(entry)) : [];
      entries = entries.filter((entry) => !returned.includes(entry));
      take(undefined, 'expired');
      if (returned.length > 0) log.warn(`the clock was set back, which brings back ${countOf(returned)}`);
      return returned;
    },
  };
}

const countOf = ({ length }: readonly unknown[]): string => `${length} queued message${length === 1 ? '' : 's'}`;

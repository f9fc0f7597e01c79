import type { Clock } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import { openRing, type RingOptions } from '../kit/ring.ts';

export type ActivityDeps = Pick<RingOptions<never>, 'store' | 'log' | 'name'> & { clock: Clock };

/** Stored with a command, besides its record. */
interface Entry<R> {
  record: R;
  /** Id of the socket that the command was sent to. */
  socket: string;
  /** Time of the timeout, epoch milliseconds. */
  deadline: number;
}

/** A command that was in flight when the process went to sleep. */
export interface Interrupted<R> {
  record: R;
  /** Milliseconds until the timeout; 0 if it has passed. */
  timeLeft: number;
  /** Stores the present state of the record. */
  save(): void;
  /** Sets the timeout to this many milliseconds from the start; returns the milliseconds that are left. */
  extend(timeout: number): number;
}

/**
 * The records of the last 100 commands. A record stays `pending` until it is settled, even over a sleep of the process
 * (contract 03 §6, 07 §2.3, 00).
 */
export async function openActivity<R extends { decision: string; sent_at: number }>(deps: ActivityDeps) {
  const { clock } = deps;
  const interrupted = new Map<string, Interrupted<R>[]>();
  const ring = await openRing<Entry<R>>({
    ...deps,
    isEntry: ({ record, socket, deadline }) =>
      isObject(record) && typeof socket === 'string' && typeof deadline === 'number',
    loaded(entry, save) {
      const { record, socket, deadline } = entry;
      if (record.decision !== 'pending') return;
      const own = interrupted.get(socket) ?? [];
      const extend = (timeout: number) => extendEntry(entry, timeout, save);
      own.push({ record, timeLeft: Math.max(0, deadline - clock.now()), save, extend });
      interrupted.set(socket, own);
    },
  });

  function extendEntry(entry: Entry<R>, timeout: number, save: () => void): number {
    const deadline = entry.record.sent_at + timeout;
    if (deadline > entry.deadline) {
      entry.deadline = deadline;
      save();
    }
    return entry.deadline - clock.now();
  }

  return {
    /** Adds the record of a command that is about to be sent. */
    add(record: R, { socket, timeout }: { socket: string; timeout: number }): Pick<Interrupted<R>, 'save' | 'extend'> {
      const entry = { record, socket, deadline: clock.now() + timeout };
      const save = ring.add(entry);
      return { save, extend: (timeout) => extendEntry(entry, timeout, save) };
    },

    /** At most `limit` records, newest first. */
    list: (limit: number): R[] => ring.list(limit).map(({ record }) => record),

    /** Takes the interrupted commands of a socket, or without one, all that are left. */
    takeInterrupted(socket?: string): Interrupted<R>[] {
      if (socket === undefined) {
        const rest = [...interrupted.values()].flat();
        interrupted.clear();
        return rest;
      }
      const own = interrupted.get(socket) ?? [];
      interrupted.delete(socket);
      return own;
    },
  };
}

import * as v from 'valibot';
import type { EndedSessionRecord, Store } from '../../storage/schema.ts';
import { describeError } from '../errors.ts';
import { type Clock, isTime, seconds } from '../kit/clock.ts';
import { loadAll, readAs } from '../kit/entries.ts';
import { sha256 } from '../kit/sha256.ts';
import type { Log } from '../log.ts';
import { DAY } from './grants.ts';
import { familyOf } from './refresh.ts';
import type { EndReason, Session } from './session.ts';

/** Maximum ended sessions that stay listed, and for how long, in seconds (contract 11 §2). */
const MAX_ENDED = 50;
const LISTED_FOR = 30 * DAY;

export interface EndedDeps {
  store: Store<'ended-sessions'>;
  clock: Clock;
  log: Log;
}

export type EndedSessions = Awaited<ReturnType<typeof openEndedSessions>>;

/** `revoked by <name>` if somebody ended the session. */
const reasonOf = (reason: EndReason, by: string | undefined): string =>
  reason === 'revoked' ? `revoked by ${by ?? 'operator'}` : reason;

/**
 * The sessions that ended last, with the reasons. A record that cannot be written is only logged, since the end of a session
 * must not wait for it.
 */
export async function openEndedSessions({ store, clock, log }: EndedDeps) {
  /** Keyed by family, in the order of their end. */
  const ended = new Map<string, EndedSessionRecord>();
  const byToken = new Map<string, string>();

  const failed = (error: unknown) => log.warn(`the list of ended sessions could not be saved: ${describeError(error)}`);
  const put = (family: string, record: EndedSessionRecord) => {
    ended.set(family, record);
    byToken.set(record.token_sha256, family);
  };

  function forget(family: string): void {
    const record = ended.get(family);
    if (record) byToken.delete(record.token_sha256);
    ended.delete(family);
    void store.removeItem(family).catch(failed);
  }

  function sweep(): void {
    const before = seconds(clock) - LISTED_FOR;
    for (const [family, { ended_at }] of ended) {
      if (ended.size <= MAX_ENDED && ended_at > before) break;
      forget(family);
    }
  }

  const stored = await loadAll({ store, log, read: readAs(Stored) }, 'skipped');
  for (const [family, record] of stored.sort(([, a], [, b]) => a.ended_at - b.ended_at)) put(family, record);
  sweep();

  const sentence = (record: EndedSessionRecord): string =>
    `session ended on ${new Date(record.ended_at * 1000).toISOString().slice(0, 10)}: pair again`;

  return {
    /** Adds a session that has just ended. `by` names who revoked it. */
    add({ family, prefix, tokenHash, device }: Session, reason: EndReason, by?: string): void {
      put(family, {
        token_prefix: prefix,
        token_sha256: tokenHash,
        device_name: device.name,
        device_id: device.id,
        client_surface: device.surface,
        ended_at: seconds(clock),
        reason: reasonOf(reason, by),
      });
      const record = ended.get(family) as EndedSessionRecord;
      void store.setItem(family, record).catch(failed);
      sweep();
    },

    /** The latest end first. */
    list(): EndedSessionRecord[] {
      sweep();
      return [...ended.values()].reverse();
    },

    /** Answer to the holder of a dead token; undefined if it belongs to no listed session. */
    sentenceFor({ token, refreshToken }: { token?: string; refreshToken?: string }): string | undefined {
      if (ended.size === 0) return undefined;
      const family = token === undefined ? undefined : byToken.get(sha256(token));
      const record = ended.get(family ?? (refreshToken === undefined ? '' : (familyOf(refreshToken) ?? '')));
      return record && sentence(record);
    },

    sweep,
  };
}

const Stored: v.GenericSchema<unknown, EndedSessionRecord> = v.object({
  ...v.entriesFromList(['token_prefix', 'token_sha256', 'device_name', 'device_id', 'reason'], v.string()),
  client_surface: v.picklist(['android', 'desktop', 'quest', 'web', 'unknown']),
  ended_at: v.custom<number>((value) => isTime(value, 1000)),
});

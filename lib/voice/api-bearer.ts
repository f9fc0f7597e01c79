import type { Storage } from 'unstorage';
import * as v from 'valibot';
import type { VoiceCallerRecord } from '../../storage/schema.ts';
import { RelayError } from '../errors.ts';
import { isSuccess, type Upstream } from '../host/upstream.ts';
import { base64url, randomBytes } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import { listOf, loadAll, readAs } from '../kit/entries.ts';
import { sha256 } from '../kit/sha256.ts';
import { createSingleFlight } from '../kit/single-flight.ts';
import { isPrintable } from '../kit/text.ts';
import { withDeadline } from '../kit/timeouts.ts';
import { createWriteBehind } from '../kit/write-behind.ts';
import type { Log } from '../log.ts';

const PROBE_TIMEOUT = 5_000;
/** Milliseconds for which a valid bearer, and whether the API server checks bearers at all, are cached. */
const REMEMBERED = 60_000;
const MAX_REMEMBERED = 1024;
const FAILURE_WINDOW = 60_000;
const MAX_FAILURES = 30;
/** Callers with failures within the window. */
const MAX_CALLERS = 4096;
/** Concurrent probes, over all callers. */
const MAX_PROBES = 64;

/** Key of the record that says whether the API server checks bearers. The others are made of hashes. */
const OPEN_KEY = 'open';

export interface ApiBearerDeps {
  /** Base URL of the API server, without a slash at its end. It may have a path. */
  base: string;
  upstream: Upstream;
  store: Storage<VoiceCallerRecord>;
  clock: Clock;
  log: Log;
}

/** A random bearer that no server has ever issued. */
const madeUpToken = (): string => base64url(randomBytes(32));

/** The same error for every bearer that is not accepted, whatever the reason. */
export const invalidBearer = (): RelayError => new RelayError('unauthorized', 'invalid or expired bearer token');

/**
 * Checks bearers of the agent's API server, which only that server can verify (contract 05 §2).
 *
 * Times are monotonic in memory and wall-clock in the store, because a process that slept (edge) has another monotonic
 * clock.
 */
export async function openApiBearers({ base, upstream, store, clock, log }: ApiBearerDeps) {
  /** Ends of validity by the hash of base and token, the least recently used first. */
  const valid = new Map<string, number>();
  /** Times of failures by caller, the least recent first. */
  const failures = new Map<string, number[]>();
  let open: { isOpen: boolean; until: number } | undefined;
  const probes = createSingleFlight<boolean>();
  const persistence = createWriteBehind({ store, log, name: 'the callers of voice' });

  const offset = () => clock.now() - clock.monotonic();

  async function restore(): Promise<void> {
    const now = clock.monotonic();
    for (const [key, record] of await loadAll({ store, log, read: readAs(Stored) })) {
      if ('failures' in record) {
        const times = recent(
          record.failures.map((time) => Math.min(time - offset(), now)),
          now,
        );
        if (times.length > 0) failures.set(record.caller, times);
        else await store.removeItem(key);
        continue;
      }
      // A wall clock that was set back lengthens no validity.
      const until = Math.min(record.until - offset(), now + REMEMBERED);
      if (until <= now) await store.removeItem(key);
      else if ('open' in record) open = { isOpen: record.open, until };
      else valid.set(key, until);
    }
  }

  /** Status of the list of models, with this bearer. Undefined without an answer in time. */
  async function statusFor(token: string, signal: AbortSignal): Promise<number | undefined> {
    try {
      return await withDeadline({ clock, timeout: PROBE_TIMEOUT, signal }, async (end) => {
        const headers = { accept: 'application/json', authorization: `Bearer ${token}` };
        const { status } = await upstream({ method: 'GET', url: `${base}/v1/models`, headers, signal: end });
        return status;
      });
    } catch {
      return undefined;
    }
  }

  async function probe(token: string, key: string, caller: string, signal: AbortSignal): Promise<boolean> {
    const now = clock.monotonic();
    const failed = recent(failures.get(caller) ?? [], now);
    if (failed.length >= MAX_FAILURES) throw tooMany((failed[0] as number) + FAILURE_WINDOW - now);
    // Counted before the answer, so that many concurrent bearers do not bypass the limit.
    setFailures(caller, [...failed, now]);
    if (!isSuccess(await statusFor(token, signal))) return false;
    setFailures(caller, withoutOne(failures.get(caller) ?? [], now));
    remember(key);
    return true;
  }

  function setFailures(caller: string, times: number[]): void {
    failures.delete(caller);
    if (times.length > 0) failures.set(caller, times);
    for (const [oldest] of failures) {
      if (failures.size <= MAX_CALLERS) break;
      failures.delete(oldest);
      saveFailures(oldest);
    }
    saveFailures(caller);
  }

  function saveFailures(caller: string): void {
    persistence.save(sha256(`caller ${caller}`), () => {
      const times = recent(failures.get(caller) ?? [], clock.monotonic());
      return times.length > 0 ? { caller, failures: times.map((time) => time + offset()) } : null;
    });
  }

  function remember(key: string): void {
    const now = clock.monotonic();
    valid.delete(key);
    valid.set(key, now + REMEMBERED);
    for (const [other, until] of valid) {
      if (until > now && valid.size <= MAX_REMEMBERED) continue;
      valid.delete(other);
      saveValid(other);
    }
    saveValid(key);
  }

  function saveValid(key: string): void {
    persistence.save(key, () => {
      const until = valid.get(key);
      return until === undefined ? null : { until: until + offset() };
    });
  }

  function isRemembered(key: string): boolean {
    const until = valid.get(key);
    if (until === undefined || until <= clock.monotonic()) return false;
    // A Map keeps insertion order.
    valid.delete(key);
    valid.set(key, until);
    return true;
  }

  async function askWhetherOpen(signal: AbortSignal): Promise<boolean> {
    const status = await statusFor(madeUpToken(), signal);
    if (status === undefined) throw invalidBearer();
    const isOpen = isSuccess(status);
    if (isOpen)
      log.warn('the API server accepts any bearer: only callers on this host may use voice without a session');
    const found = { isOpen, until: clock.monotonic() + REMEMBERED };
    open = found;
    persistence.save(OPEN_KEY, () => ({ open: found.isOpen, until: found.until + offset() }));
    return isOpen;
  }

  async function once(key: string, start: (signal: AbortSignal) => Promise<boolean>): Promise<boolean> {
    const share = probes.join(key, start);
    try {
      return await share.outcome;
    } finally {
      share.leave();
    }
  }

  await restore();

  return {
    /**
     * Returns whether the API server accepts a bearer. A success is cached for a minute. Each caller, identified by its limit
     * key, may fail 30 times per minute.
     * @throws RelayError `rate-limited` without a probe, above that.
     */
    async isValid(token: string, caller: string): Promise<boolean> {
      // Cannot be sent in a header.
      if (!isPrintable(token)) return false;
      const key = sha256(`${base} ${token}`);
      if (isRemembered(key)) return true;
      if (probes.size >= MAX_PROBES) throw tooMany(PROBE_TIMEOUT);
      return once(key, (signal) => probe(token, key, caller, signal));
    },

    /**
     * Returns whether the API server accepts any bearer, so that a valid one proves nothing. Cached for a minute.
     * @throws RelayError `unauthorized` if it does not answer.
     */
    async isOpen(): Promise<boolean> {
      if (open && open.until > clock.monotonic()) return open.isOpen;
      return once(OPEN_KEY, askWhetherOpen);
    },
  };
}

const recent = (times: readonly number[], now: number): number[] => times.filter((time) => time > now - FAILURE_WINDOW);

function withoutOne(times: readonly number[], time: number): number[] {
  const at = times.indexOf(time);
  return at < 0 ? [...times] : times.toSpliced(at, 1);
}

const tooMany = (wait: number): RelayError =>
  new RelayError('rate-limited', 'too many invalid bearer tokens, try again later', {
    retryAfter: Math.max(1, Math.ceil(wait / 1000)),
  });

const Stored: v.GenericSchema<unknown, VoiceCallerRecord> = v.union([
  v.object({ caller: v.string(), failures: listOf(v.number()) }),
  v.object({ open: v.boolean(), until: v.number() }),
  v.object({ until: v.number() }),
]);

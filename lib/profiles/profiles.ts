import { agentRoot, type Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { type Cancel, type Clock, every } from '../kit/clock.ts';
import { createEvent } from '../kit/event.ts';
import type { Log } from '../log.ts';
import { createParseCache } from './config-file.ts';
import { type DiscoveryConfig, discoverProfiles } from './discovery.ts';
import type { ProfileRow } from './row.ts';

export type { ProfileRow } from './row.ts';

/** The agent's profiles, as an immutable snapshot (contract 07 §1.4). */
export interface Profiles {
  /** The current snapshot, which must not be changed. Needs no `this`. */
  rows(): ProfileRow[];
  /**
   * Reads the profiles again and reports a difference. Never rejects: a failed scan is logged and keeps the snapshot. Scans
   * do not overlap: a call during one resolves after the next one, which sees the caller's earlier writes.
   */
  rescan(): Promise<void>;
  /** During the first scan, resolves when it is over, after 2 s at most (contract 11 §5); undefined otherwise. */
  loading(): Promise<void> | undefined;
  /** Calls back with a snapshot that differs from the one before. */
  onChange(listener: (rows: ProfileRow[]) => void): void;
  /** Starts scanning every 30 s and after file events. The first scan is left to the caller. */
  start(): void;
  /** Stops scanning. A running scan reports no more results. */
  stop(): void;
}

export interface ProfilesDeps {
  /** Absent at the edge, which has no profiles. */
  host?: Host;
  config: DiscoveryConfig & Pick<Config, 'profileDiscovery'>;
  clock: Clock;
  log: Log;
}

const RESCAN_PERIOD = 30_000;
/** Milliseconds that a handshake waits for the first scan (contract 11 §5). */
const FIRST_SCAN_WAIT = 2_000;
/** Milliseconds between scans caused by file events, since a busy agent keeps writing beside its configuration. */
const EVENT_SCAN_SPACING = 5_000;

/** Names in one log line. */
const MAX_LOGGED_NAMES = 20;

/** Without a host or with discovery disabled, the list is always empty. */
export function createProfiles({ host, config, clock, log }: ProfilesDeps): Profiles {
  const changes = createEvent<[rows: ProfileRow[]]>();
  if (!host || !config.profileDiscovery) {
    const [rows, rescan, loading] = [() => [], async () => {}, () => undefined];
    return { rows, rescan, loading, onChange: changes.on, start() {}, stop() {} };
  }
  let snapshot: ProfileRow[] = [];
  const cache = createParseCache();
  /** Warnings of the last scan, so that each is logged once rather than every 30 s. */
  let known = new Set<string>();
  let failure: string | null = null;
  let announced: string | null = null;
  let running: Promise<void> | null = null;
  let next: Promise<void> | null = null;
  let stopped = false;
  let hasScanned = false;
  let loading: Promise<void> | undefined;
  let cancels: Cancel[] = [];

  const scan = async () => {
    try {
      const { rows, warnings, notes } = await discoverProfiles(host, config, cache);
      for (const warning of warnings) if (!known.has(warning)) log.warn(warning);
      for (const note of notes) if (!known.has(note)) log.info(note);
      known = new Set([...warnings, ...notes]);
      failure = null;
      const named = namesOf(rows);
      if (named !== announced) log.info(`profiles: ${named}`);
      announced = named;
      if (stopped || isSame(snapshot, rows)) return;
      snapshot = rows;
      changes.emit(rows);
    } catch (error) {
      const message = `profiles were not updated: ${describeError(error)}`;
      if (message !== failure) log.warn(message);
      failure = message;
    }
  };

  const begin = (): Promise<void> => {
    const current = scan().finally(() => {
      hasScanned = true;
      if (running === current) running = null;
    });
    running = current;
    return current;
  };

  const rescan = (): Promise<void> => {
    if (next) return next;
    if (!running) return begin();
    next = running.then(() => {
      next = null;
      return begin();
    });
    return next;
  };

  /** Scans at once after a quiet period, otherwise when the spacing is over. */
  const watchFiles = (): Cancel => {
    let last = Number.NEGATIVE_INFINITY;
    let waiting: Cancel | null = null;
    const scanNow = () => {
      waiting = null;
      last = clock.monotonic();
      void rescan();
    };
    const root = agentRoot(config);
    const end = host.files.watch([config.agentConfig, `${root}/active_profile`, `${root}/profiles`], () => {
      if (waiting) return;
      const wait = last + EVENT_SCAN_SPACING - clock.monotonic();
      if (wait <= 0) scanNow();
      else waiting = clock.after(wait, scanNow);
    });
    return () => {
      waiting?.();
      end();
    };
  };

  return {
    onChange: changes.on,
    rows: () => snapshot,
    rescan,
    loading() {
      if (hasScanned || !running) return undefined;
      const first = running;
      loading ??= new Promise((resolve) => {
        const cancel = clock.after(FIRST_SCAN_WAIT, resolve);
        void first.finally(() => {
          cancel();
          resolve();
        });
      });
      return loading;
    },
    start() {
      if (cancels.length > 0) return;
      stopped = false;
      const failed = (error: unknown) => log.warn(`profiles were not updated: ${describeError(error)}`);
      cancels = [every(clock, RESCAN_PERIOD, rescan, failed), watchFiles()];
    },
    stop() {
      stopped = true;
      for (const cancel of cancels) cancel();
      cancels = [];
    },
  };
}

function namesOf(rows: ProfileRow[]): string {
  const names = rows.slice(0, MAX_LOGGED_NAMES).map(({ name }) => name);
  const more = rows.length - names.length;
  return names.length === 0 ? 'none' : names.join(', ') + (more > 0 ? ` and ${more} more` : '');
}

/** A deep comparison, since rows are flat. */
function isSame(a: ProfileRow[], b: ProfileRow[]): boolean {
  return (
    a.length === b.length &&
    a.every((row, index) =>
      (Object.keys(row) as (keyof ProfileRow)[]).every((field) => row[field] === b[index]?.[field]),
    )
  );
}

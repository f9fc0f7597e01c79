import { agentRoot, type Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import { type Cancel, type Clock, every } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import { createParseMemory } from './config-file.ts';
import { type DiscoveryConfig, discoverProfiles } from './discovery.ts';
import type { ProfileRow } from './row.ts';

export type { ProfileRow } from './row.ts';

/** The agent's profiles, as one snapshot that is replaced as a whole (contract 07 §1.4). */
export interface Profiles {
  /** The current snapshot; not to be changed. Needs no `this`. */
  rows(): ProfileRow[];
  /**
   * Reads the profiles anew and reports a difference. Never rejects: a failed scan is logged and keeps the snapshot.
   * Scans do not overlap; a call during one resolves after another one that began later, so it sees what the caller wrote.
   */
  rescan(): Promise<void>;
  /** Begins to look every 30 s and after file events. The first scan is the caller's `rescan()`. */
  start(): void;
  /** Ends that. A scan under way reports nothing any more. */
  stop(): void;
}

export interface ProfilesParts {
  /** Absent at the edge, where there are no profiles. */
  host?: Host;
  config: DiscoveryConfig & Pick<Config, 'profileDiscovery'>;
  clock: Clock;
  log: Log;
  /** Called with the new snapshot after it has replaced a different one. */
  changed(rows: ProfileRow[]): void;
}

const RESCAN_PERIOD = 30_000;
/** A busy agent writes beside its configuration all the time: milliseconds between scans that file events cause. */
const EVENT_SCAN_SPACING = 5_000;

/** Names that a log line has room for. */
const SHOWN_NAMES = 20;

/** Without a host, or with discovery switched off, the list is always empty. */
export function createProfiles({ host, config, clock, log, changed }: ProfilesParts): Profiles {
  if (!host || !config.profileDiscovery) {
    return { rows: () => [], rescan: async () => {}, start() {}, stop() {} };
  }
  let snapshot: ProfileRow[] = [];
  const memory = createParseMemory();
  /** What the last scan had to say, so that it is said once and not every 30 s. */
  let known = new Set<string>();
  let failure: string | null = null;
  let announced: string | null = null;
  let running: Promise<void> | null = null;
  let next: Promise<void> | null = null;
  let stopped = false;
  let cancels: Cancel[] = [];

  const scan = async () => {
    try {
      const { rows, warnings } = await discoverProfiles(host, config, memory);
      for (const warning of warnings) if (!known.has(warning)) log.warn(warning);
      known = new Set(warnings);
      failure = null;
      const named = namesOf(rows);
      if (named !== announced) log.info(`profiles: ${named}`);
      announced = named;
      if (stopped || isSame(snapshot, rows)) return;
      snapshot = rows;
      changed(rows);
    } catch (error) {
      const message = `profiles were not updated: ${describeError(error)}`;
      if (message !== failure) log.warn(message);
      failure = message;
    }
  };

  const begin = (): Promise<void> => {
    const current = scan().finally(() => {
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

  /** At once after a quiet while, else when the spacing is over. */
  const watchFiles = (): Cancel => {
    let last = Number.NEGATIVE_INFINITY;
    let waiting: Cancel | null = null;
    const look = () => {
      waiting = null;
      last = clock.monotonic();
      void rescan();
    };
    const root = agentRoot(config);
    const end = host.files.watch([config.agentConfig, `${root}/active_profile`, `${root}/profiles`], () => {
      if (waiting) return;
      const wait = last + EVENT_SCAN_SPACING - clock.monotonic();
      if (wait <= 0) look();
      else waiting = clock.after(wait, look);
    });
    return () => {
      waiting?.();
      end();
    };
  };

  return {
    rows: () => snapshot,
    rescan,
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
  const names = rows.slice(0, SHOWN_NAMES).map(({ name }) => name);
  const more = rows.length - names.length;
  return names.length === 0 ? 'none' : names.join(', ') + (more > 0 ? ` and ${more} more` : '');
}

/** Rows are flat, so this is a deep comparison. */
function isSame(a: ProfileRow[], b: ProfileRow[]): boolean {
  return (
    a.length === b.length &&
    a.every((row, index) =>
      (Object.keys(row) as (keyof ProfileRow)[]).every((field) => row[field] === b[index]?.[field]),
    )
  );
}

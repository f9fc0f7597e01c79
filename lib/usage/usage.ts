import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import type { Upstream } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { withDeadline } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { profileHome } from '../profiles/home.ts';
import { createCall } from './call.ts';
import { type ActiveCredential, readActiveCredential, readCredentials } from './credentials.ts';
import { nous } from './nous.ts';
import { openaiCodex } from './openai-codex.ts';
import { opencodeGo } from './opencode-go.ts';
import {
  type LoadOptions,
  PROVIDER_BASES,
  type Provider,
  type ProviderBases,
  type ProviderUsage,
  providerUsage,
} from './provider.ts';
import { supergrok } from './supergrok.ts';

/** THE list of providers, in display order. */
const PROVIDERS: Provider[] = [openaiCodex, nous, opencodeGo, supergrok];
const CAPABILITIES = ['credential_pools', 'structured_balances', 'opencode_go', 'supergrok'];
const PROFILE = /^[a-z0-9][a-z0-9_-]{0,63}$/;

/** Milliseconds for a whole report, since phones wait 30 s. */
const REPORT_TIMEOUT = 20_000;
/** Milliseconds for which a snapshot is cached. */
const LIFETIME = 30_000;
const MAX_SNAPSHOTS = 32;

export interface UsageReport {
  schema_version: 2;
  fetched_at: string;
  capabilities: string[];
  providers: ProviderUsage[];
}

export interface UsageDeps {
  host: Host;
  config: Config;
  clock: Clock;
  log: Log;
  upstream: Upstream;
  /** Other base URLs, for tests. */
  bases?: Partial<ProviderBases>;
}

/** The credential of a session, as known by the process that runs it (contract 07 §4.2). */
export interface LiveCredential {
  providerId: string;
  credentialId: string;
  profileHome: string;
}

interface UsageQuery {
  profile: string;
  sessionId: string;
  live?: LiveCredential | null;
}

/** A provider's row for a session with the given credential. */
type RowFor = (active: ActiveCredential | null) => ProviderUsage;

interface Snapshot {
  fetchedAt: string;
  rows: RowFor[];
  isComplete: boolean;
}

export type Usage = ReturnType<typeof createUsage>;

/**
 * Provider usage (contract 04 §9). Concurrent reports of one profile share one query, whose result is cached for 30 s unless
 * a provider failed. The active credential of a session is looked up for each report.
 */
export function createUsage(deps: UsageDeps) {
  const { host, config, clock, log } = deps;
  const bases = { ...PROVIDER_BASES, ...deps.bases };
  /** Keyed by home, newest last. */
  const cache = new Map<string, { snapshot: Promise<Snapshot>; until: number }>();

  async function homeOf(profile: string): Promise<string> {
    const name = profile.trim().toLowerCase() || 'default';
    const place = PROFILE.test(name) ? await profileHome(host.files, config, name) : null;
    const isKnown =
      place && (name === 'default' || (await unlessUnreadable(host.files.stat(place.config)))?.kind === 'file');
    if (!isKnown) throw new RelayError('invalid', 'invalid or unknown profile');
    return place.home;
  }

  function snapshotOf(home: string): Promise<Snapshot> {
    const known = cache.get(home);
    if (known && clock.monotonic() < known.until) return known.snapshot;
    const snapshot = load(home);
    const entry = { snapshot, until: Number.POSITIVE_INFINITY };
    const forget = () => {
      if (cache.get(home) === entry) cache.delete(home);
    };
    cache.delete(home);
    cache.set(home, entry);
    snapshot.then(({ isComplete }) => {
      if (isComplete) entry.until = clock.monotonic() + LIFETIME;
      else forget();
    }, forget);
    for (const oldest of cache.keys()) {
      if (cache.size <= MAX_SNAPSHOTS) break;
      cache.delete(oldest);
    }
    return snapshot;
  }

  async function load(home: string): Promise<Snapshot> {
    const fetchedAt = new Date(clock.now()).toISOString();
    return withDeadline({ clock, timeout: REPORT_TIMEOUT }, async (signal) => {
      const credentials = await readCredentials(host, home);
      const options = { credentials, call: createCall(deps, signal), bases };
      const rows = await Promise.all(PROVIDERS.map((provider) => loadOne(provider, options, fetchedAt)));
      return { fetchedAt, rows, isComplete: rows.every((row) => isLoaded(row(null))) };
    });
  }

  async function loadOne(provider: Provider, options: LoadOptions, fetched_at: string): Promise<RowFor> {
    try {
      const usage = await provider.load(options);
      if (!usage) return () => providerUsage(provider, 'not_configured', {});
      const usageFor = typeof usage === 'function' ? usage : () => usage;
      return (active) => providerUsage(provider, 'available', { fetched_at, ...usageFor(active) });
    } catch (error) {
      const message = error instanceof RelayError ? error.message : `Could not load ${provider.displayName} usage`;
      log.debug(`${provider.id}: ${message}`);
      return () => providerUsage(provider, 'unavailable', { message, fetched_at });
    }
  }

  async function activeOf(home: string, sessionId: string, live?: LiveCredential | null) {
    if (live && (await isSamePlace(live.profileHome, home))) {
      const { providerId, credentialId } = live;
      return { providerId, credentialId, observedAt: new Date(clock.now()).toISOString() };
    }
    return sessionId === '' ? null : readActiveCredential(host.files, home, sessionId, clock.now());
  }

  async function isSamePlace(one: string, other: string): Promise<boolean> {
    const [a, b] = await Promise.all([one, other].map((path) => unlessUnreadable(host.files.realPath(path))));
    return a !== null && a === b;
  }

  return {
    /**
     * Usage of the providers' quotas, for a profile (empty = default) and a session of its agent. A failing provider affects
     * its own row only. `live` is the credential that the session uses right now, if the caller knows it; it counts only for
     * its own profile.
     * @throws RelayError `invalid` for an unknown profile.
     */
    async report({ profile, sessionId, live }: UsageQuery): Promise<UsageReport> {
      const home = await homeOf(profile);
      const [{ fetchedAt, rows }, active] = await Promise.all([
        snapshotOf(home),
        activeOf(home, sessionId.trim(), live),
      ]);
      return {
        schema_version: 2,
        fetched_at: fetchedAt,
        capabilities: CAPABILITIES,
        providers: rows.map((row) => row(active)),
      };
    },
  };
}

/** False if a part of a provider's usage could not be loaded, so that the row should not be cached. */
const isLoaded = ({ status, credentials }: ProviderUsage): boolean =>
  status !== 'unavailable' && credentials.every(({ message }) => message === null);

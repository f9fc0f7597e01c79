import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import type { Upstream } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { withDeadline } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { profileHome } from '../profiles/home.ts';
import { readActiveCredential } from './active-credential.ts';
import { createAsk } from './ask.ts';
import { readCredentials } from './credentials.ts';
import { nous } from './nous.ts';
import { openaiCodex } from './openai-codex.ts';
import { opencodeGo } from './opencode-go.ts';
import { type Loaded, type LoadParts, PROVIDER_BASES, type Provider, type ProviderBases } from './provider.ts';
import { supergrok } from './supergrok.ts';
import { type ProviderUsage, providerUsage } from './types.ts';

/** The providers, in the order in which they are shown. */
const PROVIDERS: Provider[] = [openaiCodex, nous, opencodeGo, supergrok];
const CAPABILITIES = ['credential_pools', 'structured_balances', 'opencode_go', 'supergrok'];
const PROFILE = /^[a-z0-9][a-z0-9_-]{0,63}$/;

/** Milliseconds for everything together: phones wait 30 s. */
const DEADLINE = 20_000;
const KEPT = 30_000;
const MAX_KEPT = 32;

export interface UsageReport {
  schema_version: 2;
  fetched_at: string;
  capabilities: string[];
  providers: ProviderUsage[];
}

export interface UsageParts {
  host: Host;
  config: Config;
  clock: Clock;
  log: Log;
  upstream: Upstream;
  /** Other places to ask, for tests. */
  bases?: Partial<ProviderBases>;
}

export interface Usage {
  /**
   * How much of the providers' quotas is used, for a profile (empty = default) and a session of its agent. What a
   * provider gets wrong shows in its row alone.
   * @throws RelayError `invalid` for a profile that is none.
   */
  report(query: { profile: string; sessionId: string }): Promise<UsageReport>;
}

interface Snapshot {
  fetchedAt: string;
  loaded: Loaded[];
  isComplete: boolean;
}

/**
 * Provider usage (contract 04 §9). Providers are asked once for all who want the same profile at the same time, and
 * again after 30 s at the earliest, unless one has failed; which credential is a session's is looked up each time.
 */
export function createUsage(parts: UsageParts): Usage {
  const { host, config, clock, log } = parts;
  const bases = { ...PROVIDER_BASES, ...parts.bases };
  /** By home; the newest at the end. */
  const kept = new Map<string, { snapshot: Promise<Snapshot>; until: number }>();

  async function homeOf(profile: string): Promise<string> {
    const name = profile.trim().toLowerCase() || 'default';
    const place = PROFILE.test(name) ? await profileHome(host.files, config, name) : null;
    const isKnown =
      place && (name === 'default' || (await unlessUnreadable(host.files.stat(place.config)))?.kind === 'file');
    if (!isKnown) throw new RelayError('invalid', 'invalid or unknown profile');
    return place.home;
  }

  function snapshotOf(home: string): Promise<Snapshot> {
    const known = kept.get(home);
    if (known && clock.monotonic() < known.until) return known.snapshot;
    const snapshot = load(home);
    const entry = { snapshot, until: Number.POSITIVE_INFINITY };
    const forget = () => {
      if (kept.get(home) === entry) kept.delete(home);
    };
    kept.delete(home);
    kept.set(home, entry);
    snapshot.then(({ isComplete }) => {
      if (isComplete) entry.until = clock.monotonic() + KEPT;
      else forget();
    }, forget);
    for (const oldest of kept.keys()) {
      if (kept.size <= MAX_KEPT) break;
      kept.delete(oldest);
    }
    return snapshot;
  }

  async function load(home: string): Promise<Snapshot> {
    const fetchedAt = new Date(clock.now()).toISOString();
    return withDeadline({ clock, timeout: DEADLINE }, async (signal) => {
      const credentials = await readCredentials(host, home);
      const loading = { credentials, ask: createAsk(parts, signal), bases, fetchedAt };
      const results = await Promise.all(PROVIDERS.map((provider) => loadOne(provider, loading)));
      return {
        fetchedAt,
        loaded: results.map(({ loaded }) => loaded),
        isComplete: results.every(({ failed }) => !failed),
      };
    });
  }

  async function loadOne(provider: Provider, loading: LoadParts): Promise<{ loaded: Loaded; failed: boolean }> {
    let row: ProviderUsage;
    try {
      const loaded = await provider.load(loading);
      if (loaded) return { loaded, failed: loaded(null).credentials.some(({ message }) => message !== null) };
      row = providerUsage(provider, { status: 'not_configured' });
    } catch (error) {
      const message = error instanceof RelayError ? error.message : `Could not load ${provider.displayName} usage`;
      log.debug(`${provider.id}: ${message}`);
      row = providerUsage(provider, { status: 'unavailable', message, fetched_at: loading.fetchedAt });
    }
    return { loaded: () => row, failed: row.status === 'unavailable' };
  }

  return {
    async report({ profile, sessionId }) {
      const home = await homeOf(profile);
      const id = sessionId.trim();
      const [{ fetchedAt, loaded }, active] = await Promise.all([
        snapshotOf(home),
        id === '' ? null : readActiveCredential(host.files, home, id, clock.now()),
      ]);
      return {
        schema_version: 2,
        fetched_at: fetchedAt,
        capabilities: CAPABILITIES,
        providers: loaded.map((present) => present(active)),
      };
    },
  };
}

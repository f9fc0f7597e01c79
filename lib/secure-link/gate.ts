import { isSuccess, type Upstream } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { parseObject } from '../kit/json.ts';
import { decodeUtf8 } from '../kit/text.ts';
import { withDeadline } from '../kit/timeouts.ts';
import { readUpTo } from '../web/streams.ts';

/** Milliseconds for one probe, and for which its result is valid. */
const PROBE_TIMEOUT = 3_000;
const MAX_AGE = 15_000;
/** Milliseconds after which a result no longer serves callers during the next probe, so that a disabled gate stays shut. */
const MAX_STALE = 30_000;
/** Bytes of a dashboard's health. */
const MAX_BODY = 64 * 1024;

/** Availability of the servers behind Secure Link. */
export interface Availability {
  /** The API server is healthy. */
  api: boolean;
  /** True if the dashboard confirms that its users have to sign in. */
  dashboard: boolean;
}

export interface GateDeps {
  api: URL;
  dashboard: URL;
  upstream: Upstream;
  clock: Clock;
}

export type Gate = ReturnType<typeof createGate>;

export function createGate({ api, dashboard, upstream, clock }: GateDeps) {
  let last: { value: Availability; at: number } | undefined;
  let probing: Promise<Availability> | undefined;

  const youngerThan = (age: number): Availability | null =>
    last && clock.monotonic() - last.at < age ? last.value : null;

  async function probe(): Promise<Availability> {
    const by = { upstream, clock };
    const [isHealthy, isGated] = await Promise.all([isApiHealthy(api, by), isDashboardGated(dashboard, by)]);
    const value = { api: isHealthy, dashboard: isGated };
    last = { value, at: clock.monotonic() };
    probing = undefined;
    return value;
  }

  return {
    /** The last result while it is valid; null if `check` is needed. */
    known: () => youngerThan(MAX_AGE),

    /**
     * Probes both servers, in parallel and at most once in 15 s, for any number of callers. The caller that starts a probe
     * waits for it; others get the previous result, unless it is older than 30 s (contract 08 §3). Never rejects.
     */
    async check(): Promise<Availability> {
      const fresh = youngerThan(MAX_AGE);
      if (fresh) return fresh;
      if (probing) return youngerThan(MAX_STALE) ?? probing;
      probing = probe();
      return probing;
    },
  };
}

/** Probes whether a server behind Secure Link may be used. Never rejects. */
export type Probe = (server: URL, by: Pick<GateDeps, 'upstream' | 'clock'>) => Promise<boolean>;

/** True if the API server is healthy. */
export const isApiHealthy: Probe = async (api, by) => (await get(below(api, '/health'), isSuccess, by)) !== null;

/** True if the dashboard confirms that its users have to sign in. */
export const isDashboardGated: Probe = async (dashboard, by) => {
  const health = await get(below(dashboard, '/api/health'), (status) => status === 200, by);
  return health !== null && parseObject(health)?.auth_required === true;
};

/** Reads a whole answer; null if it is too large, late or failed. */
async function get(
  url: string,
  accepts: (status: number) => boolean,
  { upstream, clock }: Pick<GateDeps, 'upstream' | 'clock'>,
): Promise<string | null> {
  const headers = { accept: 'application/json' };
  return withDeadline({ clock, timeout: PROBE_TIMEOUT }, async (signal) => {
    const { status, body } = await upstream({ method: 'GET', url, headers, signal });
    if (!accepts(status)) return null;
    const bytes = await readUpTo(body, MAX_BODY + 1);
    return bytes.length > MAX_BODY ? null : decodeUtf8(bytes);
  }).catch(() => null);
}

const below = ({ origin, pathname }: URL, path: string): string => origin + pathname.replace(/\/$/, '') + path;

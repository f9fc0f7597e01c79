import { type CallRelay, OtherPeer } from '../../host/dial.ts';
import type { Cancel, Clock } from '../../kit/clock.ts';
import { parseObject } from '../../kit/json.ts';
import { decodeUtf8 } from '../../kit/text.ts';
import { betterThan, checkPin, type Endpoint, routesOf } from './endpoints.ts';
import { routeTo } from './reach.ts';
import type { Pairing } from './settings-document.ts';

/** Time between probes, ms. It doubles with every probe, so that an unstable route does not make the link flap. */
export const FIRST_PROBE = 60_000;
const MAX_PROBE_WAIT = 15 * 60_000;
/** Once the best route has lasted this long, the next fallback starts from the shortest wait again. */
export const SETTLED_AFTER = 5 * 60_000;
/** Timeout of a probe, ms (contract 08 §3). */
const PROBE_TIMEOUT = 4000;
const MAX_HEALTH_BYTES = 64 * 1024;

export interface BetterRouteDeps {
  callRelay: CallRelay;
  clock: Clock;
  pairing(): Pairing | null;
  /** True if the link may be moved now; moving loses requests in flight. */
  isIdle(): boolean;
  /** False after the edge has said on its mailbox that home is off, in which case Reach is not tried from there. */
  isHomeOn(): boolean;
  /** A better endpoint has answered. */
  onBetter(endpoint: Endpoint): void;
  /** Another relay answers at a pinned endpoint. Called once per endpoint and link. */
  onOtherPeer(endpoint: Endpoint, reason: string): void;
}

/**
 * While the link is not on its best route, probes whether a better one works again. A probe sends no credential and
 * uses no broker. Call the result whenever the link is online; it returns the cancellation.
 */
export function createBetterRouteWatch(deps: BetterRouteDeps): (current: Endpoint) => Cancel {
  const { clock } = deps;
  let wait = FIRST_PROBE;

  return function watch(current) {
    const ended = new AbortController();
    const reported = new Set<string>();
    let cancelTimer: Cancel = () => {};
    const better = () => {
      const pairing = deps.pairing();
      const all = pairing ? betterThan(current, routesOf(pairing)) : [];
      return all.filter(({ broker }) => !broker || current.mailbox);
    };

    async function attempt(): Promise<void> {
      wait = Math.min(wait * 2, MAX_PROBE_WAIT);
      for (const endpoint of better()) {
        // Only the link itself connects to a broker, and need not while home is off.
        if (endpoint.broker) {
          if (deps.isHomeOn() && deps.isIdle()) return deps.onBetter(endpoint);
          continue;
        }
        const isThere =
          deps.isIdle() && (await answers(endpoint, deps, ended.signal).catch((error) => refused(endpoint, error)));
        if (ended.signal.aborted) return;
        if (isThere && deps.isIdle()) return deps.onBetter(endpoint);
      }
      plan();
    }

    function refused(endpoint: Endpoint, error: unknown): false {
      if (!ended.signal.aborted && error instanceof OtherPeer && !reported.has(endpoint.url)) {
        reported.add(endpoint.url);
        deps.onOtherPeer(endpoint, error.message);
      }
      return false;
    }

    function plan(): void {
      cancelTimer = clock.after(wait, () => void attempt());
    }

    if (better().length > 0) plan();
    else {
      cancelTimer = clock.after(SETTLED_AFTER, () => {
        wait = FIRST_PROBE;
      });
    }
    return () => {
      ended.abort();
      cancelTimer();
    };
  };
}

/** Checks that a relay answers there with the expected key. Rejects otherwise. */
async function answers(
  endpoint: Endpoint,
  { callRelay, clock, pairing }: BetterRouteDeps,
  signal: AbortSignal,
): Promise<boolean> {
  const deadline = new AbortController();
  const cancel = clock.after(PROBE_TIMEOUT, () => deadline.abort());
  try {
    const { status, bytes } = await callRelay({
      socketUrl: endpoint.url,
      route: routeTo(endpoint, null, 0),
      refuse(spki) {
        const check = checkPin(pairing()?.tofu_pins ?? {}, endpoint, spki);
        return check.kind === 'refused' ? check.reason : null;
      },
      method: 'GET',
      path: '/health',
      headers: {},
      limit: MAX_HEALTH_BYTES,
      signal: AbortSignal.any([deadline.signal, signal]),
    });
    return status === 200 && parseObject(decodeUtf8(bytes))?.status === 'ok';
  } finally {
    cancel();
  }
}

import { type CallRelay, OtherPeer } from '../../host/dial.ts';
import type { Cancel, Clock } from '../../kit/clock.ts';
import { parseObject } from '../../kit/json.ts';
import { decodeUtf8 } from '../../kit/text.ts';
import { betterThan, checkPin, type Endpoint, routesOf } from './endpoints.ts';
import { routeTo } from './reach.ts';
import type { Pairing } from './settings-document.ts';

/** Time between probes, ms: doubles with every one, so that a route that comes and goes does not make the link flap. */
export const FIRST_PROBE = 60_000;
export const MAX_PROBE_WAIT = 15 * 60_000;
/** Once the best route has lasted this long, the next fallback starts from the shortest wait again. */
export const SETTLED_AFTER = 5 * 60_000;
/** Deadline of a probe (contract 08 §3). */
const PROBE_TIMEOUT = 4000;
const MAX_HEALTH_BYTES = 64 * 1024;

export interface BetterRouteParts {
  callRelay: CallRelay;
  clock: Clock;
  pairing(): Pairing | null;
  /** True if the link may be moved now, which loses requests in flight on it. */
  isIdle(): boolean;
  /** True while home is on, as the edge says on its mailbox: only then is Reach tried from there. */
  isHomeOn(): boolean;
  /** A better endpoint answers. */
  onBetter(endpoint: Endpoint): void;
  /** Somebody else answers at a pinned endpoint. Called once per endpoint and link. */
  onOtherPeer(endpoint: Endpoint, reason: string): void;
}

/**
 * Watches from a route that is not the best one for a better one to work again. A probe sends no credential, and asks no
 * broker. Call the result whenever the link is online; it returns the cancellation.
 */
export function createBetterRouteWatch(parts: BetterRouteParts): (current: Endpoint) => Cancel {
  const { clock } = parts;
  let wait = FIRST_PROBE;

  return function watch(current) {
    const ended = new AbortController();
    const reported = new Set<string>();
    let cancelTimer: Cancel = () => {};
    const better = () => {
      const pairing = parts.pairing();
      const all = pairing ? betterThan(current, routesOf(pairing)) : [];
      return all.filter(({ broker }) => !broker || current.mailbox);
    };

    async function attempt(): Promise<void> {
      wait = Math.min(wait * 2, MAX_PROBE_WAIT);
      for (const endpoint of better()) {
        // A broker is asked by the link alone, and for a home that is off it need not be.
        if (endpoint.broker) {
          if (parts.isHomeOn() && parts.isIdle()) return parts.onBetter(endpoint);
          continue;
        }
        const isThere =
          parts.isIdle() && (await answers(endpoint, parts, ended.signal).catch((error) => refused(endpoint, error)));
        if (ended.signal.aborted) return;
        if (isThere && parts.isIdle()) return parts.onBetter(endpoint);
      }
      plan();
    }

    function refused(endpoint: Endpoint, error: unknown): false {
      if (!ended.signal.aborted && error instanceof OtherPeer && !reported.has(endpoint.url)) {
        reported.add(endpoint.url);
        parts.onOtherPeer(endpoint, error.message);
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

/**
 * Checks that a relay answers there, with the key that belongs there. Rejects when nobody answers, or somebody else.
 */
async function answers(
  endpoint: Endpoint,
  { callRelay, clock, pairing }: BetterRouteParts,
  signal: AbortSignal,
): Promise<boolean> {
  const late = new AbortController();
  const cancel = clock.after(PROBE_TIMEOUT, () => late.abort());
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
      signal: AbortSignal.any([late.signal, signal]),
    });
    return status === 200 && parseObject(decodeUtf8(bytes))?.status === 'ok';
  } finally {
    cancel();
  }
}

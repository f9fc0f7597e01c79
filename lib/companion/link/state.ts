import { backoff, rateLimitWait } from './backoff.ts';
import type { Endpoint } from './endpoints.ts';

/** What the relay said when it let this device in. */
export interface RelayFacts {
  serverVersion: string;
  /** Epoch seconds; null = never. */
  expiresAt: number | null;
  grants: Record<string, number | null>;
}

export type LinkState =
  /** There are no credentials, or the relay has refused them; nothing happens until this device is paired again. */
  | { name: 'unpaired'; reason?: string }
  /** `after` is why the endpoint before in this round was left. */
  | { name: 'connecting'; endpoint: Endpoint; after?: string }
  | { name: 'authenticating'; endpoint: Endpoint }
  /** `since` is monotonic milliseconds. */
  | { name: 'online'; endpoint: Endpoint; since: number; relay: RelayFacts }
  /** Until the next round, in milliseconds from when it began. */
  | { name: 'waiting'; reason: string; wait: number; rateLimited: boolean }
  | { name: 'stopped' };

export type LinkEvent =
  | { name: 'start' }
  /** The socket is open and its certificate is the right one. */
  | { name: 'open' }
  /** `auth.ok`, and what it issued is stored. */
  | { name: 'accepted'; relay: RelayFacts }
  /** `auth.fail`. */
  | { name: 'refused'; reason: string }
  /** No socket, or no longer one. */
  | { name: 'lost'; reason: string }
  /** The upgrade was answered with 429. */
  | { name: 'rate-limited' }
  /** The wait is over. */
  | { name: 'due' }
  | { name: 'stop' };

export interface Machine {
  state: LinkState;
  /** The endpoints of this round, and which of them is being tried. */
  round: readonly Endpoint[];
  index: number;
  /** Rounds in vain since the link last held. */
  failures: number;
}

/** What a transition depends on besides machine and event. */
export interface Facts {
  /** Monotonic milliseconds. */
  now: number;
  /** From [0, 1). */
  random: number;
  /** The order of a round that begins now; empty without a pairing. */
  order(): readonly Endpoint[];
}

/** A connection that did not last this long does not count as a success: the waits go on growing. */
export const STEADY = 30_000;

export const initialMachine = (): Machine => ({ state: { name: 'unpaired' }, round: [], index: 0, failures: 0 });

/**
 * The next machine; the same one when the event means nothing in this state.
 *
 * | state          | open | accepted | refused             | lost                  | rate-limited | due   |
 * |----------------|------|----------|---------------------|-----------------------|--------------|-------|
 * | connecting     | auth |          |                     | next endpoint or wait | wait 5 min   |       |
 * | authenticating |      | online   | unpaired, or a loss | next endpoint or wait |              |       |
 * | online         |      |          |                     | wait                  |              |       |
 * | waiting        |      |          |                     |                       |              | round |
 *
 * `start` begins a round from `unpaired` and `waiting`, `stop` ends every state for good.
 */
export function transition(machine: Machine, event: LinkEvent, facts: Facts): Machine {
  const { state } = machine;
  if (state.name === 'stopped') return machine;
  if (event.name === 'stop') return { ...machine, state: { name: 'stopped' } };
  switch (state.name) {
    case 'unpaired':
      return event.name === 'start' ? newRound(machine, facts) : machine;
    case 'waiting':
      return event.name === 'due' || event.name === 'start' ? newRound(machine, facts) : machine;
    case 'connecting':
      if (event.name === 'open') return { ...machine, state: { name: 'authenticating', endpoint: state.endpoint } };
      if (event.name === 'rate-limited') return rateLimited(machine, facts);
      return event.name === 'lost' ? nextEndpoint(machine, event.reason, facts) : machine;
    case 'authenticating':
      if (event.name === 'accepted') {
        const { endpoint } = state;
        return { ...machine, state: { name: 'online', endpoint, since: facts.now, relay: event.relay } };
      }
      if (event.name === 'refused' && !keepsPairing(event.reason)) {
        return { ...initialMachine(), state: { name: 'unpaired', reason: event.reason } };
      }
      return event.name === 'refused' || event.name === 'lost' ? nextEndpoint(machine, event.reason, facts) : machine;
    case 'online': {
      if (event.name !== 'lost') return machine;
      const steady = facts.now - state.since >= STEADY;
      return waiting({ ...machine, failures: steady ? 0 : machine.failures }, event.reason, facts);
    }
  }
}

/** The one refusal that is about time and not about credentials (contract 01 §3.6). */
export const keepsPairing = (reason: string): boolean => /auth/i.test(reason) && /timeout/i.test(reason);

function newRound(machine: Machine, { order }: Facts): Machine {
  const round = order();
  const [endpoint] = round;
  if (!endpoint) return { ...initialMachine(), state: { name: 'unpaired' } };
  return { ...machine, round, index: 0, state: { name: 'connecting', endpoint } };
}

/** Within a round there is no wait: another way to the same relay may be open. */
function nextEndpoint(machine: Machine, reason: string, facts: Facts): Machine {
  const index = machine.index + 1;
  const endpoint = machine.round[index];
  if (!endpoint) return waiting(machine, reason, facts);
  return { ...machine, index, state: { name: 'connecting', endpoint, after: reason } };
}

function waiting(machine: Machine, reason: string, { random }: Facts): Machine {
  const wait = backoff(machine.failures, random);
  return { ...machine, failures: machine.failures + 1, state: { name: 'waiting', reason, wait, rateLimited: false } };
}

function rateLimited(machine: Machine, { random }: Facts): Machine {
  const reason = 'the relay answers 429: too many failed attempts from here';
  return { ...machine, state: { name: 'waiting', reason, wait: rateLimitWait(random), rateLimited: true } };
}

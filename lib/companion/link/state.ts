import type { PeerKey, SocketEnd } from '../../host/dial.ts';
import {
  type Attempts,
  type Ending,
  endingOf,
  NO_ATTEMPTS,
  nextAttempt,
  type Outcome,
  type Pace,
} from '../../kit/reconnect.ts';
import type { Credentials, IssuedSession, RelayInfo } from './auth.ts';
import {
  attemptOrder,
  authority,
  checkPin,
  type Endpoint,
  endpointId,
  isSecure,
  lastEndpoint,
  type Pins,
  routesOf,
} from './endpoints.ts';
import type { PairingOffer } from './pairing-url.ts';
import { isUsable } from './reach.ts';
import type { Pairing } from './settings.ts';

/** Limits in ms. */
const CONNECT_TIMEOUT = 15_000;
/** For broker, its answer, TLS and upgrade. */
const REACH_TIMEOUT = 35_000;
/**
 * For other routes while only Reach works at this device's place, and for all routes before the mailbox (contract 12
 * §3).
 */
const BEFORE_LAST_TIMEOUT = 5000;
const AUTH_TIMEOUT = 20_000;
const RATE_LIMIT_BACKOFF = 300_000;
/** 1 s doubling to 30 s (contract 02 §8), less up to a fifth, as a person may be watching a broken link. */
export const PACE = {
  max: 30_000,
  afterBreak: { min: 200, max: 600 },
  jitter: (wait: number) => -wait / 5,
} satisfies Pace;

export type LinkState =
  /** No credentials, or the relay has refused them. Nothing happens until `start`. */
  | { name: 'unpaired'; reason?: string }
  /** `after` is the reason why the previous endpoint of this round was given up. */
  | { name: 'connecting'; endpoint: Endpoint; pins: Pins; after?: string }
  /** `pins` are stored if the relay accepts this device. */
  | { name: 'authenticating'; endpoint: Endpoint; pins: Pins; step: AuthStep }
  /** `since` is monotonic ms. */
  | { name: 'online'; endpoint: Endpoint; since: number; relay: RelayInfo }
  /** `wait` is the time until the next round, ms. */
  | { name: 'waiting'; reason: string; wait: number; rateLimited: boolean }
  | { name: 'stopped' };

/** The answer that authentication waits for. */
export type AuthStep =
  | { name: 'answer' }
  /** The issued session is being stored. `end` is set if the socket closes meanwhile. */
  | { name: 'store'; end?: SocketEnd }
  /** The refused pairing is being removed. */
  | { name: 'forget'; reason: string };

export type LinkEvent =
  | { name: 'start' }
  | { name: 'stop' }
  /** The socket is open. */
  | { name: 'opened'; spki: PeerKey }
  /** `auth.ok`; null if it lacks a usable session. */
  | { name: 'auth-ok'; session: IssuedSession | null }
  /** `auth.fail`. */
  | { name: 'auth-fail'; reason: string }
  | { name: 'stored'; relay: RelayInfo }
  | { name: 'store-failed'; reason: string }
  /** The pairing was removed, or could not be. */
  | { name: 'forgotten' }
  /** The socket has closed, or could not be opened. */
  | { name: 'closed'; end: SocketEnd }
  /** The relay no longer answers. */
  | { name: 'silent'; reason: string }
  /** A better endpoint answers again. */
  | { name: 'better'; endpoint: Endpoint }
  /** The edge reports that home is back. */
  | { name: 'home-online' }
  /** The edge, where this device has paired, has sent its home. The endpoint in use is its mailbox from now on. */
  | { name: 'home-given' }
  /** The timer of the current state has run out. */
  | { name: 'timeout' };

export type LinkEffect =
  | { name: 'report'; state: LinkState }
  /** Replaces the one timer, ms; null cancels it. */
  | { name: 'timer'; delay: number | null }
  | { name: 'dial'; endpoint: Endpoint }
  | { name: 'authenticate'; credentials: Credentials }
  /** Stores the session, as a new pairing if there is an offer. Ends in `stored` or `store-failed`. */
  | { name: 'store'; session: IssuedSession; endpoint: Endpoint; pins: Pins; offer: PairingOffer | null }
  /** Removes the stored pairing. Ends in `forgotten`. */
  | { name: 'forget' }
  /** Removes the credentials for the mailbox, which the edge does not know. Home is asked for new ones. */
  | { name: 'forget-mailbox' }
  /** Starts the heartbeat and the channels. */
  | { name: 'go-online' }
  | { name: 'disconnect'; how: Disconnect }
  | { name: 'log'; level: 'warn' | 'error'; text: string };

/** `ended`: nothing left to close. `goodbye`: a bounded close, for a link that is stopped. */
export type Disconnect = 'ended' | 'terminate' | 'close' | 'goodbye';

export interface LinkMachine {
  readonly state: LinkState;
  /** A new pairing is made with this until it is redeemed; null uses the stored pairing. */
  readonly offer: PairingOffer | null;
  /** The endpoints of the current round, and the index of the one being tried. */
  readonly round: readonly Endpoint[];
  readonly index: number;
  /** Id of the endpoint on which the link was last online. */
  readonly lastOnline: string | null;
  /** How the attempt at that endpoint ended in the current round. */
  readonly ending: Ending;
  readonly attempts: Attempts;
  /** Time since when no route has accepted this device, monotonic ms; null while one does. */
  readonly searchingSince: number | null;
  /** True if the broker has said in this round that home is not connected to it. */
  readonly isHostOffline: boolean;
}

/** Inputs of a transition besides machine and event. */
export interface LinkFacts {
  /** Monotonic ms. */
  now: number;
  /** Epoch seconds. */
  epoch: number;
  /** In [0, 1). */
  random: number;
  /** As stored now. */
  pairing: Pairing | null;
  /** True if a person is watching this device and waits for the relay. */
  isAttended?: boolean;
}

export interface Step {
  machine: LinkMachine;
  /** In the order in which they must be performed. */
  effects: LinkEffect[];
}

export const initialMachine = (offer: PairingOffer | null = null): LinkMachine => ({
  state: { name: 'unpaired' },
  offer,
  round: [],
  index: 0,
  lastOnline: null,
  ending: 'other',
  attempts: NO_ATTEMPTS,
  searchingSince: null,
  isHostOffline: false,
});

/**
 * The life cycle of the link (contract 01 §3), as a pure function: an event in, the next machine and effects out. An
 * event that does not apply to the current state returns the same machine and no effects.
 *
 * | state          | step   | event                   | next                                        |
 * |----------------|--------|-------------------------|---------------------------------------------|
 * | unpaired       |        | start                   | connecting; unpaired without a pairing      |
 * | waiting        |        | start, timeout          | connecting; unpaired without a pairing      |
 * | connecting     |        | opened, pin matches     | authenticating                              |
 * |                |        | opened, other key       | next endpoint or waiting; nothing is sent   |
 * |                |        | closed with HTTP 429    | waiting, 5 min                              |
 * |                |        | closed, timeout         | next endpoint or waiting                    |
 * | authenticating | answer | auth-ok                 | store                                       |
 * |                |        | auth-fail               | forget; unpaired if an offer was refused    |
 * |                |        | auth-fail for now       | next endpoint or waiting, pairing kept      |
 * |                |        | auth-fail of mailbox    | the same, its credentials forgotten         |
 * |                |        | auth-fail without TLS   | the same, if the round has a pinned route   |
 * |                |        | closed, timeout         | next endpoint or waiting                    |
 * |                | store  | stored                  | online; next endpoint if the socket ended   |
 * |                |        | store-failed            | next endpoint or waiting                    |
 * |                | forget | forgotten               | unpaired                                    |
 * | online         |        | closed, silent          | waiting                                     |
 * |                |        | closed, revoked, pinned | forget                                      |
 * |                |        | better                  | connecting, to that endpoint first          |
 * |                |        | home-online, at mailbox | connecting, to the other routes first       |
 * |                |        | home-given              | the same                                    |
 * | any            |        | stop                    | stopped, for good                           |
 */
export function transition(machine: LinkMachine, event: LinkEvent, facts: LinkFacts): Step {
  const { state } = machine;
  const ignored: Step = { machine, effects: [] };
  if (state.name === 'stopped') return ignored;
  if (event.name === 'stop') return stop(machine);
  switch (state.name) {
    case 'unpaired':
      return event.name === 'start' ? startRound(machine, facts) : ignored;
    case 'waiting':
      return event.name === 'timeout' || event.name === 'start' ? startRound(machine, facts) : ignored;
    case 'connecting':
      switch (event.name) {
        case 'opened':
          return opened(machine, state, event.spki, facts);
        case 'closed':
          return notConnected(machine, state, event.end, facts);
        case 'timeout': {
          const limit = connectTimeout(machine, state.endpoint, facts.pairing);
          return tryNext(machine, 'terminate', `no connection within ${limit / 1000} s`, facts);
        }
        default:
          return ignored;
      }
    case 'authenticating':
      return authenticating(machine, state, event, facts) ?? ignored;
    case 'online':
      if (event.name === 'closed' && isRevoked(event.end, state.endpoint)) {
        return revoked(machine, state.endpoint, event.end.reason, facts);
      }
      if (event.name === 'better') return goBack(machine, event.endpoint, facts);
      if (event.name === 'home-given' || (event.name === 'home-online' && state.endpoint.mailbox)) {
        return goHome(machine, state.endpoint, facts) ?? ignored;
      }
      return event.name === 'closed' || event.name === 'silent' ? lost(machine, state.since, event, facts) : ignored;
  }
}

type Connecting = Extract<LinkState, { name: 'connecting' }>;
type Authenticating = Extract<LinkState, { name: 'authenticating' }>;

/** The certificate's key is checked before anything is sent. */
function opened(machine: LinkMachine, { endpoint, pins }: Connecting, spki: PeerKey, facts: LinkFacts): Step {
  const check = checkPin(pins, endpoint, spki);
  if (check.kind === 'refused') {
    const { machine: next, effects } = tryNext(machine, 'terminate', check.reason, facts);
    return { machine: next, effects: [{ name: 'log', level: 'error', text: aboutKey(check.reason) }, ...effects] };
  }
  const { pairing } = facts;
  const credentials: Credentials = machine.offer
    ? { pairingCode: machine.offer.code, pairingSecret: machine.offer.secret }
    : ownCredentials(endpoint, pairing);
  const known = check.kind === 'first' ? check.pins : pins;
  return enter(
    machine,
    { name: 'authenticating', endpoint, pins: known, step: { name: 'answer' } },
    { timer: AUTH_TIMEOUT, start: { name: 'authenticate', credentials } },
  );
}

/** Credentials of one side are useless at the other, and are not sent to it (contract 12 §3). */
function ownCredentials({ mailbox }: Endpoint, pairing: Pairing | null): Credentials {
  const own = mailbox ? pairing?.mailbox : pairing;
  return { sessionToken: own?.session_token ?? '', refreshToken: own?.refresh_token };
}

/** Another route may still be tried, but the refusal is reported, since it may be an attack. */
function notConnected(machine: LinkMachine, { endpoint }: Connecting, end: SocketEnd, facts: LinkFacts): Step {
  if (end.status === 429) return rateLimited(machine, facts);
  const { machine: next, effects } = tryNext(withEnding(machine, endpoint, end), 'ended', describeEnd(end), facts);
  if (!end.isOtherPeer) return { machine: next, effects };
  const text = aboutKey(`${authority(endpoint.url)}: ${end.reason}`);
  return { machine: next, effects: [{ name: 'log', level: 'error', text }, ...effects] };
}

/** Message for people about a relay with an unexpected key. */
export const aboutKey = (reason: string): string =>
  `${reason}: nothing was sent. If the relay has a new certificate, pair again`;

function authenticating(machine: LinkMachine, state: Authenticating, event: LinkEvent, facts: LinkFacts): Step | null {
  const { endpoint, pins, step } = state;
  const during = (next: AuthStep): LinkMachine => ({ ...machine, state: { ...state, step: next } });
  const noTimer: LinkEffect = { name: 'timer', delay: null };

  if (step.name === 'answer') {
    switch (event.name) {
      case 'auth-ok': {
        const { session } = event;
        if (!session) return tryNext(machine, 'close', 'the relay did not issue a session', facts);
        // An issued credential is stored before it is used.
        const { offer } = machine;
        const store: LinkEffect = { name: 'store', session, endpoint, pins, offer };
        return { machine: during({ name: 'store' }), effects: [noTimer, store] };
      }
      case 'auth-fail':
        return refused(machine, endpoint, event.reason, during, facts);
      case 'closed':
        return tryNext(withEnding(machine, endpoint, event.end), 'ended', describeEnd(event.end), facts);
      case 'timeout': {
        const reason = `no answer to the authentication within ${AUTH_TIMEOUT / 1000} s`;
        return tryNext(machine, 'terminate', reason, facts);
      }
      default:
        return null;
    }
  }
  if (step.name === 'forget') {
    return event.name === 'forgotten' ? unpair(machine, step.reason) : null;
  }
  switch (event.name) {
    case 'stored': {
      // Its socket may have closed meanwhile.
      const searchingSince = step.end ? facts.now : null;
      // The code of an offer works once; from now on, the stored session is used.
      const redeemed = { ...machine, offer: null, lastOnline: endpointId(endpoint), searchingSince };
      if (step.end) return tryNext(withEnding(redeemed, endpoint, step.end), 'ended', describeEnd(step.end), facts);
      const online: LinkState = { name: 'online', endpoint, since: facts.now, relay: event.relay };
      return enter(redeemed, online, { timer: null, start: { name: 'go-online' } });
    }
    case 'store-failed':
      return tryNext(machine, 'close', event.reason, facts);
    case 'closed':
      return { machine: during({ name: 'store', end: event.end }), effects: [] };
    default:
      return null;
  }
}

function refused(
  machine: LinkMachine,
  endpoint: Endpoint,
  reason: string,
  during: (step: AuthStep) => LinkMachine,
  facts: LinkFacts,
): Step {
  if (endpoint.mailbox) return refusedByMailbox(machine, reason, facts);
  const log: LinkEffect = { name: 'log', level: 'warn', text: `the relay refused this device: ${reason}` };
  // A refused code says nothing about the stored pairing.
  const next =
    isTemporary(reason) || (!machine.offer && provesNothing(machine, endpoint))
      ? tryNext(machine, 'close', reason, facts)
      : machine.offer
        ? unpair(machine, reason)
        : {
            machine: during({ name: 'forget', reason }),
            effects: [{ name: 'timer', delay: null } as const, { name: 'forget' } as const],
          };
  return { machine: next.machine, effects: [log, ...next.effects] };
}

/** Only home decides whether this device is paired. Without its mailbox it waits for home. */
function refusedByMailbox(machine: LinkMachine, reason: string, facts: LinkFacts): Step {
  const { machine: next, effects } = tryNext(machine, 'close', `the mailbox says: ${reason}`, facts);
  return { machine: next, effects: isTemporary(reason) ? effects : [{ name: 'forget-mailbox' }, ...effects] };
}

/**
 * A session that the relay has revoked (contract 02 §9). On other routes, `auth.fail` of the next connection says so.
 * But a broker does not let a revoked device through to its relay, and on a pinned route the relay itself has said
 * this.
 */
const isRevoked = ({ code, reason }: SocketEnd, { pinned }: Endpoint): boolean =>
  code === 4401 && reason === 'session revoked' && pinned !== undefined;

function revoked(machine: LinkMachine, endpoint: Endpoint, reason: string, { pairing }: LinkFacts): Step {
  const pins = pairing?.tofu_pins ?? {};
  return {
    machine: { ...machine, state: { name: 'authenticating', endpoint, pins, step: { name: 'forget', reason } } },
    effects: [
      { name: 'disconnect', how: 'ended' },
      { name: 'timer', delay: null },
      { name: 'log', level: 'warn', text: `the relay has ended the session of this device: ${reason}` },
      { name: 'forget' },
    ],
  };
}

/** A refusal that does not concern the credentials, which may be accepted later (contract 01 §3.6, §6.7). */
const isTemporary = (reason: string): boolean =>
  (/auth/i.test(reason) && /timeout/i.test(reason)) || /try again later/i.test(reason);

/** True if the relay refuses temporarily because the clock of its machine may be wrong (contract 11 §2). */
export const isAboutClock = (reason: string): boolean => isTemporary(reason) && /\bclock\b/i.test(reason);

/**
 * Away from home, the plain address of the relay may belong to a stranger's, whose refusal must not remove a pairing
 * that has a route on which the relay proves its identity.
 */
const provesNothing = ({ round }: LinkMachine, { url }: Endpoint): boolean =>
  !isSecure(url) && round.some(({ pinned }) => pinned !== undefined);

interface Entry {
  disconnect?: Disconnect;
  /** Maximum milliseconds in the new state; null for no limit. */
  timer: number | null;
  /** First effect of the new state. */
  start?: LinkEffect;
}

/** Enters a state: closes the old socket, sets the timer, reports, then starts the work of the new state. */
function enter(machine: LinkMachine, state: LinkState, { disconnect, timer, start }: Entry): Step {
  return {
    machine: { ...machine, state },
    effects: [
      ...(disconnect ? [{ name: 'disconnect', how: disconnect } as const] : []),
      { name: 'timer', delay: timer },
      { name: 'report', state },
      ...(start ? [start] : []),
    ],
  };
}

function stop(machine: LinkMachine): Step {
  const { machine: stopped, effects } = enter(machine, { name: 'stopped' }, { timer: null });
  return { machine: stopped, effects: [...effects, { name: 'disconnect', how: 'goodbye' }] };
}

const unpair = ({ offer }: LinkMachine, reason: string): Step =>
  enter(initialMachine(offer), { name: 'unpaired', reason }, { disconnect: 'close', timer: null });

function startRound(machine: LinkMachine, { now, pairing, epoch }: LinkFacts): Step {
  const { offer } = machine;
  const all = offer ? offer.endpoints : pairing ? attemptOrder(routesOf(pairing), pairing.last_good) : [];
  const usable = all.filter((endpoint) => isUsable(endpoint, pairing, epoch));
  // If there is nothing else, an expired credential is tried, so that the broker's answer is shown.
  const round = usable.length > 0 ? usable : all;
  const [endpoint] = round;
  if (!endpoint) return enter(initialMachine(offer), { name: 'unpaired' }, { timer: null });
  const searchingSince = machine.searchingSince ?? now;
  const next = { ...machine, round, index: 0, ending: 'other', searchingSince, isHostOffline: false } as const;
  return connect(next, endpoint, pairing, {});
}

/** Tries the better endpoint, then all others, since an endpoint that answers a probe may still refuse the socket. */
function goBack(machine: LinkMachine, better: Endpoint, { pairing, epoch }: LinkFacts): Step {
  const others = pairing ? attemptOrder(routesOf(pairing), pairing.last_good) : [];
  const usable = others.filter(
    (endpoint) => endpointId(endpoint) !== endpointId(better) && isUsable(endpoint, pairing, epoch),
  );
  const round = [better, ...usable];
  // It may leave the mailbox for this round, and returns to it without a wait.
  const next = { ...machine, round, index: 0, ending: 'other', searchingSince: Number.NEGATIVE_INFINITY } as const;
  return connect(next, better, pairing, { disconnect: 'close' });
}

/**
 * From the mailbox to the best other route, and back to the mailbox if none works. Null without another route. Once a
 * relay has become the mailbox of this device, that mailbox is another route.
 */
function goHome(machine: LinkMachine, from: Endpoint, facts: LinkFacts): Step | null {
  const { pairing, epoch } = facts;
  const routes = pairing === null ? [] : from.mailbox ? pairing.endpoints : routesOf(pairing);
  const best = attemptOrder(routes).find((endpoint) => isUsable(endpoint, pairing, epoch));
  return best ? goBack(machine, best, facts) : null;
}

function connectTimeout({ offer, round }: LinkMachine, endpoint: Endpoint, pairing: Pairing | null): number {
  if (!endpoint.mailbox && round.some(({ mailbox }) => mailbox)) return BEFORE_LAST_TIMEOUT;
  if (endpoint.broker) return REACH_TIMEOUT;
  const last = pairing && !offer ? lastEndpoint(pairing.endpoints, pairing.last_good) : undefined;
  return last?.broker ? BEFORE_LAST_TIMEOUT : CONNECT_TIMEOUT;
}

/** Milliseconds until the mailbox is tried, since home may only be restarting (contract 12 §3). */
function untilMailbox({ searchingSince, isHostOffline }: LinkMachine, { now }: LinkFacts): number {
  return isHostOffline || searchingSince === null ? 0 : Math.max(0, searchingSince + BEFORE_LAST_TIMEOUT - now);
}

/** Tries the next endpoint at once, since it may work although this one does not; waits if none is left. */
function tryNext(machine: LinkMachine, disconnect: Disconnect, reason: string, facts: LinkFacts): Step {
  const index = machine.index + 1;
  const endpoint = machine.round[index];
  if (!endpoint || (endpoint.mailbox && untilMailbox(machine, facts) > 0)) {
    return backOff(machine, disconnect, reason, facts);
  }
  return connect({ ...machine, index }, endpoint, facts.pairing, { disconnect, after: reason });
}

function connect(
  machine: LinkMachine,
  endpoint: Endpoint,
  pairing: Pairing | null,
  { disconnect, after }: { disconnect?: Disconnect; after?: string },
): Step {
  // A new pairing starts with no pins (spec 2.1).
  const pins = machine.offer ? {} : (pairing?.tofu_pins ?? {});
  const state: LinkState = { name: 'connecting', endpoint, pins, ...(after !== undefined && { after }) };
  const timer = connectTimeout(machine, endpoint, pairing);
  return enter(machine, state, { disconnect, timer, start: { name: 'dial', endpoint } });
}

/** As worded in `reach.ts`. */
const HOST_OFFLINE = /\(host_offline\)/;

/** A failure of another endpoint does not concern the relay that answered a moment ago. */
function withEnding(machine: LinkMachine, endpoint: Endpoint, end: SocketEnd): LinkMachine {
  const { lastOnline, round } = machine;
  const isTheRelay = lastOnline === null ? round.length === 1 : endpointId(endpoint) === lastOnline;
  const isHostOffline = machine.isHostOffline || (endpoint.broker !== undefined && HOST_OFFLINE.test(end.reason));
  return { ...machine, isHostOffline, ...(isTheRelay && { ending: endingOf(end) }) };
}

function lost(
  machine: LinkMachine,
  since: number,
  event: Extract<LinkEvent, { name: 'closed' | 'silent' }>,
  facts: LinkFacts,
): Step {
  const outcome = {
    ending: event.name === 'closed' ? endingOf(event.end) : 'broken',
    lasted: facts.now - since,
  } as const;
  if (event.name === 'silent') return backOff(machine, 'terminate', event.reason, facts, outcome);
  return backOff(machine, 'ended', describeEnd(event.end), facts, outcome);
}

function backOff(
  machine: LinkMachine,
  disconnect: Disconnect,
  reason: string,
  facts: LinkFacts,
  outcome: Outcome = { ending: machine.ending, lasted: null },
): Step {
  const { attempts, wait: planned } = nextAttempt(machine.attempts, outcome, facts, PACE);
  const searchingSince = machine.searchingSince ?? facts.now;
  const next = { ...machine, attempts, searchingSince };
  const left = machine.round.some(({ mailbox }) => mailbox) ? untilMailbox(next, facts) : 0;
  const wait = left > 0 ? Math.min(planned, left) : planned;
  const state: LinkState = { name: 'waiting', reason, wait, rateLimited: false };
  return enter(next, state, { disconnect, timer: wait });
}

function rateLimited(machine: LinkMachine, { random }: LinkFacts): Step {
  const reason = 'the relay answers 429: too many failed attempts from here';
  const wait = rateLimitBackoff(random);
  return enter(machine, { name: 'waiting', reason, wait, rateLimited: true }, { disconnect: 'ended', timer: wait });
}

/** Wait after a 429, ms: five minutes (contract 01 §3.1) plus a random part of up to a tenth. */
export const rateLimitBackoff = (random: number): number => Math.round(RATE_LIMIT_BACKOFF * (1 + 0.1 * random));

function describeEnd({ code, reason, status }: SocketEnd): string {
  if (status !== undefined) return `the upgrade was answered with HTTP ${status}`;
  if (code === 1006) return reason || 'the connection broke';
  return reason === '' ? `closed (${code})` : `closed (${code} ${reason})`;
}

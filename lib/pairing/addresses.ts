import { describeError } from '../errors.ts';
import type { HostNetwork } from '../host/index.ts';
import { canonicalAddress, isLoopbackName } from '../kit/addresses.ts';
import { sha256 } from '../kit/bytes.ts';
import { type Cancel, type Clock, every } from '../kit/clock.ts';
import type { JsonObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Candidate } from './candidates.ts';
import { isStillOwn, routesOf } from './known-routes.ts';

/** Milliseconds between two looks at the interfaces: no system tells a program of Node that they changed. */
const PERIOD = 30_000;
/** Milliseconds after the start until the first look: Secure Link is part of the routes, and begins after the relay. */
const FIRST = 2_000;

export interface AddressesParts {
  network: Pick<HostNetwork, 'addresses'>;
  /** The routes that a pairing code would name now. */
  candidates(): Promise<Candidate[]>;
  /** The port of the relay's listener. */
  port(): number;
  /** The URL of Secure Link, while there is one. */
  linkUrl(): string | undefined;
  /** The URL of the mailbox at the edge, while there is one. */
  mailboxUrl(): string | undefined;
  /** Credentials for it that a device has yet to get. */
  mailbox(session: Session): { mailbox: JsonObject; taken(): void } | undefined;
  sessions: Pick<Sessions, 'list' | 'setRoutes'>;
  isConnected(session: Session): boolean;
  /** The routes of now may be others. */
  changed?(): void;
  /** Sends a `pairing` message to every socket of a session. */
  send(session: Session, message: RoutesMessage): void;
  clock: Clock;
  log: Log;
}

/** A `pairing` message. `taken` is called when a client has shown that it came. */
export interface RoutesMessage {
  type: 'routes.updated';
  payload: { endpoints: Candidate[]; mailbox?: JsonObject };
  taken(): void;
}

/** Addresses that this machine has no more, and the devices that know no other route (contract 11 §2). */
export interface GoneAddresses {
  urls: string[];
  devices: { token_prefix: string; device_name: string }[];
}

export type Addresses = ReturnType<typeof createAddresses>;

/**
 * Follows the addresses of this machine (contract 11 §2). A connected device gets the routes of now when they change, and
 * one that was away then as soon as it is back.
 */
export function createAddresses(parts: AddressesParts) {
  const { network, candidates, port, sessions, clock, log } = parts;
  let current: { endpoints: Candidate[]; key: string } | undefined;
  /** Interfaces, port, Secure Link and mailbox at the last look. */
  let seen: string | undefined;
  /** The last look that found a change. */
  let following = Promise.resolve();
  let warned = '';
  let cancel: Cancel = () => {};

  const here = () => network.addresses().map((address) => canonicalAddress(address) ?? address);

  /** The message for a device whose routes are not those of now, which count as known to it once it has come. */
  function messageFor(session: Session): RoutesMessage | undefined {
    if (!current) return undefined;
    const { key, endpoints } = current;
    const { routes } = session;
    if (routes?.key === key) return undefined;
    if (routes?.key === undefined) {
      // Its code has named them, or it is of a version that did not note them.
      sessions.setRoutes(session, { ...(routes ?? { own: [], others: true }), key });
      return undefined;
    }
    // A page stays with the address that it came from.
    const known = session.device.surface === 'web' ? routes : routesOf(endpoints, [], here());
    return {
      type: 'routes.updated',
      payload: { endpoints },
      taken: () => sessions.setRoutes(session, { ...known, key }),
    };
  }

  async function look(): Promise<void> {
    const now = [...here().sort(), port(), parts.linkUrl(), parts.mailboxUrl()].join();
    if (now !== seen) {
      seen = now;
      following = follow();
    }
    await following;
    warn();
  }

  async function follow(): Promise<void> {
    const endpoints = await candidates().catch((error) => {
      // The next look tries again.
      seen = undefined;
      log.debug(`the routes to this relay cannot be found out: ${describeError(error)}`);
      return [];
    });
    // Without a network there is nothing to say; it may be back in a moment.
    if (endpoints.length > 0) current = { endpoints, key: sha256(JSON.stringify(endpoints)).slice(0, 16) };
    parts.changed?.();
    for (const session of sessions.list()) {
      if (!parts.isConnected(session)) continue;
      const message = messageFor(session);
      if (message) parts.send(session, message);
    }
  }

  /** Gives a connected device its credentials for the mailbox, with the routes of now (contract 12 §3). */
  async function giveMailbox(session: Session): Promise<void> {
    if (!parts.isConnected(session)) return;
    await look();
    const given = parts.mailbox(session);
    if (!given || !current || !parts.isConnected(session)) return;
    const { taken = () => {} } = messageFor(session) ?? {};
    parts.send(session, {
      type: 'routes.updated',
      payload: { endpoints: current.endpoints, mailbox: given.mailbox },
      taken: () => {
        given.taken();
        taken();
      },
    });
  }

  function warn(): void {
    const lines = gone().map(({ urls, devices }) => {
      const names = devices.map(({ device_name: name }) => name);
      const rest = names.length > 5 ? ` and ${names.length - 5} more` : '';
      return `${urls.join(' and ')} is no address of this machine any more, and ${names.slice(0, 5).join(', ')}${rest} knows no other: pair again`;
    });
    if (lines.join() === warned) return;
    warned = lines.join();
    for (const line of lines) log.warn(line);
  }

  function gone(): GoneAddresses[] {
    const addresses = new Set(here());
    if (![...addresses].some((address) => !isLoopbackName(address))) return [];
    const found = new Map<string, GoneAddresses>();
    for (const session of sessions.list()) {
      const { own = [], others = true } = session.routes ?? {};
      if (others || own.length === 0 || parts.isConnected(session)) continue;
      if (own.some((url) => isStillOwn(url, addresses, port()))) continue;
      const entry = found.get(own.join()) ?? { urls: own, devices: [] };
      entry.devices.push({ token_prefix: session.prefix, device_name: session.device.name });
      found.set(own.join(), entry);
    }
    return [...found.values()];
  }

  return {
    gone,

    /** Routes for a device that has just authenticated with outdated ones. */
    greeting: messageFor,

    giveMailbox,

    /** The routes of now, best first. */
    async endpoints(): Promise<Candidate[]> {
      await look();
      return current?.endpoints ?? [];
    },

    /** Looks at the interfaces now. */
    look,

    start(): void {
      const failed = (error: unknown) => log.error(`looking at the network failed: ${describeError(error)}`);
      cancel = clock.after(FIRST, () => {
        cancel = every(clock, PERIOD, look, failed);
        void look().catch(failed);
      });
    },

    stop: () => cancel(),
  };
}

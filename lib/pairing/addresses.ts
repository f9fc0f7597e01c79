import { describeError } from '../errors.ts';
import type { HostNetwork } from '../host/index.ts';
import { canonicalAddress, isLoopbackName } from '../kit/addresses.ts';
import { type Cancel, type Clock, every } from '../kit/clock.ts';
import { createEvent } from '../kit/event.ts';
import type { JsonObject } from '../kit/json.ts';
import { sha256 } from '../kit/sha256.ts';
import type { Log } from '../log.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Candidate } from './candidates.ts';
import { isStillOwn, routesOf } from './known-routes.ts';

/** Milliseconds between two checks of the interfaces, since Node offers no notification of changes. */
const PERIOD = 30_000;
/** Milliseconds after the start until the first check: Secure Link is part of the routes, and starts after the relay. */
const FIRST = 2_000;

export interface AddressesDeps {
  network: Pick<HostNetwork, 'addresses'>;
  /** The routes that a pairing code would contain now. */
  candidates(): Promise<Candidate[]>;
  /** The port of the relay's listener. */
  port(): number;
  /** The URL of Secure Link, if available. */
  linkUrl(): string | undefined;
  /** The URL of the mailbox at the edge, if there is one. */
  mailboxUrl(): string | undefined;
  /** Credentials for the mailbox that a device has not received yet. */
  mailbox(session: Session): { mailbox: JsonObject; onDelivered(): void } | undefined;
  sessions: Pick<Sessions, 'list' | 'setRoutes'>;
  isConnected(session: Session): boolean;
  /** Sends a `pairing` message to every socket of a session. */
  send(session: Session, message: RoutesMessage): void;
  clock: Clock;
  log: Log;
}

/** A `pairing` message. `onDelivered` is called once a client has shown that it arrived. */
export interface RoutesMessage {
  type: 'routes.updated';
  payload: { endpoints: Candidate[]; mailbox?: JsonObject };
  onDelivered(): void;
}

/** Addresses that this machine no longer has, and the devices that know no other route (contract 11 §2). */
export interface GoneAddresses {
  urls: string[];
  devices: { token_prefix: string; device_name: string }[];
}

export type Addresses = ReturnType<typeof createAddresses>;

/**
 * Follows the addresses of this machine (contract 11 §2). A connected device gets the new routes when they change, and an
 * absent one as soon as it reconnects.
 */
export function createAddresses(deps: AddressesDeps) {
  const { network, candidates, port, sessions, clock, log } = deps;
  const changes = createEvent<[]>();
  let current: { endpoints: Candidate[]; key: string } | undefined;
  /** Interfaces, port, Secure Link and mailbox at the last check. */
  let seen: string | undefined;
  /** The last check that found a change. */
  let following = Promise.resolve();
  let warned = '';
  let cancel: Cancel = () => {};

  const here = () => network.addresses().map((address) => canonicalAddress(address) ?? address);

  /** The message for a device with outdated routes, which count as updated once the message has arrived. */
  function messageFor(session: Session): RoutesMessage | undefined {
    if (!current) return undefined;
    const { key, endpoints } = current;
    const { routes } = session;
    if (routes?.key === key) return undefined;
    if (routes?.key === undefined) {
      // Its pairing code contained them, or its version did not record them.
      sessions.setRoutes(session, { ...(routes ?? { own: [], others: true }), key });
      return undefined;
    }
    // A page keeps the address that it was loaded from.
    const known = session.device.surface === 'web' ? routes : routesOf(endpoints, [], here());
    return {
      type: 'routes.updated',
      payload: { endpoints },
      onDelivered: () => sessions.setRoutes(session, { ...known, key }),
    };
  }

  async function update(): Promise<void> {
    const now = [...here().sort(), port(), deps.linkUrl(), deps.mailboxUrl()].join();
    if (now !== seen) {
      seen = now;
      // One after another, since a search that takes longer must not replace what a later one has found.
      following = following.then(follow, follow);
    }
    await following;
    warn();
  }

  async function follow(): Promise<void> {
    const endpoints = await candidates().catch((error) => {
      // The next check tries again.
      seen = undefined;
      log.debug(`the routes to this relay cannot be found out: ${describeError(error)}`);
      return [];
    });
    // Without a network there are no routes to send; it may return in a moment.
    if (endpoints.length > 0) current = { endpoints, key: sha256(JSON.stringify(endpoints)).slice(0, 16) };
    changes.emit();
    for (const session of sessions.list()) {
      if (!deps.isConnected(session)) continue;
      const message = messageFor(session);
      if (message) deps.send(session, message);
    }
  }

  /** Sends a connected device its credentials for the mailbox, with the present routes (contract 12 §3). */
  async function giveMailbox(session: Session): Promise<void> {
    if (!deps.isConnected(session)) return;
    await update();
    const given = deps.mailbox(session);
    if (!given || !current || !deps.isConnected(session)) return;
    const { onDelivered = () => {} } = messageFor(session) ?? {};
    deps.send(session, {
      type: 'routes.updated',
      payload: { endpoints: current.endpoints, mailbox: given.mailbox },
      onDelivered: () => {
        given.onDelivered();
        onDelivered();
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
      if (others || own.length === 0 || deps.isConnected(session)) continue;
      if (own.some((url) => isStillOwn(url, addresses, port()))) continue;
      const entry = found.get(own.join()) ?? { urls: own, devices: [] };
      entry.devices.push({ token_prefix: session.prefix, device_name: session.device.name });
      found.set(own.join(), entry);
    }
    return [...found.values()];
  }

  return {
    /** Calls back when the routes of now may be others. */
    onChange: changes.on,

    gone,

    /** The message for a device that has just authenticated with outdated routes. */
    greeting: messageFor,

    giveMailbox,

    /** The present routes, best first. */
    async endpoints(): Promise<Candidate[]> {
      await update();
      return current?.endpoints ?? [];
    },

    /** Checks the interfaces now. */
    update,

    start(): void {
      const failed = (error: unknown) => log.error(`looking at the network failed: ${describeError(error)}`);
      cancel = clock.after(FIRST, () => {
        cancel = every(clock, PERIOD, update, failed);
        void update().catch(failed);
      });
    },

    stop: () => cancel(),
  };
}

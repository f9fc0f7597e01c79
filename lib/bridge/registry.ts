import type { Link } from '../dispatch/link.ts';
import type { Payload } from '../socket/envelope.ts';
import { type Identity, identify } from './identity.ts';
import { theOne } from './selection.ts';

/** A phone that has reported itself on a socket (contract 03 §1.2). Times are epoch milliseconds. */
export interface Device extends Identity {
  readonly link: Link;
  connectedAt: number;
  lastSeenAt: number;
  /** Its last report, as sent. */
  status: Payload;
}

export interface RegistryParts {
  now(): number;
  /** Whether the socket's session may be sent commands now. */
  isEligible(link: Link): boolean;
}

export type Registry = ReturnType<typeof createRegistry>;

/** Devices that went, kept so that they need not wait for their next report when they come back. */
const MAX_GONE = 64;

/**
 * The phones that are connected, and which of them gets a call that names none (contract 03 §1.2, 1.5, 3). Who is
 * there is known by device id and by socket: neither a report nor an answer looks through the others.
 */
export function createRegistry({ now, isEligible }: RegistryParts) {
  const devices = new Map<string, Device>();
  const byLink = new Map<Link, Device>();
  /** Sockets whose device moved to another socket, and its id. */
  const superseded = new WeakMap<Link, string>();
  const gone = new Map<string, Pick<Device, 'status' | 'lastSeenAt'> & { family: string }>();
  const chosen: { active: string | null; recent: string | null } = { active: null, recent: null };
  let newest: Device | undefined;

  const eligible = (id: string | null): Device | undefined => {
    const device = id === null ? undefined : devices.get(id);
    return device && isEligible(device.link) ? device : undefined;
  };

  /** Eligible devices, the one seen last first. */
  const list = (): Device[] =>
    [...devices.values()].filter(({ link }) => isEligible(link)).sort((a, b) => b.lastSeenAt - a.lastSeenAt);

  /** An id that only a payload gives must not be another session's device, nor look like a socket's. */
  const mayClaim = (id: string, link: Link): boolean =>
    !id.startsWith('ws-') && (devices.get(id)?.link.session.family ?? link.session.family) === link.session.family;

  function forget(device: Device): void {
    byLink.delete(device.link);
    if (devices.get(device.id) === device) devices.delete(device.id);
  }

  function register(link: Link, status: Payload, seenAt: number): { device: Device; replaced?: Device } | undefined {
    const identity = identify(link.session.device, status, link.id, (id) => mayClaim(id, link));
    const present = devices.get(identity.id);
    const replaced = present && present.link !== link ? present : undefined;
    if (replaced && superseded.get(link) === identity.id) return undefined;
    if (replaced) {
      forget(replaced);
      superseded.set(replaced.link, identity.id);
    }
    superseded.delete(link);

    const before = byLink.get(link);
    if (before && before.id !== identity.id) {
      devices.delete(before.id);
      for (const pointer of ['active', 'recent'] as const) {
        if (chosen[pointer] === before.id) chosen[pointer] = identity.id;
      }
    }
    const device: Device = Object.assign(before ?? { link, connectedAt: now() }, identity, {
      status,
      lastSeenAt: seenAt,
    });
    devices.set(device.id, device);
    byLink.set(link, device);
    gone.delete(device.id);
    if (!eligible(chosen.active)) chosen.active = device.id;
    return { device, replaced };
  }

  return {
    /** Ids of the two devices that calls without a selector look at. */
    chosen: chosen as Readonly<typeof chosen>,
    list,
    of: (link: Link): Device | undefined => byLink.get(link),
    /** The device that reported last, connected or not. */
    newest: (): Device | undefined => newest,

    /**
     * A `bridge.status` came: its sender is a device from now on, and the most recent one. Tells which device it
     * replaced on another socket; undefined when it may not, being the older socket itself.
     */
    report(link: Link, status: Payload): { device: Device; replaced?: Device } | undefined {
      const result = register(link, status, now());
      if (!result) return undefined;
      newest = result.device;
      chosen.recent = result.device.id;
      return result;
    },

    /** A device that reported earlier is back on a new socket: it is known again before its next report. */
    welcome(link: Link): Device | undefined {
      const { id, surface } = link.session.device;
      const known = surface === 'desktop' || devices.has(id) ? undefined : gone.get(id);
      if (known?.family !== link.session.family) return undefined;
      const back = register(link, known.status, known.lastSeenAt)?.device;
      if (newest?.id === id) newest = back;
      return back;
    },

    /** Takes up a device as it was before the process slept. */
    restore(link: Link, saved: { status: Payload; connectedAt: number; lastSeenAt: number }): Device | undefined {
      const device = register(link, saved.status, saved.lastSeenAt)?.device;
      if (!device) return undefined;
      device.connectedAt = saved.connectedAt;
      if (!newest || newest.lastSeenAt < device.lastSeenAt) newest = device;
      return device;
    },

    /** Takes up what was chosen before the process slept. Devices that are not there yet may be named. */
    restoreChosen(saved: { active: string | null; recent: string | null }): void {
      if (saved.active !== null && devices.has(saved.active)) chosen.active = saved.active;
      if (saved.recent !== null && devices.has(saved.recent)) chosen.recent = saved.recent;
    },

    /** Marks a socket whose device moved to another one before the process slept. */
    supersede: (link: Link, id: string): void => void superseded.set(link, id),

    /** The device answered. */
    seen(link: Link): void {
      const device = byLink.get(link);
      if (device) device.lastSeenAt = now();
    },

    /** The socket is gone, or may no longer be used. What it was moves on to the device seen last. */
    remove(link: Link): Device | undefined {
      const device = byLink.get(link);
      if (!device) return undefined;
      forget(device);
      gone.delete(device.id);
      const { status, lastSeenAt } = device;
      if (device.source === 'session') gone.set(device.id, { status, lastSeenAt, family: link.session.family });
      const [oldest] = gone.keys();
      if (gone.size > MAX_GONE && oldest !== undefined) gone.delete(oldest);
      for (const pointer of ['active', 'recent'] as const) {
        if (chosen[pointer] === device.id) chosen[pointer] = list()[0]?.id ?? null;
      }
      return device;
    },

    /** Makes a device the one for calls that name none. */
    select(device: Device): void {
      chosen.active = device.id;
    },

    /**
     * The device for a call: the one that is named; without a name the active, the most recent, the one seen last,
     * or none.
     * @throws RelayError `not-found` or `conflict` for a name that does not stand for exactly one.
     */
    choose(selector?: string): Device | undefined {
      if (selector === undefined) return eligible(chosen.active) ?? eligible(chosen.recent) ?? list()[0];
      return theOne(
        [...devices.values()].filter(({ link }) => isEligible(link)),
        selector,
      );
    },
  };
}

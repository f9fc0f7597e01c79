import type { Link } from '../dispatch/link.ts';
import type { Payload } from '../socket/envelope.ts';
import { type Identity, identify } from './identity.ts';
import { onlyMatch } from './selection.ts';

/** A phone as it last reported itself, connected or not (contract 03 §1.2). */
export interface KnownDevice extends Identity {
  /** Family and prefix of its session. */
  family: string;
  prefix: string;
  /** Its last report, as sent. */
  status: Payload;
  /** Epoch milliseconds. */
  lastSeenAt: number;
}

/** A phone that has reported itself on an open socket. */
export interface Device extends KnownDevice {
  readonly link: Link;
  /** Epoch milliseconds. */
  connectedAt: number;
}

/** Ids of the devices that a call without a selector goes to. */
export interface Selection {
  active: string | null;
  recent: string | null;
}

export interface RegistryParts {
  now(): number;
  /** Whether the socket's session may be sent commands now. */
  isEligible(link: Link): boolean;
  /** The device of this id is departed now, or not any more. */
  departedChanged?(id: string): void;
}

export type PhoneRegistry = ReturnType<typeof createPhoneRegistry>;

/** Devices that disconnected, kept so that they are usable before their next report when they reconnect. */
const MAX_DEPARTED = 64;

/**
 * The connected phones, and which of them gets a call that names none (contract 03 §1.2, 1.5, 3). Indexed by device id
 * and by socket: neither a report nor a response scans the others.
 */
export function createPhoneRegistry({ now, isEligible, departedChanged = () => {} }: RegistryParts) {
  const devices = new Map<string, Device>();
  const byLink = new Map<Link, Device>();
  /** Sockets whose device moved to another socket, and its id. */
  const superseded = new WeakMap<Link, string>();
  const departed = new Map<string, KnownDevice>();
  const selection: Selection = { active: null, recent: null };
  let newest: KnownDevice | undefined;

  const eligible = (id: string | null): Device | undefined => {
    const device = id === null ? undefined : devices.get(id);
    return device && isEligible(device.link) ? device : undefined;
  };

  /** Eligible devices, the most recently seen first. */
  const list = (): Device[] =>
    [...devices.values()].filter(({ link }) => isEligible(link)).sort((a, b) => b.lastSeenAt - a.lastSeenAt);

  /** An id that only a payload gives must not be another session's device, nor look like a socket's. */
  const mayClaim = (id: string, link: Link): boolean =>
    !id.startsWith('ws-') && (devices.get(id)?.family ?? link.session.family) === link.session.family;

  function unindex(device: Device): void {
    byLink.delete(device.link);
    if (devices.get(device.id) === device) devices.delete(device.id);
  }

  function removeDeparted(id: string): void {
    if (departed.delete(id)) departedChanged(id);
  }

  /** Keeps a device that is not connected. Only an id of the session proves that it is the same one later. */
  function depart(device: KnownDevice): void {
    departed.delete(device.id);
    if (device.source === 'session') departed.set(device.id, device);
    const [oldest] = departed.keys();
    if (departed.size > MAX_DEPARTED && oldest !== undefined) removeDeparted(oldest);
  }

  function register(link: Link, status: Payload, seenAt: number): { device: Device; replaced?: Device } | undefined {
    const { device: sessionDevice, family, prefix } = link.session;
    const identity = identify(sessionDevice, status, link.id, (id) => mayClaim(id, link));
    const present = devices.get(identity.id);
    const replaced = present && present.link !== link ? present : undefined;
    if (replaced && superseded.get(link) === identity.id) return undefined;
    if (replaced) {
      unindex(replaced);
      superseded.set(replaced.link, identity.id);
    }
    superseded.delete(link);

    const before = byLink.get(link);
    if (before && before.id !== identity.id) {
      devices.delete(before.id);
      for (const pointer of ['active', 'recent'] as const) {
        if (selection[pointer] === before.id) selection[pointer] = identity.id;
      }
    }
    const device: Device = Object.assign(before ?? { link, connectedAt: now() }, identity, {
      family,
      prefix,
      status,
      lastSeenAt: seenAt,
    });
    devices.set(device.id, device);
    byLink.set(link, device);
    removeDeparted(device.id);
    if (!eligible(selection.active)) selection.active = device.id;
    return { device, replaced };
  }

  return {
    selection: selection as Readonly<Selection>,
    list,
    of: (link: Link): Device | undefined => byLink.get(link),
    /** Id of the device that moved from this socket to another one. */
    supersededOn: (link: Link): string | undefined => superseded.get(link),
    /** The device that reported last, connected or not. */
    newest: (): KnownDevice | undefined => newest,
    departed: (id: string): KnownDevice | undefined => departed.get(id),

    /**
     * A `bridge.status` came: makes its sender a device and the most recent one. Returns the device that it replaced on
     * another socket, or undefined when the sender is itself the replaced one.
     */
    report(link: Link, status: Payload): { device: Device; replaced?: Device } | undefined {
      const result = register(link, status, now());
      if (!result) return undefined;
      newest = result.device;
      selection.recent = result.device.id;
      return result;
    },

    /** A departed device reconnected: registers it before its next report. */
    welcome(link: Link): Device | undefined {
      const { id, surface } = link.session.device;
      const known = surface === 'desktop' || devices.has(id) ? undefined : departed.get(id);
      if (known?.family !== link.session.family) return undefined;
      const back = register(link, known.status, known.lastSeenAt)?.device;
      if (newest?.id === id) newest = back;
      return back;
    },

    /** Restores a device as it was before the process slept. */
    restore(link: Link, saved: { status: Payload; connectedAt: number; lastSeenAt: number }): void {
      const device = register(link, saved.status, saved.lastSeenAt)?.device;
      if (!device) return;
      device.connectedAt = saved.connectedAt;
      if (!newest || newest.lastSeenAt < device.lastSeenAt) newest = device;
    },

    /** Restores a device that was not connected, or whose socket did not outlive the sleep. */
    restoreDeparted(device: KnownDevice): void {
      if (!newest || newest.lastSeenAt < device.lastSeenAt) newest = device;
      if (!devices.has(device.id)) depart(device);
    },

    /** Restores the selection, once the devices are back. */
    restoreSelection(saved: Selection): void {
      if (saved.active !== null && devices.has(saved.active)) selection.active = saved.active;
      if (saved.recent !== null && devices.has(saved.recent)) selection.recent = saved.recent;
    },

    /** Marks a socket whose device moved to another one before the process slept. */
    supersede: (link: Link, id: string): void => void superseded.set(link, id),

    /** The device answered. */
    seen(link: Link): void {
      const device = byLink.get(link);
      if (device) device.lastSeenAt = now();
    },

    /** The socket is gone, or may no longer be used. The device seen last takes over its place in the selection. */
    remove(link: Link): Device | undefined {
      const device = byLink.get(link);
      if (!device) return undefined;
      unindex(device);
      const { link: _link, connectedAt: _connectedAt, ...known } = device;
      depart(known);
      if (newest === device) newest = known;
      departedChanged(device.id);
      for (const pointer of ['active', 'recent'] as const) {
        if (selection[pointer] === device.id) selection[pointer] = list()[0]?.id ?? null;
      }
      return device;
    },

    /** Makes a device the one for calls that name none. */
    select(device: Device): void {
      selection.active = device.id;
    },

    /**
     * The device for a call: the named one; without a name the active, the most recent, the one seen last, or none.
     * @throws RelayError `not-found` or `conflict` for a name that does not stand for exactly one.
     */
    choose(selector?: string): Device | undefined {
      if (selector === undefined) return eligible(selection.active) ?? eligible(selection.recent) ?? list()[0];
      return onlyMatch(
        [...devices.values()].filter(({ link }) => isEligible(link)),
        selector,
      );
    },
  };
}

import type { BridgeSelectionRecord } from '../../storage/schema.ts';
import { type IsForeign, type Link, mayClaim } from '../dispatch/link.ts';
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

/** A phone that has reported on an open socket. */
export interface Device extends KnownDevice {
  readonly link: Link;
  /** Epoch milliseconds. */
  connectedAt: number;
}

export interface RegistryDeps {
  now(): number;
  /** True if commands may be sent to the socket's session now. */
  isEligible(link: Link): boolean;
  /** True if an id belongs to a device of another session. */
  isForeign: IsForeign;
  /** A device of this key has departed, or has returned. */
  departedChanged(key: string): void;
}

/**
 * Identifies a device. Its id alone is not enough: every paired device can read the ids of the others, and a device
 * that claims another's id must not take its place (contract 03 §1.2).
 */
export const keyOf = ({ family, id }: Pick<KnownDevice, 'family' | 'id'>): string => `${family}:${id}`;

export type PhoneRegistry = ReturnType<typeof createPhoneRegistry>;

/**
 * Maximum number of disconnected devices, kept so that they are usable before their next report when they reconnect.
 */
const MAX_DEPARTED = 64;

/**
 * The connected phones, and the default for calls without a name (contract 03 §1.2, 1.5, 3). Indexed by key and by
 * socket, so that reports and responses need no scan.
 */
export function createPhoneRegistry({ now, isEligible, isForeign, departedChanged }: RegistryDeps) {
  const devices = new Map<string, Device>();
  const byLink = new Map<Link, Device>();
  /** Sockets whose device moved to another socket, and the id of the device. */
  const superseded = new WeakMap<Link, string>();
  const departed = new Map<string, KnownDevice>();
  /** Keys (`keyOf`) of the devices that a call without a selector goes to. */
  const selection: BridgeSelectionRecord = { active: null, recent: null };
  let newest: KnownDevice | undefined;

  const eligible = (key: string | null): Device | undefined => {
    const device = key === null ? undefined : devices.get(key);
    return device && isEligible(device.link) ? device : undefined;
  };

  /** Eligible devices, the most recently seen first. */
  const list = (): Device[] =>
    [...devices.values()].filter(({ link }) => isEligible(link)).sort((a, b) => b.lastSeenAt - a.lastSeenAt);

  function unindex(device: Device): void {
    byLink.delete(device.link);
    if (devices.get(keyOf(device)) === device) devices.delete(keyOf(device));
  }

  /** Another device takes over the place of one in the selection. */
  function reselect(from: string, to: string | null): void {
    if (selection.active === from) selection.active = to;
    if (selection.recent === from) selection.recent = to;
  }

  function removeDeparted(key: string): void {
    if (departed.delete(key)) departedChanged(key);
  }

  /** Keeps a device that has disconnected. Only an id of the session proves that the same device returns later. */
  function depart(device: KnownDevice): void {
    departed.delete(keyOf(device));
    if (device.source === 'session') departed.set(keyOf(device), device);
    const [oldest] = departed.keys();
    if (departed.size > MAX_DEPARTED && oldest !== undefined) removeDeparted(oldest);
  }

  function register(link: Link, status: Payload, seenAt: number): { device: Device; replaced?: Device } | undefined {
    const { device: sessionDevice, family, prefix } = link.session;
    const identity = identify(sessionDevice, status, link.id, (id) =>
      mayClaim(id, link, { devices: devices.values(), isForeign }),
    );
    const key = keyOf({ family, id: identity.id });
    const present = devices.get(key);
    const replaced = present && present.link !== link ? present : undefined;
    if (replaced && superseded.get(link) === identity.id) return undefined;
    if (replaced) {
      unindex(replaced);
      superseded.set(replaced.link, identity.id);
    }
    superseded.delete(link);

    const before = byLink.get(link);
    const keyBefore = before && keyOf(before);
    if (keyBefore !== undefined && keyBefore !== key) {
      devices.delete(keyBefore);
      reselect(keyBefore, key);
    }
    const device: Device = Object.assign(before ?? { link, connectedAt: now() }, identity, {
      family,
      prefix,
      status,
      lastSeenAt: seenAt,
    });
    devices.set(key, device);
    byLink.set(link, device);
    removeDeparted(key);
    if (!eligible(selection.active)) selection.active = key;
    return { device, replaced };
  }

  return {
    selection: selection as Readonly<BridgeSelectionRecord>,
    list,
    of: (link: Link): Device | undefined => byLink.get(link),
    /** Id of the device that moved from this socket to another one. */
    supersededOn: (link: Link): string | undefined => superseded.get(link),
    /** The device that reported last, connected or not. */
    newest: (): KnownDevice | undefined => newest,
    departed: (key: string): KnownDevice | undefined => departed.get(key),
    /** The connected device of a key. */
    connected: (key: string | null): Device | undefined => (key === null ? undefined : devices.get(key)),

    /**
     * Handles `bridge.status`: its sender becomes a device and the most recent one. Returns the device that it replaced
     * on another socket, or undefined when the sender is itself the replaced one.
     */
    report(link: Link, status: Payload): { device: Device; replaced?: Device } | undefined {
      const result = register(link, status, now());
      if (!result) return undefined;
      newest = result.device;
      selection.recent = keyOf(result.device);
      return result;
    },

    /** A departed device reconnected: registers it before its next report. */
    welcome(link: Link): Device | undefined {
      const { family, device } = link.session;
      const key = keyOf({ family, id: device.id });
      const known = device.surface === 'desktop' || devices.has(key) ? undefined : departed.get(key);
      if (!known) return undefined;
      const back = register(link, known.status, known.lastSeenAt)?.device;
      if (newest && keyOf(newest) === key) newest = back;
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
      if (!devices.has(keyOf(device))) depart(device);
    },

    /** Restores the selection, after the devices. */
    restoreSelection(saved: BridgeSelectionRecord): void {
      if (saved.active !== null && devices.has(saved.active)) selection.active = saved.active;
      if (saved.recent !== null && devices.has(saved.recent)) selection.recent = saved.recent;
    },

    /** Marks a socket whose device moved to another one before the process slept. */
    supersede: (link: Link, id: string): void => void superseded.set(link, id),

    /** The device has answered. */
    seen(link: Link): void {
      const device = byLink.get(link);
      if (device) device.lastSeenAt = now();
    },

    /** The socket has closed, or lost its grant. The device seen last takes over its place in the selection. */
    remove(link: Link): Device | undefined {
      const device = byLink.get(link);
      if (!device) return undefined;
      unindex(device);
      const { link: _link, connectedAt: _connectedAt, ...known } = device;
      depart(known);
      if (newest === device) newest = known;
      const key = keyOf(device);
      departedChanged(key);
      const [next] = list();
      reselect(key, next ? keyOf(next) : null);
      return device;
    },

    /** Makes a device the default for calls without a name. */
    select(device: Device): void {
      selection.active = keyOf(device);
    },

    /**
     * The device for a call: the named one; without a name the active, the most recent, or the one seen last, if any. A
     * name that is the id of one device never selects another device with that name.
     * @throws RelayError `not-found` or `conflict` unless a name selects exactly one device.
     */
    choose(selector?: string): Device | undefined {
      if (selector === undefined) return eligible(selection.active) ?? eligible(selection.recent) ?? list()[0];
      return onlyMatch(
        [...devices.values()].filter(
          ({ link, id, family }) => isEligible(link) && (id === selector || !isForeign(selector, family)),
        ),
        selector,
      );
    },
  };
}

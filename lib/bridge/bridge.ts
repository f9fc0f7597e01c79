import type { Store } from '../../storage/schema.ts';
import { OWNER_TIMEOUT } from '../dispatch/commands.ts';
import { newRecord, openDispatcher, type RoomDeps, type Rules } from '../dispatch/dispatcher.ts';
import { createUseCheck, type Link } from '../dispatch/link.ts';
import { RelayError } from '../errors.ts';
import { createEvent } from '../kit/event.ts';
import { isObject } from '../kit/json.ts';
import { withoutMembers } from '../kit/json-text.ts';
import type { PhoneCall } from '../operations/android.ts';
import { type DeviceRow, deviceRoutes } from '../operations/device.ts';
import type { Session } from '../sessions/session.ts';
import type { Payload } from '../socket/envelope.ts';
import type { JsonText } from '../web/json.ts';
import type { ActivityRecord } from './activity.ts';
import { openPersistence } from './persistence.ts';
import { redact, summarise } from './redact.ts';
import { createPhoneRegistry, type Device, keyOf } from './registry.ts';
import { decide, errorOf, type PhoneResponse, type Reply, readResponse, replyTo } from './response.ts';
import { isSelectorKey, readSelector } from './selection.ts';
import { statusOf } from './status.ts';

/** Milliseconds in which a phone must answer (contract 03 §4.2). */
const COMMAND_TIMEOUT = 30_000;
/** Longer reports are ignored, since the relay keeps the last one of every phone. */
const MAX_REPORT = 256 * 1024;

export interface BridgeDeps extends RoomDeps {
  /** Where the registry is stored; absent where the process lives as long as its sockets. */
  registry?: Store<'bridge'>;
}

/** The relay's side of the bridge: the connected phones, and the commands sent to them (contract 03 §1-6). */
export async function openBridge(deps: BridgeDeps) {
  const { sessions, clock, log } = deps;
  const devices = createEvent<[]>();
  const mayBeUsed = createUseCheck('bridge', deps);
  const registry = createPhoneRegistry({
    now: clock.now,
    isEligible: mayBeUsed,
    isForeign: sessions.isDeviceOfAnother,
    departedChanged: (key) => persistence?.departedChanged(key, registry),
  });
  const persistence = deps.registry && (await openPersistence({ store: deps.registry, clock, log }));
  const dispatcher = await openDispatcher<ActivityRecord, boolean, PhoneResponse, Reply>(deps, rules);
  /** When a socket last answered a command. */
  const answers = new WeakMap<Link, number>();
  /** Sockets whose phone has reported although its session lacks the grant, latest last. */
  const ungranted = new Set<Link>();
  let stopping = false;

  /** Removes a device that can no longer be used, for this reason. */
  function drop(link: Link, reason: (device: Device) => string): void {
    const device = registry.remove(link);
    if (device || registry.supersededOn(link) !== undefined) persistence?.socketChanged(link, registry);
    if (!device) return;
    dispatcher.failAllOf(link, reason(device));
    devices.emit();
    log.info(`phone ${device.id} disconnected`);
  }

  /** Returns the device for a call. */
  function deviceFor(selector: string | undefined, { onStoreBuild }: DeviceRow): Device {
    const device = registry.choose(selector);
    if (!device) {
      const advice = adviceFor(ungranted) ?? 'open the app and turn the bridge on';
      throw new RelayError('unavailable', `No phone connected: ${advice}`);
    }
    if (!onStoreBuild && isStoreBuild(device)) {
      throw new RelayError('forbidden', 'this phone runs the store build, which has no device control', {
        extra: { error_code: 'device_control_sideload_only' },
      });
    }
    return device;
  }

  /** Store builds of the app have no device control (contract 03 §3). */
  function isStoreBuild({ status: { bridge } }: Device): boolean {
    return isObject(bridge) && bridge.device_control_supported === false;
  }

  const connectedStatus = (device: Device): Payload =>
    statusOf(device, { connected: true, active: registry.selection.active === keyOf(device) }, clock.now());

  /** Restores a socket after a sleep, with its device and commands in flight. */
  function restore(link: Link): void {
    persistence?.restore(link, registry);
    dispatcher.restore(link, isPrivate);
  }

  return {
    /** Number of commands that wait for a response. */
    pendingCount: dispatcher.pendingCount,

    /** Commands in flight on a socket, and the milliseconds since it last answered one; null before the first. */
    describe(link: Link): { in_flight: number; last_answer_ms: number | null } {
      const answeredAt = answers.get(link);
      return {
        in_flight: dispatcher.countOf(link),
        last_answer_ms: answeredAt === undefined ? null : Math.max(0, clock.now() - answeredAt),
      };
    },

    /** `bridge.status`, in a frame of `size` characters (contract 03 §1.2, 1.3). */
    report(link: Link, status: Payload, size: number): void {
      if (size > MAX_REPORT) {
        log.warn(`ignored a bridge.status of ${size} characters from session ${link.session.prefix}`);
        return;
      }
      const isNew = registry.of(link) === undefined;
      const result = registry.report(link, status);
      if (!result) {
        log.debug(`ignored a bridge.status of session ${link.session.prefix}: its phone is on a newer socket`);
        return;
      }
      const { device, replaced } = result;
      ungranted.delete(link);
      persistence?.socketChanged(link, registry);
      if (replaced) {
        persistence?.socketChanged(replaced.link, registry);
        dispatcher.failAllOf(replaced.link, `Bridge device ${device.name} reconnected`);
      }
      devices.emit();
      if (isNew) log.info(`phone ${device.id} connected`);
    },

    /** `bridge.status` of a phone whose session lacks the grant. */
    denied(link: Link): void {
      ungranted.delete(link);
      ungranted.add(link);
    },

    /** Why a phone that is connected cannot be controlled, and the next step; undefined if none lacks the grant. */
    advice: () => adviceFor(ungranted),

    /** `bridge.response` in the frame `text`. Ignored unless it answers a pending command of this socket. */
    answered(link: Link, payload: Payload, text: string): void {
      if (!dispatcher.answered(link, payload, () => readResponse(payload, text))) return;
      answers.set(link, clock.now());
      registry.seen(link);
    },

    waiting: dispatcher.waiting,

    /** A socket has authenticated, or, with `slept`, was restored after a sleep of the process (edge). */
    opened(link: Link, slept: boolean): void {
      if (slept) restore(link);
      else if (mayBeUsed(link) && registry.welcome(link)) {
        persistence?.socketChanged(link, registry);
        devices.emit();
      }
    },

    /** True if a connected phone can serve a call of this route. */
    isOffered: ({ onStoreBuild }: Pick<DeviceRow, 'onStoreBuild'>): boolean =>
      registry.list().some((device) => onStoreBuild || !isStoreBuild(device)),

    /** True if a session belongs to a connected phone. */
    hasPhone: (session: Session): boolean => registry.list().some(({ link }) => link.session === session),

    /** Every socket that survived the sleep is restored. Commands to other sockets get no answer any more. */
    restored(): void {
      persistence?.restored(registry);
      dispatcher.restored(() => 'Phone disconnected', isPrivate);
    },

    /** The socket is gone. */
    closed(link: Link): void {
      ungranted.delete(link);
      drop(link, ({ name }) => (link.session.ended ? `Bridge device ${name} was revoked` : 'Phone disconnected'));
    },

    /** The socket stays open, but its session lost the grant for the bridge. */
    grantLost(link: Link): void {
      drop(link, ({ name }) => `Bridge grant of ${name} ended`);
    },

    /**
     * Sends one call to a phone and returns its response.
     * @throws RelayError `invalid`, `not-found`, `conflict`, `unavailable`, `forbidden`, `rate-limited` when nothing
     * was sent; `bad-gateway` and `gateway-timeout` when it was sent and no usable response came.
     */
    async command({ route, query, body, signal, actor }: PhoneCall): Promise<Reply> {
      if (stopping) throw new RelayError('unavailable', 'Relay is shutting down');
      const { method, path } = route;
      const recordFor = (device?: Device, selector?: string): ActivityRecord =>
        newRecord(clock.now(), {
          method,
          path,
          params: redact(withoutSelectorKeys(query, body?.value)),
          device_id: device?.id ?? null,
          device_name: device?.name ?? null,
          alias_used: selector ?? null,
        });
      if (!route.ignoresFreeze) dispatcher.requireThawed(actor, recordFor);
      const selector = readSelector(query, body?.value);
      const device = deviceFor(selector, route);
      const { link } = device;
      dispatcher.requireRoom(link);
      const params = paramsText(query);
      const bodyText = body ? withoutSelectors(body) : params;
      const record = recordFor(device, selector);
      const { request_id: id } = record;
      return dispatcher.send({
        record,
        actor,
        target: route.isPrivate ?? false,
        link,
        frame:
          `{"channel":"bridge","type":"bridge.command","id":"${id}","payload":{"request_id":"${id}",` +
          `"method":"${method}","path":"${path}","params":${params},"body":${bodyText}}}`,
        timeout: COMMAND_TIMEOUT,
        signal,
        ignoresFreeze: route.ignoresFreeze,
      });
    },

    /** `GET /bridge/status`; undefined when no phone ever reported (contract 03 §6). */
    status(query: Readonly<Record<string, string>>): Payload | undefined {
      const device = registry.choose(readSelector(query));
      if (device) return connectedStatus(device);
      const last = registry.newest();
      return last && statusOf(last, { connected: false, active: false }, clock.now());
    },

    /** `GET /bridge/devices` (contract 03 §6). */
    devices(): Payload {
      const { active, recent } = registry.selection;
      const idOf = (key: string | null) => registry.connected(key)?.id ?? null;
      const devices = registry.list().map(connectedStatus);
      return { active_device_id: idOf(active), most_recent_device_id: idOf(recent), devices, count: devices.length };
    },

    /** Makes the named device the default for calls without a name (contract 03 §6). */
    select(selector: string): Payload {
      const device = registry.choose(selector) as Device;
      registry.select(device);
      persistence?.socketChanged(device.link, registry);
      log.info(`phone ${device.id} is the active one now`);
      return {
        active_device_id: device.id,
        device_id: device.id,
        device_name: device.name,
        alias_used: selector,
        aliases: device.aliases,
      };
    },

    activity: dispatcher.list,

    /** Calls back when a command was sent, has ended, or was refused. */
    onCommand: dispatcher.onChange,

    /** Calls back when devices have come or gone, or have sent a status. */
    onDevices: devices.on,

    /** Fails pending commands and refuses new ones. */
    stop(): void {
      stopping = true;
      dispatcher.stop();
    },
  };
}

/** Advice about the phone that has reported last without the grant. */
function adviceFor(ungranted: ReadonlySet<Link>): string | undefined {
  const session = [...ungranted].at(-1)?.session;
  if (!session) return undefined;
  const name = session.ownerName ?? session.device.name;
  return Object.hasOwn(session.grants, 'bridge')
    ? `the bridge grant of "${name}" has expired; extend it with: svc devices extend "${name}"`
    : `"${name}" is paired without the bridge grant; pair it again with: svc pair`;
}

/** The row of a command, from its record. */
const rowOf = ({ path, method }: ActivityRecord): DeviceRow | undefined =>
  deviceRoutes(path).find((route) => route.method === method);

/** True if the result of a command is private. */
function isPrivate(record: ActivityRecord): boolean {
  const row = rowOf(record);
  return row === undefined || row.isPrivate === true;
}

const rules: Rules<ActivityRecord, boolean, PhoneResponse, Reply> = {
  channel: 'bridge',
  full: () => new RelayError('rate-limited', 'too many commands are under way on this phone', { retryAfter: 1 }),

  answered(record, response, isPrivate) {
    record.decision = decide(response);
    record.response_status = response.status;
    record.error = errorOf(response);
    record.result_summary = summarise(response.result, isPrivate);
    return replyTo(response) ?? new RelayError('bad-gateway', 'invalid status from phone');
  },

  timeout: (_record, _isPrivate, isOwnerAsked) =>
    new RelayError(
      'gateway-timeout',
      isOwnerAsked
        ? `The owner of the phone did not decide within ${OWNER_TIMEOUT / 1000}s`
        : 'Phone did not respond within 30s: its owner may still be asked there',
    ),

  unsent: (cause) => `Failed to send command to phone: ${cause}`,
  lost: (error) => new RelayError('bad-gateway', error),
  describe: ({ method, path, device_id: id, decision, response_status: status }) =>
    `${method} ${path} on ${id ?? 'no phone'}: ${decision} ${status ?? '-'}`,
  isRead: (record) => rowOf(record)?.effect === 'read',
};

/** The query as sent to the phone. */
function paramsText(query: Readonly<Record<string, string>>): string {
  for (const _ in query) return JSON.stringify(withoutSelectorKeys(query));
  return '{}';
}

/** The members of both objects but those that select a phone; the second object's take precedence. */
const withoutSelectorKeys = (
  first: Readonly<Record<string, unknown>>,
  second: Readonly<Record<string, unknown>> = {},
): Record<string, unknown> =>
  // Unlike `Object.assign`, this makes `__proto__` a member like any other.
  Object.fromEntries([...Object.entries(first), ...Object.entries(second)].filter(([key]) => !isSelectorKey(key)));

/** Scans the text only if there is something to remove. */
const withoutSelectors = ({ text, value }: Readonly<JsonText>): string => {
  if (text === '') return '{}';
  return Object.keys(value).some(isSelectorKey) ? withoutMembers(text, isSelectorKey) : text;
};

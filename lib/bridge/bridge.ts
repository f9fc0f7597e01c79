import type { Store } from '../../storage/schema.ts';
import { openActivity } from '../dispatch/activity.ts';
import { createCommands, type Outcome, OWNER_TIMEOUT } from '../dispatch/commands.ts';
import { withoutMembers } from '../dispatch/json-text.ts';
import type { Link } from '../dispatch/link.ts';
import { startOf } from '../dispatch/recorder.ts';
import { RelayError } from '../errors.ts';
import type { Clock } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { encodeEnvelope, type Payload } from '../socket/envelope.ts';
import type { JsonText } from '../web/json.ts';
import type { ActivityRecord } from './activity.ts';
import { type DeviceRoute, deviceRoutes } from './device-routes.ts';
import { openPersistence } from './persistence.ts';
import { redact, summarise } from './redact.ts';
import { createPhoneRegistry, type Device, keyOf } from './registry.ts';
import { decide, errorOf, type PhoneResponse, type Reply, readResponse, replyTo } from './response.ts';
import { isSelectorKey, readSelector } from './selection.ts';
import { departedStatus, statusOf } from './status.ts';

/** How long a phone may take, in milliseconds (contract 03 §4.2). */
const COMMAND_TIMEOUT = 30_000;
/** Longer reports are ignored: the relay keeps the last one of every phone. */
const MAX_REPORT = 256 * 1024;
const MAX_ERROR = 500;

export interface BridgeParts {
  sessions: Sessions;
  clock: Clock;
  log: Log;
  activity: Store<'bridge-activity'>;
  /** A command was sent, or has ended. */
  changed?(record: ActivityRecord): void;
  /** Where the registry is stored; absent where the process lives as long as its sockets. */
  registry?: Store<'bridge'>;
}

/** A call (contract 03 §4.1). */
export interface Call {
  route: DeviceRoute;
  /** The query, one value for each name. */
  query: Readonly<Record<string, string>>;
  /** The body of a POST: its text, which goes to the phone as it is, and the same read. */
  body?: Readonly<JsonText>;
  /** The caller's own end. */
  signal?: AbortSignal;
}

export type Bridge = Awaited<ReturnType<typeof openBridge>>;

/** The relay's side of the bridge: the connected phones, and the commands sent to them (contract 03 §1-6). */
export async function openBridge(parts: BridgeParts) {
  const { sessions, clock, log } = parts;
  const mayBeUsed = ({ isOpen, session }: Link): boolean =>
    isOpen && sessions.isAlive(session) && isGranted(session.grants, 'bridge', clock.now() / 1000);
  const registry = createPhoneRegistry({
    now: clock.now,
    isEligible: mayBeUsed,
    isForeign: sessions.isDeviceOfAnother,
    departedChanged: (key) => persistence?.departedChanged(key, registry),
  });
  const persistence = parts.registry && (await openPersistence({ store: parts.registry, clock, log }));
  const commands = createCommands<Link, PhoneResponse>(
    clock,
    () => new RelayError('rate-limited', 'too many commands are under way on this phone', { retryAfter: 1 }),
  );
  const activity = await openActivity<ActivityRecord>({
    store: parts.activity,
    clock,
    log,
    name: 'the bridge activity',
  });
  /** Commands whose phone said that it asks its owner. */
  const asked = new WeakSet<ActivityRecord>();
  /** When a socket last answered a command. */
  const answers = new WeakMap<Link, number>();
  let stopping = false;

  /** The device can no longer be used, for this reason. */
  function drop(link: Link, reason: (device: Device) => string): void {
    const device = registry.remove(link);
    if (device || registry.supersededOn(link) !== undefined) persistence?.socketChanged(link, registry);
    if (!device) return;
    commands.failAllOf(link, reason(device));
    log.info(`phone ${device.id} disconnected`);
  }

  /** The device for a call. */
  function deviceFor(selector: string | undefined, { onStoreBuild }: DeviceRoute): Device {
    const device = registry.choose(selector);
    if (!device) throw new RelayError('unavailable', 'No phone connected: open the app and turn the bridge on');
    const { bridge } = device.status;
    if (!onStoreBuild && isObject(bridge) && bridge.device_control_supported === false) {
      throw new RelayError('forbidden', 'this phone runs the store build, which has no device control', {
        extra: { error_code: 'device_control_sideload_only' },
      });
    }
    return device;
  }

  const isActive = (device: Device): boolean => registry.selection.active === keyOf(device);

  /** Records how a command ended; returns the caller's reply or rejection. */
  function conclude(record: ActivityRecord, outcome: Outcome<PhoneResponse>, isPrivate: boolean): Reply | RelayError {
    const failed = (error: string) => {
      record.decision = 'error';
      record.error = startOf(error, MAX_ERROR);
      return new RelayError('bad-gateway', error);
    };
    switch (outcome.kind) {
      case 'answered':
        return concludeAnswered(record, outcome.response, isPrivate);
      case 'timeout':
        record.decision = 'timeout';
        return new RelayError(
          'gateway-timeout',
          asked.has(record)
            ? `The owner of the phone did not decide within ${OWNER_TIMEOUT / 1000}s`
            : 'Phone did not respond within 30s: its owner may still be asked there',
        );
      case 'unsent':
        return failed(`Failed to send command to phone: ${outcome.error}`);
      case 'failed':
        return failed(outcome.error);
      case 'abandoned':
        return failed('caller disconnected');
    }
  }

  function concludeAnswered(record: ActivityRecord, response: PhoneResponse, isPrivate: boolean): Reply | RelayError {
    record.decision = decide(response);
    record.response_status = response.status;
    const error = errorOf(response);
    record.error = error === null ? null : startOf(error, MAX_ERROR);
    record.result_summary = summarise(response.result, isPrivate);
    return replyTo(response) ?? new RelayError('bad-gateway', 'invalid status from phone');
  }

  /** Restores a socket after a sleep, with its device and the commands that were under way on it. */
  function restore(link: Link): void {
    persistence?.restore(link, registry);
    for (const { record, timeLeft, save, extend } of activity.takeInterrupted(link.id)) {
      const { request_id: id, method, path } = record;
      const route = deviceRoutes(path).find((other) => other.method === method);
      commands.open({
        id,
        owner: link,
        frame: undefined,
        timeout: timeLeft,
        ownerAsked: () => extend(OWNER_TIMEOUT),
        settled(outcome) {
          conclude(record, outcome, route?.isPrivate ?? true);
          save();
        },
      });
    }
  }

  return {
    /** How many commands wait for a response. */
    pendingCount: commands.count,

    /** Commands under way on a socket, and the milliseconds since it last answered one; null before the first. */
    describe(link: Link): { in_flight: number; last_answer_ms: number | null } {
      const answeredAt = answers.get(link);
      return {
        in_flight: commands.countOf(link),
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
      persistence?.socketChanged(link, registry);
      if (replaced) {
        persistence?.socketChanged(replaced.link, registry);
        commands.failAllOf(replaced.link, `Bridge device ${device.name} reconnected`);
      }
      if (isNew) log.info(`phone ${device.id} connected`);
    },

    /** `bridge.response` in the frame `text`. Ignored unless it answers a pending command of this socket. */
    answered(link: Link, payload: Payload, text: string): void {
      const { request_id: id } = payload;
      if (typeof id !== 'string') return;
      if (!commands.answer(id, link, () => readResponse(payload, text))) return;
      answers.set(link, clock.now());
      registry.seen(link);
    },

    /**
     * `command.waiting` `{request_id, for:"owner"}`: the phone asks its owner before it acts, so the command has 150 s from
     * its start. Is confirmed with `timeout_ms`, so that the phone knows a relay that waits.
     */
    waiting(link: Link, { request_id: id, for: whom }: Payload): void {
      if (typeof id !== 'string' || whom !== 'owner' || !commands.wait(id, link)) return;
      const confirmed = { request_id: id, for: whom, timeout_ms: OWNER_TIMEOUT };
      link.sendFrame(encodeEnvelope('bridge', 'command.waiting', confirmed, crypto.randomUUID()));
    },

    /** The socket has authenticated, or, when `slept`, was restored with a process that slept (edge). */
    opened(link: Link, slept: boolean): void {
      if (slept) restore(link);
      else if (mayBeUsed(link) && registry.welcome(link)) persistence?.socketChanged(link, registry);
    },

    /** Every socket that outlived the sleep is back: what was sent to another one gets no answer any more. */
    restored(): void {
      persistence?.restored(registry);
      for (const { record, save } of activity.takeInterrupted()) {
        conclude(record, { kind: 'failed', error: 'Phone disconnected' }, true);
        save();
      }
    },

    /** The socket is gone. */
    closed(link: Link): void {
      drop(link, ({ name }) => (link.session.ended ? `Bridge device ${name} was revoked` : 'Phone disconnected'));
    },

    /** The socket stays, but its session may not use the bridge any more. */
    grantLost(link: Link): void {
      drop(link, ({ name }) => `Bridge grant of ${name} ended`);
    },

    /**
     * Carries one call to a phone and its response back.
     * @throws RelayError `invalid`, `not-found`, `conflict`, `unavailable`, `forbidden`, `rate-limited` when nothing
     * was sent; `bad-gateway` and `gateway-timeout` when it was sent and no usable response came.
     */
    command({ route, query, body, signal }: Call): Promise<Reply> {
      if (stopping) throw new RelayError('unavailable', 'Relay is shutting down');
      const { method, path, isPrivate = false } = route;
      const selector = readSelector(query, body?.value);
      const device = deviceFor(selector, route);
      const id = crypto.randomUUID();
      const params = paramsText(query);
      const bodyText = body ? withoutSelectors(body) : params;
      const { link } = device;
      commands.requireRoom(link);

      return new Promise((resolve, reject) => {
        const sentAt = clock.now();
        const record: ActivityRecord = {
          request_id: id,
          method,
          path,
          params: redact(withoutSelectorKeys({ ...query, ...body?.value })),
          sent_at: sentAt,
          response_status: null,
          result_summary: null,
          error: null,
          decision: 'pending',
          device_id: device.id,
          device_name: device.name,
          alias_used: selector ?? null,
        };
        const { save, extend } = activity.add(record, { socket: link.id, timeout: COMMAND_TIMEOUT });
        parts.changed?.(record);
        commands.open({
          id,
          owner: link,
          frame:
            `{"channel":"bridge","type":"bridge.command","id":"${id}","payload":{"request_id":"${id}",` +
            `"method":"${method}","path":"${path}","params":${params},"body":${bodyText}}}`,
          timeout: COMMAND_TIMEOUT,
          signal,
          ownerAsked() {
            asked.add(record);
            return extend(OWNER_TIMEOUT);
          },
          settled(outcome) {
            const reply = conclude(record, outcome, isPrivate);
            save();
            parts.changed?.(record);
            const status = record.response_status ?? '-';
            log.debug(`${method} ${path} on ${device.id}: ${record.decision} ${status} in ${clock.now() - sentAt} ms`);
            if (reply instanceof RelayError) reject(reply);
            else resolve(reply);
          },
        });
      });
    },

    /** `GET /bridge/status`; undefined when no phone ever reported (contract 03 §6). */
    status(query: Readonly<Record<string, string>>): Payload | undefined {
      const device = registry.choose(readSelector(query));
      if (device) return statusOf(device, isActive(device), clock.now());
      const last = registry.newest();
      return last && departedStatus(last, clock.now());
    },

    /** `GET /bridge/devices` (contract 03 §6). */
    devices(): Payload {
      const { active, recent } = registry.selection;
      const idOf = (key: string | null) => registry.connected(key)?.id ?? null;
      const devices = registry.list().map((device) => statusOf(device, isActive(device), clock.now()));
      return { active_device_id: idOf(active), most_recent_device_id: idOf(recent), devices, count: devices.length };
    },

    /** Makes the named device the one for calls that name none (contract 03 §6). */
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

    activity: activity.list,

    /** Fails what is pending, and refuses new commands. */
    stop(): void {
      stopping = true;
      commands.failAll('Relay is shutting down');
    },
  };
}

/** The query as sent to the phone. */
function paramsText(query: Readonly<Record<string, string>>): string {
  for (const _ in query) return JSON.stringify(withoutSelectorKeys(query));
  return '{}';
}

const withoutSelectorKeys = <T>(values: Readonly<Record<string, T>>): Record<string, T> =>
  Object.fromEntries(Object.entries(values).filter(([key]) => !isSelectorKey(key)));

/** Scans the text only when there is something to remove. */
const withoutSelectors = ({ text, value }: Readonly<JsonText>): string => {
  if (text === '') return '{}';
  return Object.keys(value).some(isSelectorKey) ? withoutMembers(text, isSelectorKey) : text;
};

import type { Store } from '../../storage/schema.ts';
import { createCommands, type Outcome } from '../dispatch/commands.ts';
import { withoutMembers } from '../dispatch/json-text.ts';
import type { Link } from '../dispatch/link.ts';
import { startOf } from '../dispatch/recorder.ts';
import { createRing } from '../dispatch/ring.ts';
import { RelayError } from '../errors.ts';
import type { Clock } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Payload } from '../socket/envelope.ts';
import type { JsonText } from '../web/json.ts';
import type { ActivityRecord } from './activity.ts';
import { type Answer, decide, errorOf, type Reply, readAnswer, replyTo } from './answer.ts';
import type { DeviceRoute } from './device-routes.ts';
import { createMemory } from './memory.ts';
import { redact, summarise } from './redact.ts';
import { createRegistry, type Device } from './registry.ts';
import { isSelectorKey, readSelector } from './selection.ts';
import { goneStatus, statusOf } from './status.ts';

/** How long a phone may take, in milliseconds (contract 03 §4.2). */
const COMMAND_TIMEOUT = 30_000;
/** A report longer than this is no report: the relay keeps the last one of every phone. */
const MAX_REPORT = 256 * 1024;
const MAX_ERROR = 500;

export interface BridgeParts {
  sessions: Sessions;
  clock: Clock;
  log: Log;
  /** Where devices are remembered while the process sleeps; absent where it lives as long as its sockets. */
  remember?: Store<'bridge'>;
}

/** A caller's call (contract 03 §4.1). */
export interface Call {
  route: DeviceRoute;
  /** The query, one value for each name. */
  query: Readonly<Record<string, string>>;
  /** The body of a POST: its text, which goes to the phone as it is, and the same read. */
  body?: Readonly<JsonText>;
  /** The caller's own end. */
  signal?: AbortSignal;
}

export type Bridge = ReturnType<typeof createBridge>;

/** The relay's side of the bridge: which phones are there, and what is asked of them (contract 03 §1-6). */
export function createBridge({ sessions, clock, log, remember }: BridgeParts) {
  const mayBeUsed = ({ isOpen, session }: Link): boolean =>
    isOpen && sessions.isAlive(session) && isGranted(session.grants, 'bridge', clock.now() / 1000);
  const registry = createRegistry({ now: clock.now, isEligible: mayBeUsed });
  const commands = createCommands<Link, Answer>(
    clock,
    () => new RelayError('rate-limited', 'too many commands are under way on this phone', { retryAfter: 1 }),
  );
  const activity = createRing<ActivityRecord>();
  const memory = remember && createMemory(registry, remember, log);
  let stopping = false;

  /** The device is there no longer, for this reason. */
  function drop(link: Link, reason: (device: Device) => string): void {
    const device = registry.remove(link);
    if (!device) return;
    memory?.forget(device);
    memory?.saveChosen();
    commands.failAllOf(link, reason(device));
    log.info(`phone ${device.id} is gone`);
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

  /** Writes down how a command ended, and makes the caller's answer of it. */
  function conclude(record: ActivityRecord, outcome: Outcome<Answer>, isPrivate: boolean): Reply | RelayError {
    const failed = (error: string) => {
      record.decision = 'error';
      record.error = startOf(error, MAX_ERROR);
      return new RelayError('bad-gateway', error);
    };
    switch (outcome.kind) {
      case 'answered':
        return concludeAnswer(record, outcome.answer, isPrivate);
      case 'timeout':
        record.decision = 'timeout';
        return new RelayError('gateway-timeout', 'Phone did not respond within 30s');
      case 'unsent':
        return failed(`Failed to send command to phone: ${outcome.error}`);
      case 'failed':
        return failed(outcome.error);
      case 'abandoned':
        return failed('caller disconnected');
    }
  }

  function concludeAnswer(record: ActivityRecord, answer: Answer, isPrivate: boolean): Reply | RelayError {
    record.decision = decide(answer);
    record.response_status = answer.status;
    const error = errorOf(answer);
    record.error = error === null ? null : startOf(error, MAX_ERROR);
    record.result_summary = summarise(answer.result, isPrivate);
    return replyTo(answer) ?? new RelayError('bad-gateway', 'invalid status from phone');
  }

  return {
    /** How many commands wait for their answers. */
    pendingCount: commands.count,

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
      if (replaced) commands.failAllOf(replaced.link, `Bridge device ${device.name} reconnected`);
      memory?.save(device, replaced);
      memory?.saveChosen();
      if (isNew) log.info(`phone ${device.id} is there`);
    },

    /** `bridge.response` in the frame `text`. Anything that answers no pending command of this socket is ignored. */
    answered(link: Link, payload: Payload, text: string): void {
      const { request_id: id } = payload;
      if (typeof id !== 'string') return;
      if (commands.answer(id, link, () => readAnswer(payload, text))) registry.seen(link);
    },

    /** A socket has authenticated, or, when it `slept`, is open again with an object that was put away. */
    opened(link: Link, slept: boolean): void | Promise<void> {
      if (slept) return memory?.restore(link);
      const device = mayBeUsed(link) ? registry.welcome(link) : undefined;
      if (device) memory?.save(device);
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
     * Carries one call to a phone and its answer back.
     * @throws RelayError `invalid`, `not-found`, `conflict`, `unavailable`, `forbidden`, `rate-limited` when nothing
     * was sent; `bad-gateway` and `gateway-timeout` when no answer came of it.
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
        commands.open({
          id,
          owner: link,
          frame:
            `{"channel":"bridge","type":"bridge.command","id":"${id}","payload":{"request_id":"${id}",` +
            `"method":"${method}","path":"${path}","params":${params},"body":${bodyText}}}`,
          timeout: COMMAND_TIMEOUT,
          signal,
          settled(outcome) {
            const reply = conclude(record, outcome, isPrivate);
            const status = record.response_status ?? '-';
            log.debug(`${method} ${path} on ${device.id}: ${record.decision} ${status} in ${clock.now() - sentAt} ms`);
            if (reply instanceof RelayError) reject(reply);
            else resolve(reply);
          },
        });
        activity.add(record);
      });
    },

    /** `GET /bridge/status`; undefined when no phone ever reported (contract 03 §6). */
    status(query: Readonly<Record<string, string>>): Payload | undefined {
      const device = registry.choose(readSelector(query));
      if (device) return statusOf(device, registry.chosen.active, clock.now());
      const last = registry.newest();
      return last && goneStatus(last, clock.now());
    },

    /** `GET /bridge/devices` (contract 03 §6). */
    devices(): Payload {
      const { active, recent } = registry.chosen;
      const devices = registry.list().map((device) => statusOf(device, active, clock.now()));
      return { active_device_id: active, most_recent_device_id: recent, devices, count: devices.length };
    },

    /** Makes the device that is named the one for calls that name none (contract 03 §6). */
    select(selector: string): Payload {
      const device = registry.choose(selector) as Device;
      registry.select(device);
      memory?.saveChosen();
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

    /** Fails what is pending, and takes nothing on any more. */
    stop(): void {
      stopping = true;
      commands.failAll('Relay is shutting down');
    },
  };
}

/** The query as the phone gets it. */
function paramsText(query: Readonly<Record<string, string>>): string {
  for (const _ in query) return JSON.stringify(withoutSelectorKeys(query));
  return '{}';
}

const withoutSelectorKeys = <T>(values: Readonly<Record<string, T>>): Record<string, T> =>
  Object.fromEntries(Object.entries(values).filter(([key]) => !isSelectorKey(key)));

/** The text is looked through only where there is something to take out. */
const withoutSelectors = ({ text, value }: Readonly<JsonText>): string => {
  if (text === '') return '{}';
  return Object.keys(value).some(isSelectorKey) ? withoutMembers(text, isSelectorKey) : text;
};

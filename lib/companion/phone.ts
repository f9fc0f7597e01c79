import { describeError } from '../errors.ts';
import type { Clock } from '../kit/clock.ts';
import { isObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { activityEntry, createActivityLog } from './activity.ts';
import { createAutoDisable } from './auto-disable.ts';
import { createAutoReturn } from './auto-return.ts';
import type { Device } from './device.ts';
import { createEventRing } from './events.ts';
import { refusalAnswer } from './gates/answers.ts';
import type { Environment } from './gates/gate.ts';
import { type Outcome, runPipeline } from './gates/pipeline.ts';
import { lookUp } from './gates/registry.ts';
import { statusPayload } from './status.ts';
import type { ActivityEntry, Confirm, FetchMedia, Phone, PhoneCommand, SettingsStore, Upload } from './types.ts';

export interface PhoneParts {
  device: Device;
  settings: SettingsStore;
  /** Without it nothing is confirmed: destructive text is denied, routes that always ask answer 503. */
  confirm?: Confirm;
  clock: Clock;
  log: Log;
  /** Without it `/screenshot` answers 503. */
  upload?: Upload;
  /** Without it attachments cannot be had. */
  fetchMedia?: FetchMedia;
  /** Limit of one of two capture attempts, ms; 2500..30000, default 10000. */
  captureTimeoutMs?: number;
  /** Idle time after which a command that left the companion is followed by a return, ms; null for never. */
  autoReturnMs?: number | null;
}

/** Listeners that can be told something; one that fails keeps nothing from the others. */
function createBell<T>(log: Log) {
  const listeners = new Set<(value: T) => void>();
  return {
    on(listener: (value: T) => void) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    ring(value: T) {
      for (const listener of listeners) {
        try {
          listener(value);
        } catch (error) {
          log.warn(`a listener failed: ${describeError(error)}`);
        }
      }
    },
  };
}

function createSerial() {
  let tail: Promise<unknown> = Promise.resolve();
  return <T>(task: () => Promise<T>): Promise<T> => {
    const run = tail.then(task);
    tail = run.catch(() => {});
    return run;
  };
}

/** The phone's side of the bridge: the safety pipeline of contract 03 §8 in front of a device. */
export function createPhone(parts: PhoneParts): Phone {
  const { device, settings, clock } = parts;
  const log = parts.log.named('phone');
  const events = createEventRing(clock);
  const activity = createActivityLog();
  const activityBell = createBell<ActivityEntry>(log);
  const statusBell = createBell<void>(log);
  const closing = new AbortController();
  let returns = 0;

  const autoDisable = createAutoDisable({
    settings,
    clock,
    log,
    onExpired() {
      const text = 'The time for device control is over. Grant it again when you need it.';
      device.notify('Device control has ended', text).catch((error) => {
        log.warn(`notification not shown: ${describeError(error)}`);
      });
      statusBell.ring();
    },
  });

  const env: Environment = {
    device,
    settings,
    clock,
    log,
    confirm: parts.confirm,
    upload: parts.upload,
    fetchMedia: parts.fetchMedia,
    captureTimeoutMs: Math.min(Math.max(parts.captureTimeoutMs ?? 10_000, 2500), 30_000),
    events,
    autoDisable,
    serially: createSerial(),
    closed: closing.signal,
  };

  const autoReturn = createAutoReturn(clock, parts.autoReturnMs ?? 12_000, () => {
    const requestId = `auto-return-${++returns}`;
    void carryOut({ requestId, method: 'POST', path: '/return_to_hermes', params: {}, body: {} }, true);
  });

  async function carryOut(raw: PhoneCommand, own: boolean) {
    const at = clock.now();
    const receivedAt = clock.monotonic();
    const command = { ...raw, body: isObject(raw.body) ? raw.body : {} };
    const found = lookUp(command);
    const route = found.kind === 'found' ? found.route : null;
    const logged = !route?.quiet;
    if (logged) autoReturn.begin();
    const outcome: Outcome =
      found.kind === 'found'
        ? await runPipeline({
            command,
            route: found.route,
            args: command.body,
            receivedAt,
            consent: 'none',
            allowedText: null,
            env,
          })
        : { answer: refusalAnswer(found), decision: found.kind };
    if (logged) {
      const entry = activityEntry(command, route, outcome, { at, durationMs: clock.monotonic() - receivedAt, own });
      activity.add(entry);
      activityBell.ring(entry);
      if (!closing.signal.aborted && parts.autoReturnMs !== null) autoReturn.end(route, outcome.answer.status);
    }
    return outcome.answer;
  }

  const stopEvents = device.onEvent((event) => events.add(event));
  let { masterEnabled, unattended } = settings.get();
  const stopSettings = settings.onChange((changed) => {
    if (changed.masterEnabled === masterEnabled && changed.unattended === unattended) return;
    ({ masterEnabled, unattended } = changed);
    statusBell.ring();
  });

  return {
    handle: (command) => carryOut(command, false),
    status: () => statusPayload(device, settings.get(), autoDisable, clock),
    activity: activity.list,
    onActivity: activityBell.on,
    onStatusChange: (listener) => statusBell.on(listener),
    close() {
      closing.abort();
      autoReturn.close();
      autoDisable.close();
      stopEvents();
      stopSettings();
    },
  };
}

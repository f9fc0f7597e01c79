import { describeError } from '../errors.ts';
import { createEvent } from '../kit/event.ts';
import { isObject } from '../kit/json.ts';
import { createSemaphore } from '../kit/semaphore.ts';
import { activityEntry } from './activity.ts';
import { createAutoDisable } from './auto-disable.ts';
import { createAutoReturn } from './auto-return.ts';
import { findRoute } from './commands/index.ts';
import { createEventRing } from './events.ts';
import type { Environment } from './gates/gate.ts';
import { refusedOutcome, runPipeline } from './gates/pipeline.ts';
import { statusPayload } from './status.ts';
import type { ActivityEntry, PhoneAnswer, PhoneCommand } from './types.ts';

const MAX_ACTIVITY = 100;

type Given = 'device' | 'settings' | 'clock' | 'log' | 'confirm' | 'upload' | 'fetchMedia';

export interface PhoneDeps extends Pick<Environment, Given> {
  /** Limit of each of the two capture attempts, ms; 2500..30000, default 10000. */
  captureTimeoutMs?: number;
  /** Idle time before auto-return, ms; default 12000, null for never. */
  autoReturnMs?: number | null;
}

export type Phone = ReturnType<typeof createPhone>;

/** The phone's side of the bridge: the safety pipeline of contract 03 §8 in front of a device. */
export function createPhone(deps: PhoneDeps) {
  const { device, settings, clock } = deps;
  const log = deps.log.named('phone');
  const events = createEventRing(clock);
  let activity: readonly ActivityEntry[] = [];
  const activityAdded = createEvent<[entry: ActivityEntry]>();
  const statusChanged = createEvent<[]>();
  const captures = createSemaphore(1, Number.POSITIVE_INFINITY);
  const closing = new AbortController();
  let autoReturns = 0;

  const autoDisable = createAutoDisable({
    settings,
    clock,
    log,
    onExpired() {
      const text = 'The time limit for device control has run out. Grant it again when you need it.';
      device.notify('Device control has ended', text).catch((error) => {
        log.warn(`cannot show a notification: ${describeError(error)}`);
      });
      statusChanged.emit();
    },
  });

  const env: Environment = {
    ...deps,
    log,
    captureTimeoutMs: Math.min(Math.max(deps.captureTimeoutMs ?? 10_000, 2500), 30_000),
    events,
    autoDisable,
    serially: (task) => captures.run(closing.signal, task),
    closed: closing.signal,
  };

  const autoReturn = createAutoReturn(clock, deps.autoReturnMs ?? 12_000, () => {
    const requestId = `auto-return-${++autoReturns}`;
    void execute({ requestId, method: 'POST', path: '/return_to_hermes', body: {} }, true);
  });

  async function execute(received: PhoneCommand, own: boolean) {
    const at = clock.now();
    const receivedAt = clock.monotonic();
    const command = { ...received, body: isObject(received.body) ? received.body : {} };
    const found = findRoute(command);
    const route = found.kind === 'found' ? found.route : null;
    const isLogged = !route?.quiet;
    if (isLogged) autoReturn.begin();
    const outcome =
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
        : refusedOutcome(found);
    if (isLogged) {
      const entry = activityEntry(command, route, outcome, { at, durationMs: clock.monotonic() - receivedAt, own });
      activity = [entry, ...activity].slice(0, MAX_ACTIVITY);
      if (!closing.signal.aborted && deps.autoReturnMs !== null) autoReturn.end(route, outcome.answer.status);
      activityAdded.emit(entry);
    }
    return outcome.answer;
  }

  const stopEvents = device.onEvent((event) => events.add(event));
  let { masterEnabled, unattended } = settings.get();
  const stopSettings = settings.onChange((changed) => {
    if (changed.masterEnabled === masterEnabled && changed.unattended === unattended) return;
    ({ masterEnabled, unattended } = changed);
    statusChanged.emit();
  });

  return {
    /** Runs a command through the safety pipeline (contract 03 §8.1). Never rejects. */
    handle: (command: PhoneCommand): Promise<PhoneAnswer> => execute(command, false),
    /** Payload of `bridge.status` (contract 03 §1.3). */
    status: () => statusPayload(device, settings.get(), autoDisable, clock),
    /** Newest first, at most 100 (contract 03 §8.8). */
    activity: () => activity,
    onActivity: activityAdded.on,
    /** Called when a status should be sent at once: master or unattended toggle flipped, auto-disable expired. */
    onStatusChange: statusChanged.on,
    /** Cancels timers and waits. Commands in flight still get their answer. */
    close(): void {
      closing.abort();
      autoReturn.close();
      autoDisable.close();
      stopEvents();
      stopSettings();
    },
  };
}

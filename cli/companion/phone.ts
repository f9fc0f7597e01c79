import { appName } from '../../lib/companion/gates/subject.ts';
import type { AnsweredCommand } from '../../lib/companion/link/commands.ts';
import { createPhone, type Phone } from '../../lib/companion/phone.ts';
import type { SafetySettings, SettingsStore } from '../../lib/companion/safety-settings.ts';
import type { PostedNotification } from '../../lib/companion/triggers.ts';
import type { ActivityEntry, Confirm, FetchMedia, Upload } from '../../lib/companion/types.ts';
import type { Clock } from '../../lib/kit/clock.ts';
import { asObject } from '../../lib/kit/json.ts';
import type { Log } from '../../lib/log.ts';
import { createSimulatedDevice } from '../../lib/simulated/device.ts';
import { drawScreen } from './screen.ts';

const MAX_PENDING_ENTRIES = 100;

/** Sends the text messages that the person at the terminal types. */
export const SENDER = { name: 'Ada Lovelace', number: '+15550101' };

/** A command that was answered, as it is shown. */
export type CommandRow = Pick<
  ActivityEntry,
  'requestId' | 'method' | 'path' | 'summary' | 'decision' | 'status' | 'durationMs'
>;

export interface SimulatedPhoneDeps {
  settings: SettingsStore;
  confirm: Confirm;
  clock: Clock;
  log: Log;
  name: string;
  /** Media calls to the relay; without them there are no screenshots. */
  media?: { upload: Upload; fetchMedia: FetchMedia };
}

/** The phone of `--device simulated`, and the rows to show for its commands. */
export function createSimulatedPhone({ name, media, ...deps }: SimulatedPhoneDeps) {
  const device = createSimulatedDevice({ clock: deps.clock, name });
  const phone = createPhone({ ...deps, ...media, settings: trustUntilQuit(deps.settings), device });
  return {
    phone,
    trackRows: (onOwnRow: (row: CommandRow) => void) => trackRows(phone, onOwnRow),
    /** Subscribes to the notifications of the phone. */
    onNotification: (listener: (notification: PostedNotification) => void) =>
      device.onNotification?.(listener) ?? (() => {}),
    /** Lets the phone show a notification, or receive a text message from the first of its contacts. */
    post: device.post,
    receiveSms: (text: string) => device.receiveSms(SENDER.number, text),
    appName: (packageName: string) => appName(device, packageName),
    /** The screen as text, for a terminal of that width. */
    async screen(columns?: number): Promise<string[]> {
      const [windows, apps] = await Promise.all([device.windows(), device.apps()]);
      const name = windows[0]?.packageName ?? '';
      return drawScreen(windows, apps.find((app) => app.package === name)?.label ?? name, columns);
    },
  };
}

/**
 * The settings, with verbs that the person stopped being asked about until the end of this run: the simulated phone
 * starts anew each time, so only `svc companion trusted` keeps one for good.
 */
function trustUntilQuit(settings: SettingsStore): SettingsStore {
  let untilQuit: string[] = [];
  const merged = (stored: SafetySettings): SafetySettings => ({
    ...stored,
    trustedVerbs: [...new Set([...stored.trustedVerbs, ...untilQuit])],
  });
  return {
    get: () => merged(settings.get()),
    async update({ trustedVerbs, ...change }) {
      const trusted = new Set(settings.get().trustedVerbs);
      if (trustedVerbs) untilQuit = trustedVerbs.filter((verb) => !trusted.has(verb));
      if (Object.keys(change).length > 0) await settings.update(change);
    },
    onChange: (listener) => settings.onChange((stored) => listener(merged(stored))),
  };
}

/** Joins the phone's log entry with the answer that was sent. `onOwnRow` gets what the phone started by itself. */
function trackRows(phone: Phone, onOwnRow: (row: CommandRow) => void) {
  const entries = new Map<string, ActivityEntry>();
  const stop = phone.onActivity((entry) => {
    if (entry.own) return onOwnRow({ ...entry, summary: `${entry.summary} (auto-return)` });
    entries.set(entry.requestId, entry);
    // An entry whose answer is never sent would otherwise stay for ever.
    const [oldest] = entries.keys();
    if (entries.size > MAX_PENDING_ENTRIES && oldest !== undefined) entries.delete(oldest);
  });
  return {
    stop,
    rowOf({ command, answer, durationMs, isCancelled }: AnsweredCommand): CommandRow {
      const { requestId, method, path } = command;
      const entry = entries.get(requestId);
      entries.delete(requestId);
      const code = asObject(answer.result)?.error_code;
      const fallback = typeof code === 'string' ? code : answer.status < 400 ? 'executed' : 'error';
      const decision = isCancelled && answer.status >= 400 ? 'cancelled' : (entry?.decision ?? fallback);
      return { requestId, method, path, summary: entry?.summary ?? '', decision, status: answer.status, durationMs };
    },
  };
}

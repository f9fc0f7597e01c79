import type { AnsweredCommand } from '../lib/companion/link/commands.ts';
import { createPhone } from '../lib/companion/phone.ts';
import type { SettingsStore } from '../lib/companion/safety-settings.ts';
import { createSimulatedDevice } from '../lib/companion/simulated/device.ts';
import type { ActivityEntry, Confirm, FetchMedia, Phone, Upload } from '../lib/companion/types.ts';
import type { Clock } from '../lib/kit/clock.ts';
import { asObject } from '../lib/kit/json.ts';
import type { Log } from '../lib/log.ts';
import type { CommandRow } from './companion-view.ts';

export interface PhoneParts {
  settings: SettingsStore;
  confirm: Confirm;
  clock: Clock;
  log: Log;
  name: string;
  /** The relay's media, with this phone's bearer; without it there are no screenshots. */
  media?: { upload: Upload; fetchMedia: FetchMedia };
}

/** The phone of `--device simulated`, and what it did with each command as a row to show. */
export function createPhoneBehind({ name, media, ...parts }: PhoneParts) {
  const phone = createPhone({ ...parts, ...media, device: createSimulatedDevice({ clock: parts.clock, name }) });
  return { phone, rows: (onOwn: (row: CommandRow) => void) => createRows(phone, onOwn) };
}

/** Puts the phone's own log entry and the answer that went out together. What it did by itself goes to `onOwn`. */
function createRows(phone: Phone, onOwn: (row: CommandRow) => void) {
  const entries = new Map<string, ActivityEntry>();
  const end = phone.onActivity((entry) => {
    if (entry.own) return onOwn({ ...entry, summary: `${entry.summary} (by itself)`, took: entry.durationMs });
    entries.set(entry.requestId, entry);
    // An entry whose answer never goes out (it belongs to no command of the relay) is not kept for ever.
    const [oldest] = entries.keys();
    if (entries.size > 100 && oldest !== undefined) entries.delete(oldest);
  });
  return {
    end,
    of({ command, answer, durationMs: took }: AnsweredCommand): CommandRow {
      const { requestId, method, path } = command;
      const entry = entries.get(requestId);
      entries.delete(requestId);
      const code = asObject(answer.result)?.error_code;
      const otherwise = typeof code === 'string' ? code : answer.status < 400 ? 'executed' : 'error';
      const decision = entry?.decision ?? otherwise;
      return { requestId, method, path, summary: entry?.summary ?? '', decision, status: answer.status, took };
    },
  };
}

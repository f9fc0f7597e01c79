import { describeError } from '../errors.ts';
import { bytesToHex, randomBytes } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import type { SettingsStore } from './safety-settings.ts';
import { singleLine } from './text.ts';
import {
  areActive,
  matchingRule,
  type PostedNotification,
  readActivity,
  type TriggerActivity,
  type TriggerRule,
  withActivity,
} from './triggers.ts';
import type { Confirm } from './types.ts';

/** Open questions of triggers at most, so that a chatty app does not bury those of commands. */
const MAX_OPEN = 3;
const MAX_TITLE = 200;
const MAX_TEXT = 2000;

export interface TriggerRunnerDeps {
  settings: SettingsStore;
  /** Asks the owner (`ask_me`). */
  confirm: Confirm;
  /** Sends the owner's words to the agent, and returns their id. @throws RelayError if that is impossible. */
  sendToAgent(text: string, metadata: Record<string, string>): string;
  /** The display name of an app. */
  appName(packageName: string): Promise<string>;
  clock: Clock;
  log: Log;
  onActivity(row: TriggerActivity): void;
}

/** Watches the phone's notifications for those that match a rule. */
export function createTriggerRunner(deps: TriggerRunnerDeps) {
  const { settings, confirm, sendToAgent, clock, log } = deps;
  const open = new Set<AbortController>();
  const sending = new Set<string>();
  let questions = 0;

  function record(row: TriggerActivity): void {
    const { notification_trigger_activity_log_json: rows } = settings.get().triggers;
    const change = { triggers: { notification_trigger_activity_log_json: withActivity(rows, row) } };
    settings.update(change).catch((error) => log.warn(`cannot store the activity log: ${describeError(error)}`));
    deps.onActivity(row);
  }

  /** Aborted by every event that ends all questions. */
  function withdraw(): void {
    for (const end of [...open]) end.abort();
  }

  const stopSettings = settings.onChange(({ triggers }) => {
    if (!areActive(triggers)) withdraw();
  });

  async function ask(rule: TriggerRule, notification: PostedNotification, end: AbortController): Promise<boolean> {
    const { packageName, title, text } = notification;
    const name = await deps.appName(packageName).catch(() => packageName);
    if (end.signal.aborted) return false;
    const decision = await confirm({
      requestId: `trigger-${++questions}`,
      verb: 'notification_trigger',
      title: 'Tell the agent about this notification?',
      detail: singleLine([title, text].filter(Boolean).join(': '), 200),
      subject: { rule: rule.label, app: singleLine(name, 80), effect: 'sends its title and text to the agent' },
      timeoutMs: settings.get().confirmationTimeoutSeconds * 1000,
      gone: end.signal,
    });
    return decision === true || (typeof decision === 'object' && decision.allowed);
  }

  /** The outcome of a notification that matched a rule. */
  async function outcomeOf(rule: TriggerRule, notification: PostedNotification) {
    const id = bytesToHex(randomBytes(6));
    if (settings.get().blocklist.includes(notification.packageName)) return { id, outcome: 'blocked' } as const;
    if (open.size >= MAX_OPEN) return { id, outcome: 'busy' } as const;
    const end = new AbortController();
    open.add(end);
    try {
      const allowed = await ask(rule, notification, end);
      // A switch that was turned off while the question was open counts.
      const isStopped = end.signal.aborted || matchingRule(settings.get().triggers, notification)?.id !== rule.id;
      if (isStopped) return { id, outcome: 'stopped' } as const;
      if (settings.get().blocklist.includes(notification.packageName)) return { id, outcome: 'blocked' } as const;
      if (!allowed) return { id, outcome: 'denied' } as const;
      const metadata = { source: 'notification_trigger', rule_id: rule.id, app_package: rule.app_package };
      const sent = sendToAgent(wordsFor(rule, notification), metadata);
      sending.add(sent);
      return { id: sent, outcome: 'sending' } as const;
    } catch (error) {
      log.warn(`a notification cannot be forwarded to the agent: ${describeError(error)}`);
      return { id, outcome: 'failed' } as const;
    } finally {
      open.delete(end);
    }
  }

  return {
    /** The phone has shown a notification. Never throws. */
    posted(notification: PostedNotification): void {
      const rule = matchingRule(settings.get().triggers, notification);
      if (!rule) return;
      const facts = {
        at: clock.now(),
        rule_id: rule.id,
        label: rule.label,
        app_package: rule.app_package,
        title: singleLine(notification.title ?? '', 80),
      };
      void outcomeOf(rule, notification).then((ended) => record({ ...facts, ...ended }));
    },
    /** The relay has acknowledged the words that `sendToAgent` sent under this id. Returns false if no trigger sent them. */
    acknowledged(id: string): boolean {
      if (!sending.delete(id)) return false;
      const rows = readActivity(settings.get().triggers.notification_trigger_activity_log_json);
      const row = rows.find((one) => one.id === id);
      if (row) record({ ...row, outcome: 'told' });
      return true;
    },
    /** Withdraws all questions. */
    close(): void {
      stopSettings();
      withdraw();
    },
  };
}

/** The message to the agent, which marks the text of a notification as its sender's words. */
function wordsFor({ label, app_package }: TriggerRule, { title, text }: PostedNotification): string {
  return [
    `My phone shows a notification of ${app_package}, which my rule "${singleLine(label, 80)}" is about.`,
    'What follows is from that app, not from me:',
    ...(title ? [`Title: ${singleLine(title, MAX_TITLE)}`] : []),
    ...(text ? [`Text: ${singleLine(text, MAX_TEXT)}`] : []),
  ].join('\n');
}

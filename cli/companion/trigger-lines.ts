import {
  type NotificationTriggers,
  readActivity,
  readRules,
  type TriggerActivity,
  type TriggerRule,
} from '../../lib/companion/triggers.ts';
import { columns, printable } from '../output.ts';

const OUTCOMES: Record<TriggerActivity['outcome'], string> = {
  told: 'the agent was told',
  sending: 'on its way to the agent',
  denied: 'the agent was not told',
  stopped: 'stopped before an answer',
  blocked: 'not asked: the app is on the blocklist',
  busy: 'not asked: too many questions were open',
  failed: 'could not be sent',
};

/** `Rule Ada writes: the agent was told`. */
export const triggerText = ({ label, outcome }: TriggerActivity): string =>
  `Rule ${printable(label)}: ${OUTCOMES[outcome]}`;

/** The state of the triggers, their rules, and what they did last, as lines. */
export function triggerLines(triggers: NotificationTriggers): string[] {
  const { rules, problem } = readRules(triggers.notification_trigger_rules_json);
  const activity = readActivity(triggers.notification_trigger_activity_log_json);
  return [
    stateText(triggers),
    ...(problem === undefined ? [] : [`  The rules are malformed, so none of them asks: ${printable(problem)}`]),
    ...columns(rules.map((rule) => [rule.id, rule.enabled ? 'on' : 'off', rule.app_package, ruleText(rule)])),
    ...(activity.length === 0 ? [] : ['Latest']),
    ...columns(activity.map(activityCells)),
  ];
}

function stateText({
  notification_triggers_enabled: on,
  notification_triggers_kill_switch: killed,
}: NotificationTriggers) {
  if (killed) return 'Notification triggers are stopped by their kill switch.';
  return `Notification triggers are ${on ? 'on' : 'off'}.`;
}

/** `Ada writes (title contains "Ada")`. */
function ruleText({ label, title_contains: title, text_contains: text }: TriggerRule): string {
  const parts = [title && `title contains "${title}"`, text && `text contains "${text}"`].filter(Boolean);
  return printable(parts.length > 0 ? `${label} (${parts.join(', ')})` : label);
}

const activityCells = ({ at, label, title, outcome }: TriggerActivity): string[] => [
  new Date(at).toISOString().replace(/\.\d+Z$/, 'Z'),
  printable(label),
  OUTCOMES[outcome],
  printable(title),
];

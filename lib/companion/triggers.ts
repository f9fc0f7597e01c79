import * as v from 'valibot';
import { parseJson } from '../kit/json.ts';
import { isBlank, isPackageName, singleLine } from './text.ts';

/**
 * The store `notification_triggers`, by its keys (specification 2.1). The content of its JSON texts is checked by its
 * readers.
 */
export const TriggersSchema = v.object({
  notification_triggers_enabled: v.boolean(),
  /** Overrides everything: while it is on, no rule asks and open questions are withdrawn. */
  notification_triggers_kill_switch: v.boolean(),
  notification_trigger_rules_json: v.string(),
  notification_trigger_activity_log_json: v.string(),
});

export type NotificationTriggers = v.InferOutput<typeof TriggersSchema>;

export const defaultTriggers = (): NotificationTriggers => ({
  notification_triggers_enabled: false,
  notification_triggers_kill_switch: false,
  notification_trigger_rules_json: '[]',
  notification_trigger_activity_log_json: '[]',
});

const MAX_RULES = 50;
const MAX_RULES_JSON = 64 * 1024;
const MAX_ACTIVITY = 25;
const MAX_ACTIVITY_JSON = 64 * 1024;
/** Characters of a title or text that are compared. */
const MAX_COMPARED = 4096;

const line = (limit: number) =>
  v.pipe(
    v.string(),
    v.maxLength(limit),
    v.check((text) => !isBlank(text), 'must not be blank'),
  );

const RuleSchema = v.object({
  id: v.pipe(v.string(), v.regex(/^[\w.-]{1,64}$/)),
  label: line(80),
  enabled: v.boolean(),
  app_package: v.pipe(v.string(), v.check(isPackageName, 'must be a package name such as org.example.app')),
  title_contains: v.nullish(line(200)),
  text_contains: v.nullish(line(200)),
  action: v.literal('ask_me'),
  /** Ignored, since `ask_me` always asks. */
  require_confirmation: v.optional(v.boolean(), false),
});

/** A rule that asks the owner about notifications of an app whose title and text contain the given texts. */
export type TriggerRule = v.InferOutput<typeof RuleSchema>;

const RulesSchema = v.pipe(
  v.array(RuleSchema),
  v.maxLength(MAX_RULES, `there may be ${MAX_RULES} rules at most`),
  v.check((rules) => new Set(rules.map(({ id }) => id)).size === rules.length, 'two rules have the same id'),
);

/** The rules, or the problem with them. A single malformed rule disables all, so that nothing matches by accident. */
export type ReadRules = { rules: TriggerRule[]; problem?: undefined } | { rules: []; problem: string };

export function readRules(json: string): ReadRules {
  if (json.length > MAX_RULES_JSON) return { rules: [], problem: 'they are too long' };
  const value = parseJson(json);
  if (!Array.isArray(value)) return { rules: [], problem: 'they are no JSON list' };
  const read = v.safeParse(RulesSchema, value);
  if (read.success) return { rules: read.output };
  const [issue] = read.issues;
  const place = v.getDotPath(issue);
  return { rules: [], problem: singleLine(place ? `${place}: ${issue.message}` : issue.message, 160) };
}

/** A notification that the phone has shown. */
export interface PostedNotification {
  packageName: string;
  title: string | null;
  text: string | null;
}

const folded = (text: string): string => text.slice(0, MAX_COMPARED).normalize('NFKC').toLowerCase();

const contains = (text: string | null, part: string | null | undefined): boolean =>
  isBlank(part) || folded(text ?? '').includes(folded(part as string));

/** True if a rule matches a notification. Ignores case and Unicode composition. */
export const matches = (rule: TriggerRule, { packageName, title, text }: PostedNotification): boolean =>
  rule.enabled &&
  rule.app_package === packageName &&
  contains(title, rule.title_contains) &&
  contains(text, rule.text_contains);

/** True if any rule may ask. */
export const areActive = (triggers: NotificationTriggers): boolean =>
  triggers.notification_triggers_enabled && !triggers.notification_triggers_kill_switch;

/** The first rule that matches, or null. One notification asks at most once. */
export function matchingRule(triggers: NotificationTriggers, notification: PostedNotification): TriggerRule | null {
  if (!areActive(triggers)) return null;
  const { rules } = readRules(triggers.notification_trigger_rules_json);
  return rules.find((rule) => matches(rule, notification)) ?? null;
}

const ActivitySchema = v.object({
  id: v.string(),
  /** Epoch ms. */
  at: v.number(),
  rule_id: v.string(),
  label: v.string(),
  app_package: v.string(),
  /** At most 80 characters; the text of a notification is never stored. */
  title: v.string(),
  /**
   * `told`: the relay has it for the agent. `sending`: not acknowledged yet. `denied`: the owner refused, or did not
   * answer. `stopped`: the rule or all rules were switched off meanwhile. `blocked`: the app is on the blocklist.
   * `busy`: too many questions were open. `failed`: it could not be sent.
   */
  outcome: v.picklist(['told', 'sending', 'denied', 'stopped', 'blocked', 'busy', 'failed']),
});

/** A row of the activity log. */
export type TriggerActivity = v.InferOutput<typeof ActivitySchema>;

/** The activity log, newest first. Unreadable rows are omitted. */
export function readActivity(json: string): TriggerActivity[] {
  const value = json.length > MAX_ACTIVITY_JSON ? null : parseJson(json);
  if (!Array.isArray(value)) return [];
  return value.filter((row): row is TriggerActivity => v.is(ActivitySchema, row)).slice(0, MAX_ACTIVITY);
}

/** The log with this row as its newest, or replacing the row with the same id. Keeps the latest 25. */
export function withActivity(json: string, row: TriggerActivity): string {
  const rows = readActivity(json);
  const known = rows.some(({ id }) => id === row.id);
  const next = known ? rows.map((old) => (old.id === row.id ? row : old)) : [row, ...rows];
  return JSON.stringify(next.slice(0, MAX_ACTIVITY));
}

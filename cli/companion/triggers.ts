import type { Command } from 'cac';
import { readPackageName } from '../../lib/companion/safety-lists.ts';
import { type NotificationTriggers, readActivity, readRules, type TriggerRule } from '../../lib/companion/triggers.ts';
import { RelayError } from '../../lib/errors.ts';
import { ACTIONS } from '../actions.ts';
import { actionOf, asName, flag, isGiven, type Options, option } from '../options.ts';
import {
  type CommandContext,
  CommandError,
  createStyle,
  line,
  printable,
  printJson,
  sentence,
  UsageError,
} from '../output.ts';
import { changeSettings } from './change.ts';
import { openCompanion, SETTINGS_OPTION } from './settings.ts';
import { triggerLines } from './trigger-lines.ts';

const ADD_OPTIONS = ['--app', '--label', '--title', '--text'] as const;

/**
 * `svc companion triggers`: the rules of `notification_triggers` (specification 2.1). For a matching notification, the
 * owner is asked whether to forward it to the agent.
 */
export function define(command: Command): void {
  command
    .option('--app <package>', 'with add: the app whose notifications it is about')
    .option('--label <text>', 'with add: a name for the rule')
    .option('--title <text>', 'with add: only if the title contains this')
    .option('--text <text>', 'with add: only if the text contains this')
    .option(...SETTINGS_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} triggers                           # the rules, and what they did last`)
    .example((name) => `${name} triggers add ada --app com.android.messaging --title Ada --label "Ada writes"`)
    .example((name) => `${name} triggers on`)
    .example((name) => `${name} triggers disable ada`)
    .example((name) => `${name} triggers kill                      # none asks, whatever else is on; resume ends it`)
    .action(run);
}

type Action = (typeof ACTIONS.triggers)[number];

/** Actions that only set a toggle. */
const TOGGLES: Partial<Record<Action, Partial<NotificationTriggers>>> = {
  on: { notification_triggers_enabled: true },
  off: { notification_triggers_enabled: false },
  kill: { notification_triggers_kill_switch: true },
  resume: { notification_triggers_kill_switch: false },
  clear: { notification_trigger_rules_json: '[]' },
};

async function run(word: string | undefined, ids: string[], options: Options, context: CommandContext): Promise<void> {
  const action = actionOf(word, ...ACTIONS.triggers);
  const surplus = ADD_OPTIONS.find((name) => action !== 'add' && isGiven(options, name));
  if (surplus !== undefined) throw new UsageError(`${surplus} is of use with add only`);
  const expectsIds = action === 'remove' || action === 'enable' || action === 'disable';
  if (expectsIds && ids.length === 0) throw new UsageError(`missing <rules>: give the id of what to ${action}`);
  if (!expectsIds && ids.length > (action === 'add' ? 1 : 0))
    throw new UsageError(`unexpected argument '${ids.at(-1)}'`);
  if (action === 'list') {
    const { settings } = await openCompanion(options, context);
    return show(settings.get().triggers, options, context);
  }
  const toggle = TOGGLES[action];
  const wanted = action === 'add' ? readRule(ids[0], options) : null;
  const { triggers } = await changeSettings(options, context, ({ triggers }) => {
    if (toggle) return { triggers: toggle };
    const rules = rulesOf(triggers, context);
    const next = wanted ? added(rules, wanted) : changed(action, rules, ids, context);
    const json = JSON.stringify(next);
    const { problem } = readRules(json);
    if (problem !== undefined) throw new UsageError(`this rule cannot be kept: ${problem}`);
    return { triggers: { notification_trigger_rules_json: json } };
  });
  show(triggers, options, context);
}

type WantedRule = Omit<TriggerRule, 'id'> & { id: string | undefined };

function readRule(id: string | undefined, options: Options): WantedRule {
  const app = option(options, '--app', readPackageName);
  if (app === undefined)
    throw new UsageError('missing --app: give the package of the app, such as com.android.messaging');
  return {
    id,
    label: option(options, '--label', asName) ?? id ?? app,
    enabled: true,
    app_package: app,
    title_contains: option(options, '--title', asPart),
    text_contains: option(options, '--text', asPart),
    action: 'ask_me',
    require_confirmation: false,
  };
}

function asPart(text: string): string {
  if (text.trim() === '') throw new RelayError('invalid', 'must not be blank');
  return text;
}

/** @throws CommandError while the stored rules cannot be read: adding to them would drop what the owner has written. */
function rulesOf({ notification_trigger_rules_json: json }: NotificationTriggers, { program }: CommandContext) {
  const { rules, problem } = readRules(json);
  if (problem === undefined) return rules;
  throw new CommandError(
    `the stored rules are malformed: ${problem}`,
    `Delete them all with: ${program} triggers clear`,
  );
}

function added(rules: readonly TriggerRule[], { id, ...rest }: WantedRule): TriggerRule[] {
  if (rules.some((rule) => rule.id === id)) throw new UsageError(`there is a rule '${printable(id ?? '')}' already`);
  let number = rules.length + 1;
  while (rules.some((rule) => rule.id === `rule-${number}`)) number++;
  return [...rules, { id: id ?? `rule-${number}`, ...rest }];
}

function changed(action: Action, rules: readonly TriggerRule[], ids: string[], { program }: CommandContext) {
  const unknown = ids.find((id) => !rules.some((rule) => rule.id === id));
  if (unknown !== undefined) {
    throw new CommandError(`there is no rule '${printable(unknown)}'`, `List the rules with: ${program} triggers`);
  }
  if (action === 'remove') return rules.filter(({ id }) => !ids.includes(id));
  return rules.map((rule) => (ids.includes(rule.id) ? { ...rule, enabled: action === 'enable' } : rule));
}

function show(triggers: NotificationTriggers, options: Options, context: CommandContext): void {
  const { stdout, program } = context;
  const { rules, problem } = readRules(triggers.notification_trigger_rules_json);
  const activity = readActivity(triggers.notification_trigger_activity_log_json);
  if (flag(options, '--json')) {
    printJson(stdout, { notification_triggers: triggers, rules, problem: problem ?? null, activity });
    return;
  }
  const { bold } = createStyle(stdout, context.env);
  const [state = '', ...more] = triggerLines(triggers);
  line(stdout, bold(state));
  for (const text of more) line(stdout, text);
  sentence(stdout, nextStep(triggers, rules.length, problem, program));
}

function nextStep(triggers: NotificationTriggers, count: number, problem: string | undefined, program: string): string {
  if (problem !== undefined) return `Next: delete the rules with ${program} triggers clear`;
  if (count === 0) return `Next: ${program} triggers add --app com.android.messaging --title Ada`;
  if (triggers.notification_triggers_kill_switch) return `Next: end that with ${program} triggers resume`;
  if (!triggers.notification_triggers_enabled) return `Next: switch them on with ${program} triggers on`;
  return `Next: ${program} run, and s there lets the phone receive a text message`;
}

import type { Command } from 'cac';
import { MAX_BLOCKED, readPackageName, withAdded, withRemoved } from '../../lib/companion/safety-lists.ts';
import { defaultSettings, type SafetySettings } from '../../lib/companion/safety-settings.ts';
import { RelayError } from '../../lib/errors.ts';
import { ACTIONS } from '../actions.ts';
import { actionOf, flag, type Options } from '../options.ts';
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

/** `svc companion blocklist [list|add|remove|reset]`: apps in which every command is refused (contract 03 §8.6). */
export function define(command: Command): void {
  command
    .option(...SETTINGS_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} blocklist`)
    .example((name) => `${name} blocklist add org.example.shop`)
    .example((name) => `${name} blocklist remove com.venmo`)
    .example((name) => `${name} blocklist reset                  # the list that a new phone has`)
    .action(run);
}

async function run(word: string | undefined, words: string[], options: Options, context: CommandContext) {
  const action = actionOf(word, ...ACTIONS.blocklist);
  const expectsNames = action === 'add' || action === 'remove';
  if (!expectsNames && words.length > 0) throw new UsageError(`unexpected argument '${words[0]}'`);
  if (expectsNames && words.length === 0) {
    throw new UsageError(`missing <packages>: name what to ${action}, such as org.example.shop`);
  }
  if (action === 'list') {
    const { settings } = await openCompanion(options, context);
    return show(settings.get(), options, context);
  }
  const names = words.map(packageName);
  const settings = await changeSettings(options, context, ({ blocklist }) => {
    if (action === 'reset') return { blocklist: defaultSettings().blocklist };
    if (action === 'remove') return { blocklist: without(blocklist, names, context) };
    const longer = withAdded(blocklist, names);
    if (longer.length <= MAX_BLOCKED) return { blocklist: longer };
    throw new CommandError(
      `a blocklist has at most ${MAX_BLOCKED} apps`,
      `Remove some with: ${context.program} blocklist remove ${blocklist[0]}`,
    );
  });
  show(settings, options, context);
}

function packageName(word: string): string {
  try {
    return readPackageName(word);
  } catch (error) {
    throw error instanceof RelayError ? new UsageError(`'${printable(word)}' ${error.message}`) : error;
  }
}

function without(blocklist: string[], names: string[], { program }: CommandContext): string[] {
  const missing = names.find((name) => !blocklist.includes(name));
  if (missing === undefined) return withRemoved(blocklist, names);
  throw new CommandError(`${missing} is not on the blocklist`, `List it with: ${program} blocklist`);
}

function show({ blocklist }: SafetySettings, options: Options, context: CommandContext): void {
  const { stdout, program } = context;
  if (flag(options, '--json')) {
    printJson(stdout, { blocklist });
    return;
  }
  const { bold } = createStyle(stdout, context.env);
  line(stdout, bold(blocklist.length === 0 ? 'No app is blocked.' : 'Blocked: every command is refused in'));
  for (const name of blocklist) line(stdout, `  ${printable(name)}`);
  sentence(stdout, `Next: block another app with ${bold(`${program} blocklist add org.example.shop`)}`);
}

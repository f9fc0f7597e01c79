import type { Command } from 'cac';
import { trustableVerbs, withAdded, withRemoved } from '../../lib/companion/safety-lists.ts';
import type { SafetySettings } from '../../lib/companion/safety-settings.ts';
import { ACTIONS } from '../actions.ts';
import { didYouMean } from '../did-you-mean.ts';
import { actionOf, flag, type Options } from '../options.ts';
import { type CommandContext, CommandError, createStyle, line, printJson, sentence, UsageError } from '../output.ts';
import { changeSettings } from './change.ts';
import { openCompanion, SETTINGS_OPTION } from './settings.ts';

/**
 * `svc companion trusted [list|add|remove]`: the verbs of `bridge_trusted_destructive_verbs`, which skip the question
 * (specification 2.1, contract 03 §8.3). The master toggle, the blocklist and missing grants still refuse.
 */
export function define(command: Command): void {
  command
    .option(...SETTINGS_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} trusted`)
    .example((name) => `${name} trusted add buy send_sms     # the phone buys and texts without asking`)
    .example((name) => `${name} trusted remove buy`)
    .action(run);
}

async function run(word: string | undefined, words: string[], options: Options, context: CommandContext) {
  const action = actionOf(word, ...ACTIONS.trusted);
  const verbs = words.map((verb) => verb.trim().toLowerCase());
  if (action === 'list') {
    if (verbs.length > 0) throw new UsageError(`unexpected argument '${words[0]}'`);
    const { settings } = await openCompanion(options, context);
    return show(settings.get(), options, context);
  }
  if (verbs.length === 0) throw new UsageError(`missing <verbs>: name what to ${action}, such as send_sms`);
  const settings = await changeSettings(options, context, (settings) => {
    const { trustedVerbs } = settings;
    if (action === 'add') {
      for (const verb of verbs) checkVerb(verb, settings);
      return { trustedVerbs: withAdded(trustedVerbs, verbs) };
    }
    const missing = verbs.find((verb) => !trustedVerbs.includes(verb));
    if (missing !== undefined) {
      throw new CommandError(`'${missing}' is not trusted`, `List the trusted verbs with: ${context.program} trusted`);
    }
    return { trustedVerbs: withRemoved(trustedVerbs, verbs) };
  });
  show(settings, options, context);
}

/** @throws UsageError for a word that the phone never asks about: trusting it would change nothing. */
function checkVerb(verb: string, settings: SafetySettings): void {
  const known = trustableVerbs(settings);
  if (known.includes(verb)) return;
  throw new UsageError(
    `the phone does not ask about '${verb}'${didYouMean(verb, known)}; it asks about ${known.join(', ')}`,
  );
}

function show({ trustedVerbs }: SafetySettings, options: Options, context: CommandContext): void {
  const { stdout, program } = context;
  if (flag(options, '--json')) {
    printJson(stdout, { bridge_trusted_destructive_verbs: trustedVerbs });
    return;
  }
  const { bold } = createStyle(stdout, context.env);
  if (trustedVerbs.length === 0) {
    sentence(stdout, 'No verb is trusted: the phone asks before everything destructive.');
    sentence(stdout, `Next: ${bold(`${program} trusted add send_sms`)} stops the question about one.`);
    return;
  }
  line(stdout, bold('Trusted: the phone does not ask about'));
  for (const verb of trustedVerbs) line(stdout, `  ${verb}`);
  sentence(stdout, 'The master toggle, the blocklist and missing grants still refuse.');
  sentence(stdout, `Next: ${bold(`${program} trusted remove ${trustedVerbs[0]}`)} brings the question back.`);
}

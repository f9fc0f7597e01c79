import { type CAC, type Command, cac } from 'cac';
import { describeError } from '../lib/errors.ts';
import {
  registerCompanionPair,
  registerCompanionRun,
  registerCompanionStatus,
  registerCompanionUnpair,
} from './companion.ts';
import { registerCompat } from './compat.ts';
import { registerDoctor } from './doctor.ts';
import { commandHelp, programHelp } from './help.ts';
import { registerInsecureApiKey } from './insecure-api-key.ts';
import { registerOperatorToken } from './operator-token.ts';
import { parseCommandLine } from './options.ts';
import { type CommandContext, CommandError, exitCodeOf, line, printable, printError, UsageError } from './output.ts';
import { registerPair } from './pair.ts';
import { registerPhoneCancel, registerPhoneList, registerPhoneSend } from './phone.ts';
import { registerProfiles } from './profiles.ts';
import { registerService } from './service.ts';
import { registerStart } from './start.ts';
import { registerUpdateCheck } from './update-check.ts';
import { ownPackage } from './version.ts';

/** THE command tables. A command is one line here and one file beside this one. */
const relayCommands = [
  registerStart,
  registerService,
  registerDoctor,
  registerUpdateCheck,
  registerProfiles,
  registerCompat,
  registerInsecureApiKey,
  registerOperatorToken,
];
const svcCommands = [registerPair];
const companionCommands = [
  registerCompanionPair,
  registerCompanionRun,
  registerCompanionStatus,
  registerCompanionUnpair,
];

const phoneCommands = [registerPhoneSend, registerPhoneList, registerPhoneCancel];

type Register = (program: CAC) => void;

/** Programs inside `svc`: the word that leads there, what they are for, their commands. */
const nestedPrograms: Record<string, { summary: string; commands: Register[] }> = {
  relay: { summary: "run and look after this machine's relay", commands: relayCommands },
  phone: { summary: 'send messages to the phone, and see what waits for it', commands: phoneCommands },
  companion: { summary: 'be a phone in the terminal, to try the relay without one', commands: companionCommands },
};

const EXAMPLES: Record<string, string[]> = {
  svc: ['svc relay start', 'svc pair'],
  'svc companion': ['svc pair | svc companion pair -', 'svc companion run'],
  'svc phone': ['svc phone send "Dinner is ready"', 'svc phone list'],
  'svc relay': ['svc relay start', 'svc relay doctor', 'svc relay service install'],
  'svc-relay': ['svc-relay start', 'svc-relay pair'],
};

export type Program = 'svc' | 'svc-relay';

/**
 * Runs one command line (without node and script) and returns its exit code: 0 done, 1 failed, 2 wrongly asked
 * (contract 07 §5). Nothing is thrown. `svc relay <command>` is `svc-relay <command>`; `pair` is a command of `svc`
 * and of `svc-relay`; `svc companion <command>` and `svc phone <command>` are programs of their own.
 */
export async function main(argv: string[], program: Program, given: Partial<CommandContext> = {}): Promise<number> {
  const word = program === 'svc' && Object.hasOwn(nestedPrograms, argv[0] ?? '') ? argv[0] : undefined;
  const nested = word === undefined ? undefined : nestedPrograms[word];
  const context: CommandContext = {
    stdin: process.stdin,
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
    program: nested ? `svc ${word}` : program,
    ownPackage: ownPackage(),
    // Loaded when needed: most commands, and every `--help`, do without.
    createHost: async (agentHome) => (await import('../lib/host/node/index.ts')).createNodeHost({ agentHome }),
    ...given,
  };
  const cli = cac(context.program);
  const own = program === 'svc' ? svcCommands : [...relayCommands, ...svcCommands];
  for (const register of nested?.commands ?? own) register(cli);
  for (const example of EXAMPLES[context.program] ?? []) cli.example(example);
  const words = nested ? argv.slice(1) : argv;
  try {
    return await run(cli, words[0] === 'help' ? [...words.slice(1), '--help'] : words, context);
  } catch (error) {
    printError(context, printable(describeError(error)));
    if (error instanceof CommandError && error.next) line(context.stderr, error.next);
    if (error instanceof UsageError) line(context.stderr, `Run '${helpCommand(cli, words)}' for help.`);
    return exitCodeOf(error);
  }
}

/**
 * An action is called with the command's arguments (undefined where left out), its options as `parseCommandLine`
 * returns them, and the `CommandContext`. It may return an exit code; without one the command has done its work.
 */
async function run(cli: CAC, words: string[], context: CommandContext): Promise<number> {
  const flags = words.slice(0, words.includes('--') ? words.indexOf('--') : undefined);
  const name = words[0]?.startsWith('-') ? undefined : words[0];
  const command = name === undefined ? undefined : find(cli, name);
  if (name !== undefined && !command) throw new UsageError(unknownCommand(cli, name));
  if (flags.includes('--help') || flags.includes('-h')) {
    context.stdout.write(command ? commandHelp(cli, command) : programHelp(cli, otherRows(cli)));
    return 0;
  }
  if (flags.includes('--version') || flags.includes('-v')) {
    line(context.stdout, `svc-relay ${context.ownPackage.version}`);
    return 0;
  }
  if (!command) {
    if (words[0] !== undefined) throw new UsageError(`unknown option ${words[0]}`);
    context.stderr.write(programHelp(cli, otherRows(cli)));
    return 2;
  }
  const { positionals, options } = parseCommandLine(command, words.slice(1));
  const args = command.args.map((arg, index) => (arg.variadic ? positionals.slice(index) : positionals[index]));
  const code: unknown = await command.commandAction?.(...args, options, context);
  return typeof code === 'number' ? code : 0;
}

const find = (cli: CAC, name: string): Command | undefined => cli.commands.find((command) => command.isMatched(name));

const otherRows = (cli: CAC): [string, string][] =>
  cli.name === 'svc' ? Object.entries(nestedPrograms).map(([word, { summary }]) => [`${word} <command>`, summary]) : [];

/** A known command asked of the wrong program is named with the right ones. */
function unknownCommand(cli: CAC, name: string): string {
  const programs = Object.entries(nestedPrograms).map(([word, { commands }]) => ({ path: `svc ${word}`, commands }));
  const places = [{ path: 'svc', commands: svcCommands }, ...programs].filter(({ path, commands }) => {
    const other = cac(path);
    for (const register of commands) register(other);
    return path !== cli.name && find(other, name) !== undefined;
  });
  const elsewhere = cli.name === 'svc-relay' ? [] : places.map(({ path }) => `'${path} ${name}'`);
  return `unknown command '${name}'${elsewhere.length > 0 ? `; it is ${elsewhere.join(' or ')}` : ''}`;
}

const helpCommand = (cli: CAC, words: string[]): string =>
  words[0] !== undefined && find(cli, words[0]) ? `${cli.name} ${words[0]} --help` : `${cli.name} --help`;

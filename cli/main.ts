import { type CAC, type Command, cac } from 'cac';
import { describeError } from '../lib/errors.ts';
import { isCalledByNpm, namedAsCalled } from './called.ts';
import { type CommandEntry, nestedPrograms, type Program, type ProgramName, programs } from './commands.ts';
import { commandHelp, programHelp } from './help.ts';
import { didYouMean } from './nearest.ts';
import { parseCommandLine } from './options.ts';
import {
  type CommandContext,
  CommandError,
  exitCodeOf,
  line,
  printable,
  printError,
  sentence,
  UsageError,
  withNextStep,
} from './output.ts';
import { ownPackage } from './own-package.ts';

/** Milliseconds that open handles of a finished command may hold the process. An unanswered DNS look-up holds it long. */
const EXIT_GRACE = 50;

/** Columns of a help text that goes into a file or a pipe. */
const HELP_WIDTH = 80;

/** Runs the command line of this process and sets its exit code. */
export async function runProgram(name: ProgramName): Promise<void> {
  // A reader that went away (`| head`) is no reason for a stack trace.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
  const [script = '', ...argv] = process.argv.slice(1);
  const overrides: Partial<CommandContext> = {};
  if (isCalledByNpm(script, process.env)) {
    overrides.stderr = namedAsCalled(process.stderr);
    // JSON is for programs, and may quote what others wrote.
    if (!argv.includes('--json')) overrides.stdout = namedAsCalled(process.stdout);
  }
  process.exitCode = await main(argv, name, overrides);
  setTimeout(() => process.exit(), EXIT_GRACE).unref();
}

/**
 * Runs one command line (without node and script) and returns its exit code: 0 success, 1 failure, 2 wrong usage
 * (contract 07 §5). Never throws.
 */
export async function main(
  argv: string[],
  name: ProgramName,
  overrides: Partial<CommandContext> = {},
): Promise<number> {
  const word = name === 'svc' && Object.hasOwn(nestedPrograms, argv[0] ?? '') ? argv[0] : undefined;
  const nested = word === undefined ? undefined : nestedPrograms[word];
  const program = nested ?? programs[name];
  const context: CommandContext = {
    // Opened by the commands that read it.
    get stdin() {
      return process.stdin;
    },
    stdout: process.stdout,
    stderr: process.stderr,
    env: process.env,
    program: nested ? `svc ${word}` : name,
    ownPackage: ownPackage(),
    // Loaded on demand: most commands, and every `--help`, do without.
    createHost: async (agentHome) => (await import('../lib/host/node/index.ts')).createNodeHost({ agentHome }),
    ...overrides,
  };
  const cli = createCli(context.program, program.commands);
  const words = nested ? argv.slice(1) : argv;
  try {
    return await run(cli, program, words[0] === 'help' ? [...words.slice(1), '--help'] : words, context);
  } catch (thrown) {
    const error = withNextStep(thrown);
    printError(context, printable(describeError(error)));
    if (error instanceof CommandError && error.next) sentence(context.stderr, error.next);
    if (error instanceof UsageError) line(context.stderr, `Run '${helpCommand(cli, words)}' for help.`);
    return exitCodeOf(error);
  }
}

function createCli(path: string, commands: CommandEntry[]): CAC {
  const cli = cac(path);
  for (const { usage, summary, alias } of commands) {
    const command = cli.command(usage, summary);
    if (alias !== undefined) command.alias(alias);
  }
  return cli;
}

/**
 * An action is called with the command's arguments (undefined where left out), its options as `parseCommandLine`
 * returns them, and the `CommandContext`. It may return an exit code; without one the command succeeded.
 */
async function run(cli: CAC, program: Program, words: string[], context: CommandContext): Promise<number> {
  const flags = words.slice(0, words.includes('--') ? words.indexOf('--') : undefined);
  const name = words[0]?.startsWith('-') ? undefined : words[0];
  const command = name === undefined ? undefined : find(cli, name);
  if (name !== undefined && !command) throw new UsageError(unknownCommand(cli, name));
  const columns = (context.stdout.isTTY && context.stdout.columns) || HELP_WIDTH;
  const wantsHelp = flags.includes('--help') || flags.includes('-h');
  if (!wantsHelp && (flags.includes('--version') || flags.includes('-v'))) {
    line(context.stdout, `svc-relay ${context.ownPackage.version}`);
    return 0;
  }
  if (!command) {
    if (!wantsHelp && words[0] !== undefined) throw new UsageError(`unknown option ${words[0]}`);
    context.stdout.write(programHelp(cli, program.examples, nestedRows(cli), columns));
    if (wantsHelp) return 0;
    // The help is there already: no hint how to get it.
    printError(context, `missing command after '${cli.name}'`);
    return 2;
  }
  const entry = program.commands[cli.commands.indexOf(command)] as CommandEntry;
  (await entry.load()).define(command);
  if (wantsHelp) {
    context.stdout.write(commandHelp(cli, command, columns));
    return 0;
  }
  const { positionals, options } = parseCommandLine(command, words.slice(1));
  const args = command.args.map((arg, index) => (arg.variadic ? positionals.slice(index) : positionals[index]));
  const code: unknown = await command.commandAction?.(...args, options, context);
  return typeof code === 'number' ? code : 0;
}

const find = (cli: CAC, name: string): Command | undefined => cli.commands.find((command) => command.isMatched(name));

const nestedRows = (cli: CAC): [string, string][] =>
  cli.name === 'svc' ? Object.entries(nestedPrograms).map(([word, { summary }]) => [`${word} <command>`, summary]) : [];

/** For a command of another program, the message names that program. */
function unknownCommand(cli: CAC, name: string): string {
  const nested = Object.entries(nestedPrograms).map(([word, { commands }]) => ({ path: `svc ${word}`, commands }));
  const places = [{ path: 'svc', commands: programs.svc.commands }, ...nested].filter(
    ({ path, commands }) => path !== cli.name && find(createCli(path, commands), name) !== undefined,
  );
  const elsewhere = cli.name === 'svc-relay' ? [] : places.map(({ path }) => `'${path} ${name}'`);
  if (elsewhere.length > 0) return `unknown command '${name}'; it is ${elsewhere.join(' or ')}`;
  const own = [
    ...cli.commands.map((command) => command.name),
    ...nestedRows(cli).map(([word]) => word.split(' ', 1)[0] ?? ''),
  ];
  return `unknown command '${name}'${didYouMean(name, own)}`;
}

const helpCommand = (cli: CAC, words: string[]): string =>
  words[0] !== undefined && find(cli, words[0]) ? `${cli.name} ${words[0]} --help` : `${cli.name} --help`;

import { type CAC, type Command, cac } from 'cac';
import { describeError } from '../lib/errors.ts';
import { type CommandEntry, nestedPrograms, type Program, type ProgramName, programs } from './commands.ts';
import { type Invocation, isRunByNpm, withInvokedNames } from './invocation.ts';
import { parseCommandLine } from './options.ts';
import {
  asInvoked,
  type CommandContext,
  CommandError,
  exitCodeOf,
  line,
  printable,
  printError,
  printJson,
  sentence,
  UsageError,
  withNextStep,
} from './output.ts';
import { buildText, ownPackage } from './own-package.ts';

/** Milliseconds that open handles of a finished command may hold the process. An unanswered DNS look-up holds it long. */
const EXIT_GRACE = 50;

/** Columns of a help text that goes into a file or a pipe. */
const HELP_WIDTH = 80;

/** Characters of a message on stderr that becomes the error of a JSON document. */
const MAX_ERROR = 2000;

/** Runs the command line of this process and sets its exit code. */
export async function runProgram(name: ProgramName): Promise<void> {
  // A reader that closed the pipe (`| head`) must not cause a stack trace.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
  const [script = '', ...argv] = process.argv.slice(1);
  process.exitCode = await main(argv, name, { isRunByNpm: isRunByNpm(script, process.env) });
  setTimeout(() => process.exit(), EXIT_GRACE).unref();
}

/**
 * Runs one command line (without node and script) and returns its exit code: 0 success, 1 failure, 2 wrong usage
 * (contract 07 §5). With `--json`, a failure is a JSON document on stdout too (contract 11 §1). Never throws.
 */
export async function main(
  argv: string[],
  name: ProgramName,
  overrides: Partial<CommandContext> = {},
): Promise<number> {
  // `svc help relay start` is `svc relay start --help`.
  const given = argv[0] === 'help' ? [...argv.slice(1), '--help'] : argv;
  const word = name === 'svc' && Object.hasOwn(nestedPrograms, given[0] ?? '') ? given[0] : undefined;
  const nested = word === undefined ? undefined : nestedPrograms[word];
  const program = nested ?? programs[name];
  const invocation: Invocation = { npx: overrides.isRunByNpm === true };
  let isAnswered = false;
  let complaint = '';
  const { stdout = process.stdout, stderr = process.stderr } = overrides;
  const context: CommandContext = {
    // Opened by the commands that read it.
    get stdin() {
      return process.stdin;
    },
    env: process.env,
    program: nested ? `svc ${word}` : name,
    ownPackage: ownPackage(),
    // Loaded on demand: most commands and every `--help` do not need it.
    createHost: async (agentHome) => (await import('../lib/host/node/index.ts')).createNodeHost({ agentHome }),
    ...overrides,
    stdout: withInvokedNames(stdout, invocation, () => {
      isAnswered = true;
    }),
    stderr: withInvokedNames(stderr, invocation, (text) => {
      complaint = (complaint + text).slice(-MAX_ERROR);
    }),
  };
  const cli = createCli(context.program, program.commands);
  const rest = nested ? given.slice(1) : given;
  const words = rest[0] === 'help' ? [...rest.slice(1), '--help'] : rest;
  const isJson = flagsOf(words).includes('--json');
  // Programs that read a stream have had their documents.
  const answer = (error: string, next?: string) => {
    printJson(context.stdout, { ok: false, error, next: next ?? null });
  };
  try {
    const code = await run(cli, program, words, context, invocation);
    if (code !== 0 && isJson && !isAnswered)
      answer(printable(complaint).replace(/^error: /, '') || `exit code ${code}`);
    return code;
  } catch (thrown) {
    const error = withNextStep(thrown);
    const message = printable(describeError(error));
    const help = `Run '${helpCommand(cli, words)}' for help.`;
    const next = error instanceof UsageError ? help : error instanceof CommandError ? error.next : undefined;
    if (isJson && !isAnswered) answer(message, next);
    else {
      printError(context, message);
      if (next) sentence(context.stderr, next);
    }
    return exitCodeOf(error);
  }
}

/** The words of a command line that may be flags: those before `--`. */
const flagsOf = (words: string[]): string[] => words.slice(0, words.includes('--') ? words.indexOf('--') : undefined);

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
async function run(
  cli: CAC,
  program: Program,
  words: string[],
  context: CommandContext,
  invocation: Invocation,
): Promise<number> {
  const flags = flagsOf(words);
  const name = words[0]?.startsWith('-') ? undefined : words[0];
  const command = name === undefined ? undefined : find(cli, name);
  if (name !== undefined && !command) {
    const { unknownCommand } = await import('./unknown-command.ts');
    throw new UsageError(unknownCommand(cli.name, program, name));
  }
  const columns = (context.stdout.isTTY && context.stdout.columns) || HELP_WIDTH;
  const named = (text: string) => asInvoked(context.stdout, text);
  const wantsHelp = flags.includes('--help') || flags.includes('-h');
  if (!wantsHelp && (flags.includes('--version') || flags.includes('-v'))) {
    line(context.stdout, `svc-relay ${buildText(context.ownPackage.version, context.ownPackage.build)}`);
    return 0;
  }
  if (!command) {
    if (!wantsHelp && words[0] !== undefined) throw new UsageError(`unknown option ${words[0]}`);
    const { programHelp } = await import('./help.ts');
    context.stdout.write(programHelp(cli, named, program.examples, nestedRows(cli), columns));
    return 0;
  }
  const entry = program.commands[cli.commands.indexOf(command)] as CommandEntry;
  (await entry.load()).define(command);
  if (wantsHelp) {
    const { commandHelp } = await import('./help.ts');
    context.stdout.write(commandHelp(cli, command, named, columns));
    return 0;
  }
  const { positionals, options } = parseCommandLine(command, words.slice(1));
  if (typeof options.relay === 'string') invocation.relay = options.relay;
  if (typeof options.settings === 'string') invocation.settings = options.settings;
  await (await import('./backup/end-restore.ts')).endRestore(context);
  // `svc status` shows both builds.
  if (entry.usage !== 'status' && (entry.target === 'relay' || entry.asksRelay)) {
    await (await import('./outdated.ts')).noteOutdated(options, context, invocation);
  }
  const args = command.args.map((arg, index) => (arg.variadic ? positionals.slice(index) : positionals[index]));
  const code: unknown = await command.commandAction?.(...args, options, context);
  return typeof code === 'number' ? code : 0;
}

const find = (cli: CAC, name: string): Command | undefined => cli.commands.find((command) => command.isMatched(name));

const nestedRows = (cli: CAC): [string, string][] =>
  cli.name === 'svc' ? Object.entries(nestedPrograms).map(([word, { summary }]) => [`${word} <command>`, summary]) : [];

const helpCommand = (cli: CAC, words: string[]): string =>
  words[0] !== undefined && find(cli, words[0]) ? `${cli.name} ${words[0]} --help` : `${cli.name} --help`;

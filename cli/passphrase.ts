import type { Host } from '../lib/host/index.ts';
import { MIN_PASSPHRASE } from '../lib/kit/passphrase.ts';
import { asText, flag, type Options, option } from './options.ts';
import { type CommandContext, CommandError, printable, UsageError } from './output.ts';
import { createChunkReader, readAll } from './stdin.ts';

const MAX_PASSPHRASE = 4096;

/** Options of the commands that call `readPassphrase`. Not an argument or a variable, which other users can see. */
export const PASSPHRASE_OPTIONS: readonly (readonly [flag: string, description: string])[] = [
  ['--passphrase-file <path>', 'read the passphrase from the first line of this file'],
  ['--passphrase-stdin', 'read the passphrase from the first line of stdin'],
];

/**
 * The passphrase, typed without echo, or from the source in the options. A new one is typed twice.
 * @throws UsageError without a terminal and without an option; CommandError for an unusable one.
 */
export async function readPassphrase(
  options: Options,
  context: CommandContext,
  { host, isNew }: { host: Pick<Host, 'files'>; isNew: boolean },
): Promise<string> {
  const path = option(options, '--passphrase-file', asText);
  const fromStdin = flag(options, '--passphrase-stdin');
  if (path !== undefined && fromStdin) {
    throw new UsageError('give --passphrase-file or --passphrase-stdin, not both');
  }
  const typed = path === undefined && !fromStdin;
  const passphrase = typed
    ? await type('Passphrase', context)
    : firstLine(
        path === undefined ? await readAll(context, 'the passphrase', 'stdin is too long') : await readFile(path, host),
      );
  if (!isNew) return passphrase;
  if (passphrase.length < MIN_PASSPHRASE) {
    throw new CommandError(
      `the passphrase is too short: it needs at least ${MIN_PASSPHRASE} characters`,
      'Choose a longer one, such as four words, and try again.',
    );
  }
  if (typed && (await type('The same again', context)) !== passphrase) {
    throw new CommandError('the two passphrases differ', 'Type the same one twice.');
  }
  return passphrase;
}

const firstLine = (text: string): string => text.split(/\r?\n/, 1)[0] ?? '';

async function readFile(path: string, { files }: Pick<Host, 'files'>): Promise<string> {
  const text = await files.readText(path, MAX_PASSPHRASE).catch((error: NodeJS.ErrnoException) => error);
  if (typeof text === 'string') return text;
  throw new CommandError(
    `the passphrase file ${printable(path)} ${text === null ? 'does not exist' : `cannot be read: ${text.code}`}`,
    'Give another file with --passphrase-file, or none to type the passphrase.',
  );
}

/** Reads a line from the terminal without echo. Ctrl-C cancels. */
function type(label: string, { stdin, stderr }: CommandContext): Promise<string> {
  if (!stdin.isTTY || !stderr.isTTY) {
    throw new UsageError(
      'there is no terminal to type the passphrase on: give --passphrase-file or --passphrase-stdin',
    );
  }
  // Before the label, so that a fast typist is not echoed.
  stdin.setRawMode?.(true);
  stderr.write(`${label}: `);
  return new Promise((resolve, reject) => {
    let text = '';
    const done = (settle: () => void) => {
      stdin.off('data', onData);
      stdin.off('end', onEnd);
      stdin.setRawMode?.(false);
      stdin.pause();
      stderr.write('\n');
      settle();
    };
    const giveUp = () => {
      done(() =>
        reject(new CommandError('no passphrase was typed; nothing was changed', 'Run the same command again.')),
      );
    };
    const onEnd = giveUp;
    const textOf = createChunkReader();
    const onData = (data: Buffer | string) => {
      for (const key of textOf(data)) {
        if (key === '\r' || key === '\n') return done(() => resolve(text));
        if (key === '\u0003' || key === '\u0004') return giveUp();
        if (key === '\u007f' || key === '\b') text = [...text].slice(0, -1).join('');
        else if (key === '\u0015') text = '';
        else if (key >= ' ' && text.length < MAX_PASSPHRASE) text += key;
      }
    };
    stdin.on('data', onData);
    stdin.on('end', onEnd);
    stdin.resume();
  });
}

import { type CommandContext, clean, type Input, UsageError, wrapped } from './output.ts';

const MAX_ANSWER = 1024;

/**
 * Asks a question on the terminal, on stderr; anything but `y` or `yes` is a no.
 * @throws UsageError with `withoutTerminal` as its message where nobody can answer.
 */
export async function confirm(
  { stdin, stderr }: CommandContext,
  question: string,
  withoutTerminal: string,
): Promise<boolean> {
  return /^y(?:es)?$/i.test(await ask({ stdin, stderr }, `${question} [y/N]`, withoutTerminal));
}

/**
 * Asks for a line on the terminal, on stderr; blank for the default.
 * @throws UsageError with `withoutTerminal` as its message where nobody can answer.
 */
export async function ask(
  { stdin, stderr }: Pick<CommandContext, 'stdin' | 'stderr'>,
  question: string,
  withoutTerminal: string,
): Promise<string> {
  if (!stdin.isTTY || !stderr.isTTY) throw new UsageError(withoutTerminal);
  stderr.write(`${wrapped(stderr, clean(question)).join('\n')} `);
  return (await readLine(stdin, () => stderr.write('\n'))).trim();
}

/** One line of stdin, without its end; what there is of it when stdin ends, which calls `onCut`: no Enter was shown. */
function readLine(stdin: Input, onCut: () => void): Promise<string> {
  return new Promise((resolve) => {
    let text = '';
    const done = () => {
      stdin.off('data', onData);
      stdin.off('end', onEnd);
      stdin.pause();
      resolve(text.split(/[\r\n]/, 1)[0] as string);
    };
    const onEnd = () => {
      onCut();
      done();
    };
    const onData = (data: Buffer | string) => {
      text += data;
      if (/[\r\n]/.test(text) || text.length > MAX_ANSWER) done();
    };
    stdin.on('data', onData);
    stdin.on('end', onEnd);
    stdin.resume();
  });
}

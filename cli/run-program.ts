import { main, type Program } from './main.ts';

/** How long what a finished command has left open may hold the process: a name look-up that gets no answer does for long. */
const GRACE = 50;

/** What the executable files do: the command line of this process, and its exit code. */
export async function runProgram(program: Program): Promise<void> {
  // A reader that went away (`| head`) is no reason for a stack trace.
  for (const stream of [process.stdout, process.stderr]) stream.on('error', () => {});
  process.exitCode = await main(process.argv.slice(2), program);
  setTimeout(() => process.exit(), GRACE).unref();
}

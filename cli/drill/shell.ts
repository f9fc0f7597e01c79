import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Message } from '../../lib/socket/envelope.ts';
import { pause } from '../pause.ts';
import type { Session, Stage } from './stage.ts';
import type { Tally, Work } from './tally.ts';

/** Lines of output of one command. */
const LINES = 400;
/** Milliseconds without any output after which the connection counts as dead. */
const SILENCE = 5000;
const PACE = 100;
/** Characters of the end of the output that may be the beginning of a line. */
const MAX_TAIL = 64;
const NAME = 'drill';

/** Notes that it ran, and prints numbered lines. */
const SCRIPT = `echo "$1" >> "$(dirname "$0")/shell-runs"
i=0
while [ $i -lt ${LINES} ]; do
  i=$((i + 1))
  echo "<$1:$i>"
done
`;

/** A shell that runs numbered commands, each of which prints a known number of lines in a known order. */
export async function createShellWork(
  stage: Stage,
  token: string,
  folder: string,
): Promise<Work & { verify(): Promise<void> }> {
  const tally: Tally = { kind: 'shell', sent: 0, acknowledged: 0, repeated: 0, lost: 0, doubled: 0 };
  const script = join(folder, 'shell.sh');
  await writeFile(script, SCRIPT);
  let runs = 0;
  /** The command whose lines are counted, and its lines so far. */
  let counted = -1;
  let lines: number[] = [];
  let tail = '';
  let received = 0;

  function output({ type, payload }: Message): void {
    if (type !== 'terminal.output') return;
    received = performance.now();
    const text = tail + String(payload.data);
    let end = 0;
    for (const found of text.matchAll(/<(\d+):(\d+)>/g)) {
      end = found.index + found[0].length;
      if (Number(found[1]) === counted) lines.push(Number(found[2]));
    }
    tail = text.slice(Math.max(end, text.length - MAX_TAIL));
  }

  /** Runs one command. False when the connection was lost before its last line came. */
  async function run({ connection }: Session, signal: AbortSignal): Promise<boolean> {
    counted = runs++;
    lines = [];
    received = performance.now();
    tally.sent += LINES;
    connection.send('terminal', 'terminal.input', { session_name: NAME, data: `sh '${script}' ${counted}\r` });
    while (lines.at(-1) !== LINES) {
      if (signal.aborted || connection.gone.aborted || performance.now() - received > SILENCE) return false;
      await pause(10);
    }
    const distinct = new Set(lines).size;
    tally.acknowledged += LINES;
    tally.lost += LINES - distinct;
    tally.doubled += lines.length - distinct;
    if (lines.some((line, at) => line !== at + 1)) stage.note('lines of a shell came in another order');
    return true;
  }

  return {
    async run(signal) {
      while (!signal.aborted) {
        const session = await stage.authenticate({ session_token: token, device_id: 'drill-desk' }, output);
        if (session && 'refused' in session) return stage.note(`the shell's session was refused: ${session.refused}`);
        if (session) {
          void session.ended.then(() => session.connection.disconnect('terminate'));
          tail = '';
          session.connection.send('terminal', 'terminal.attach', {
            session_name: NAME,
            cols: 80,
            rows: 24,
            shell: '/bin/sh',
          });
          while (!signal.aborted && (await run(session, signal))) await pause(PACE, signal);
          await session.connection.disconnect('terminate');
        }
        await pause(PACE, signal);
      }
    },
    /** Counts commands that ran twice. */
    async verify() {
      const text = await readFile(join(folder, 'shell-runs'), 'utf8').catch(() => '');
      const ran = text.split('\n').filter((line) => line !== '');
      tally.doubled += (ran.length - new Set(ran).size) * LINES;
    },
    isSettled: () => true,
    tallies: () => [tally],
  };
}

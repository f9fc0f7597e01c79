import { pause } from '../pause.ts';
import type { Stage } from './stage.ts';
import { createLog, tallyOf, type Work } from './tally.ts';

const CALLERS = 3;
/** Milliseconds. */
const PACE = 60;
/** After a call that failed: the relay or the phone may be away. */
const PAUSE = 300;

/** Commands to the phone, each of which writes another text to its clipboard. They are never sent again. */
export function createCommandWork(stage: Stage, token: string): Work & { executed(text: string): void } {
  let sent = 0;
  const confirmed = createLog();
  const executed = createLog();

  async function call(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      const id = sent++;
      const headers = { authorization: `Bearer ${token}` };
      const answer = await stage.call({ method: 'POST', path: '/clipboard', body: { text: `drill ${id}` }, headers });
      if (answer?.status === 200) confirmed.add(id);
      else if (answer && ![429, 502, 503, 504].includes(answer.status)) {
        stage.note(`POST /clipboard was answered with ${answer.status}: ${String(answer.body.error)}`);
      }
      await pause(answer?.status === 200 ? PACE : PAUSE, signal);
    }
  }

  return {
    async run(signal) {
      await Promise.all(Array.from({ length: CALLERS }, () => call(signal)));
    },
    executed(text) {
      const id = Number(/^drill (\d+)$/.exec(text)?.[1]);
      if (Number.isInteger(id)) executed.add(id);
    },
    isSettled: () => true,
    tallies: () => [tallyOf('commands', sent, { confirmed, arrived: executed }, { doubled: executed.again })],
  };
}

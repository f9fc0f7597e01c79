import type { Payload } from '../../lib/socket/envelope.ts';
import { pause } from '../pause.ts';
import type { Stage } from './stage.ts';
import type { Tally, Work } from './tally.ts';

/** Milliseconds. */
const PACE = 250;

interface Credentials {
  token: string;
  refresh: string;
}

const read = ({ session_token: token, refresh_token: refresh }: Payload): Credentials => ({
  token: String(token),
  refresh: String(refresh),
});

/** Refreshes of one session. An answered one replaces its tokens for good; one without an answer is asked for again. */
export function createRefreshWork(stage: Stage, paired: Payload): Work {
  const tally: Tally = { kind: 'refreshes', sent: 0, acknowledged: 0, repeated: 0, lost: 0, doubled: 0 };
  let current: Credentials | undefined = read(paired);

  /** The status that a session token gets, asked until there is an answer. */
  async function statusOf(token: string, signal: AbortSignal): Promise<number | undefined> {
    while (!signal.aborted) {
      const answer = await stage.call({ path: '/sessions', headers: { authorization: `Bearer ${token}` } });
      if (answer && [200, 401].includes(answer.status)) return answer.status;
      await pause(PACE, signal);
    }
    return undefined;
  }

  return {
    async run(signal) {
      let isRepeat = false;
      while (!signal.aborted && current) {
        if (isRepeat) tally.repeated++;
        else tally.sent++;
        const { token, refresh } = current;
        const session = await stage.authenticate({ refresh_token: refresh, device_id: 'drill-refresher' });
        isRepeat = session === null;
        if (session && 'refused' in session) {
          tally.lost++;
          stage.note(`a refresh token was refused: ${session.refused}`);
          current = undefined;
        } else if (session) {
          void session.connection.disconnect('terminate');
          current = read(session.payload);
          tally.acknowledged++;
          if ((await statusOf(current.token, signal)) === 401) tally.lost++;
          if ((await statusOf(token, signal)) === 200) tally.doubled++;
        }
        await pause(PACE, signal);
      }
    },
    isSettled: () => true,
    tallies: () => [tally],
  };
}

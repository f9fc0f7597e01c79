import { authPayload, readIssuedSession } from '../../lib/companion/link/auth.ts';
import { openConnection } from '../../lib/companion/link/connection.ts';
import type { Dial } from '../../lib/host/dial.ts';
import type { Clock } from '../../lib/kit/clock.ts';

/** Milliseconds for each of the socket, `auth.ok` and the answer to a ping. */
const STEP_TIMEOUT = 5000;

const TRIAL_NAME = 'svc pair --check';

/** Result of a trial pairing. */
export interface Trial {
  /** The session's token, once issued, which must be revoked. */
  token: string | null;
  /** Milliseconds of a ping; null if it was not answered. */
  roundTrip: number | null;
  /** Why it stopped; null if it completed. */
  problem: string | null;
}

/** Pairs with a code over a socket, and pings once (contract 01 §3, 02 §2). Never rejects. */
export function tryPairing(
  code: string,
  { url, dial, clock, signal }: { url: string; dial: Dial; clock: Clock; signal: AbortSignal },
): Promise<Trial> {
  return new Promise((resolve) => {
    const trial: Trial = { token: null, roundTrip: null, problem: null };
    let cancelTimer = () => {};
    let pingedAt = 0;
    const end = (problem: string | null) => {
      cancelTimer();
      signal.removeEventListener('abort', abort);
      resolve({ ...trial, problem });
      void connection.disconnect('goodbye');
    };
    const abort = () => end('interrupted');
    const expect = (what: string) => {
      cancelTimer();
      cancelTimer = clock.after(STEP_TIMEOUT, () => end(`no ${what} within ${STEP_TIMEOUT / 1000} s`));
    };
    const connection = openConnection({
      dial,
      url,
      clock,
      onOpen() {
        const device = { name: TRIAL_NAME, surface: 'unknown', formFactor: 'unknown' };
        connection.send('system', 'auth', authPayload({ pairingCode: code }, crypto.randomUUID(), device));
        expect('auth.ok');
      },
      onMessage({ channel, type, payload }) {
        if (channel !== 'system') return;
        if (type === 'auth.fail') end(`the relay refused the code: ${payload.reason ?? 'no reason given'}`);
        if (type === 'auth.ok' && trial.token === null) {
          trial.token = readIssuedSession(payload)?.sessionToken ?? null;
          if (trial.token === null) return end('auth.ok has no usable session');
          pingedAt = clock.monotonic();
          connection.send('system', 'ping', { ts: pingedAt });
          expect('pong');
        }
        if (type === 'pong' && trial.token !== null) {
          trial.roundTrip = clock.monotonic() - pingedAt;
          end(null);
        }
      },
      onClose: ({ code, reason, status }) =>
        end(`the socket was closed: ${reason || (status === undefined ? `code ${code}` : `HTTP ${status}`)}`),
    });
    expect('socket');
    signal.addEventListener('abort', abort);
    if (signal.aborted) abort();
  });
}

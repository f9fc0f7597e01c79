import { WebSocket } from 'ws';
import { parseObject } from '../../lib/kit/json.ts';
import { keepAlive } from '../keep-alive.ts';
import { CommandError, printable } from '../output.ts';
import { nextAfter, throwIfStopped, type VoiceRelay } from './relay.ts';

const MAX_MESSAGE = 4 * 1024 * 1024;
/** Milliseconds of silence from the relay, which pings every 20 s. */
const SILENCE = 45_000;
/** Milliseconds for the handshake of a socket. */
const HANDSHAKE = 10_000;
const RETRY_DELAY = 200;
/** Milliseconds after which a relay that does not answer a close frame is abandoned. */
const LINGER = 1000;
const SEE_DOCTOR = 'See which providers and keys the relay has: svc voice doctor';

export type VoiceEvent = Record<string, unknown> & { type: string };

export type Send = (message: object) => void;

/** A client of one voice session. */
export interface SessionClient<T> {
  /** Messages that start its first socket, and every later one. */
  start(): object[];
  resume(): object[];
  /** A socket is open now. */
  opened?(send: Send): void;
  /**
   * Handles an event. Returns the outcome with the last one.
   * @throws CommandError that ends the session.
   */
  onEvent(event: VoiceEvent, send: Send): { outcome: T } | undefined;
  /** The command has to stop, and the socket will be closed. */
  stopped?(send: Send): void;
  /** The socket was lost, and the session will be resumed. */
  lost?(reason: string): void;
  /** Handles a socket that the relay has closed permanently; without it, or without an outcome, that is an error. */
  closed?(code: number, reason: string): { outcome: T } | undefined;
}

export interface Persistence {
  /** Maximum number of resumes of a lost session. */
  resumes: number;
  /** Milliseconds in which a lost socket has to be open again. */
  comeBack: number;
}

/** The socket was lost, which is not a failure yet. */
class Lost extends Error {}

/**
 * Runs a voice session over its socket, like a phone, and over another one if that is lost (contract 05 §12, contract 06
 * §4).
 * @throws CommandError with the relay's reason.
 */
export async function followSession<T>(
  relay: VoiceRelay,
  path: string,
  client: SessionClient<T>,
  { resumes, comeBack }: Persistence,
): Promise<T> {
  let isStarted = false;
  /** Number of sockets that received anything. */
  let sockets = 0;
  /** Time at which the last of them was lost; undefined while one is open. */
  let lostAt: number | undefined = performance.now();

  const attempt = (): Promise<T> =>
    connect(relay, path, client, {
      isResuming: () => isStarted,
      first: () => (isStarted ? client.resume() : client.start()),
      opened() {
        isStarted = true;
      },
      onReceived() {
        if (lostAt !== undefined) sockets++;
        lostAt = undefined;
      },
    });

  return keepAlive(
    (async () => {
      for (;;) {
        try {
          return await attempt();
        } catch (error) {
          if (!(error instanceof Lost)) throw error;
          const isNews = lostAt === undefined;
          lostAt ??= performance.now();
          if (sockets > resumes || performance.now() - lostAt > comeBack) {
            throw new CommandError(
              `the connection to the relay on ${relay.name} was lost: ${printable(error.message)}`,
              'Check the network, and that the relay runs: svc relay doctor',
            );
          }
          if (isNews) client.lost?.(error.message);
        }
        await new Promise((resolve) => setTimeout(resolve, RETRY_DELAY));
        throwIfStopped(relay.signal);
      }
    })(),
  );
}

/** Why the relay does not open a socket. */
function refusalOf(status: number, isResuming: boolean): CommandError {
  if (isResuming && (status === 404 || status === 410)) {
    const lost = 'the relay was restarted, or has ended the session: what was under way in it is lost';
    return new CommandError(lost, 'Run it again.');
  }
  return new CommandError(`the relay refused the socket of the session (HTTP ${status})`, nextAfter({ status }));
}

interface Beginning {
  /** True if an earlier socket was open. */
  isResuming(): boolean;
  first(): object[];
  opened(): void;
  /** Called with every message. */
  onReceived(): void;
}

/** Opens a socket, sends `first`, and waits for the outcome. Throws `Lost` if the socket ends before. */
function connect<T>(relay: VoiceRelay, path: string, client: SessionClient<T>, beginning: Beginning): Promise<T> {
  const { signal } = relay;
  const { url, ...options } = relay.socket(path);
  return new Promise((resolve, reject) => {
    const socket = new WebSocket(url, {
      ...options,
      perMessageDeflate: false,
      maxPayload: MAX_MESSAGE,
      handshakeTimeout: HANDSHAKE,
    });
    const send: Send = (message) => {
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
    };
    let failure = '';
    let silence: NodeJS.Timeout | undefined;
    const alive = () => {
      clearTimeout(silence);
      silence = setTimeout(() => {
        failure = `nothing was heard for ${SILENCE / 1000} s`;
        socket.terminate();
      }, SILENCE);
    };
    const isResuming = beginning.isResuming();
    let isSettled = false;
    const settle = (act: () => void, code: number) => {
      isSettled = true;
      act();
      socket.close(code);
      // A relay that has nothing more to send answers at once.
      setTimeout(() => socket.terminate(), LINGER).unref();
    };
    const abort = () => {
      client.stopped?.(send);
      settle(() => reject(new CommandError('stopped')), 1000);
    };
    signal.addEventListener('abort', abort, { once: true });
    socket.on('open', () => {
      for (const message of beginning.first()) send(message);
      beginning.opened();
      client.opened?.(send);
    });
    for (const sign of ['open', 'ping', 'message'] as const) socket.on(sign, alive);
    socket.on('message', (data) => {
      const event = parseObject(String(data));
      if (typeof event?.type !== 'string' || isSettled) return;
      beginning.onReceived();
      try {
        const end = client.onEvent(event as VoiceEvent, send);
        if (end) settle(() => resolve(end.outcome), 1000);
      } catch (error) {
        settle(() => reject(error), 1011);
      }
    });
    socket.on('unexpected-response', (_request, response) => {
      const status = response.statusCode ?? 0;
      response.resume();
      // A relay that stops, or a proxy without its relay, says nothing of the session.
      reject(isResuming && status >= 500 ? new Lost(`HTTP ${status}`) : refusalOf(status, isResuming));
      socket.terminate();
    });
    socket.on('error', (error) => {
      failure ||= error.message;
    });
    socket.on('close', (code, reason) => {
      clearTimeout(silence);
      signal.removeEventListener('abort', abort);
      const words = String(reason) || failure || `closed ${code}`;
      if (code !== 1000 && (code < 4000 || code >= 5000)) return reject(new Lost(words));
      const end = client.closed?.(code, words);
      if (end) resolve(end.outcome);
      else reject(new CommandError(`the relay ended the session: ${printable(words)}`, SEE_DOCTOR));
    });
  });
}

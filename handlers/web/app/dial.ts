import type { Dial, SocketEnd } from '../../../lib/host/dial.ts';
import { takeEarlySocket } from './first-socket.ts';

/** Milliseconds for the request why an upgrade was refused. */
const ASK_TIMEOUT = 5000;
/** RFC 6455 §7.4.1: the connection ended without a close frame. */
const NO_CLOSE = 1006;

/** Called after a refusal for too many failed attempts, with the seconds until the relay accepts the next one. */
export type OnLimited = (retryAfter: number) => void;

/**
 * Dials with the browser's WebSocket. The browser verifies certificates and does not expose their key. It does not expose
 * the status of a refused upgrade either, so a plain request asks for it.
 */
export const createBrowserDial = (onLimited: OnLimited): Dial => {
  return (url, events) => {
    const socket = takeEarlySocket(url) ?? new WebSocket(url);
    let isOpen = false;
    let isClosing = false;
    let isOver = false;
    let whenClosed = () => {};

    function end(code: number, reason: string, more: Pick<SocketEnd, 'status' | 'isRefused'> = {}): void {
      if (isOver) return;
      isOver = true;
      events.close({ code, reason, ...more });
      whenClosed();
    }

    async function explainRefusal(): Promise<void> {
      const answer = await askWhy(url);
      if (answer === 'silent') return end(NO_CLOSE, 'the relay does not answer');
      if (answer === 'unreachable') return end(NO_CLOSE, 'the relay does not answer', { isRefused: true });
      const { status, wait } = answer;
      if (status === 502 || status === 503) return end(NO_CLOSE, '', { status });
      if (wait === 0) return end(NO_CLOSE, 'the relay refused the connection');
      onLimited(wait);
      end(NO_CLOSE, '', { status: 429 });
    }

    function opened(): void {
      isOpen = true;
      if (!isOver) events.open(null);
    }

    socket.onopen = opened;
    if (socket.readyState === WebSocket.OPEN) queueMicrotask(opened);
    socket.onmessage = ({ data }) => {
      if (typeof data === 'string' && !isOver) events.message(data);
    };
    socket.onclose = ({ code, reason }) => {
      if (isOpen || isClosing || isOver) end(code, reason);
      else void explainRefusal();
    };

    return {
      send(text) {
        if (socket.readyState === WebSocket.OPEN) socket.send(text);
      },
      close(code, reason, done) {
        if (done) whenClosed = done;
        if (isOver) done?.();
        else {
          isClosing = true;
          socket.close(code, reason);
        }
      },
      terminate() {
        // A browser cannot drop a connection, so this does not wait for it.
        socket.close();
        end(NO_CLOSE, 'terminated');
      },
    };
  };
};

/**
 * Asks why an upgrade was refused: the status of a plain request, and the seconds until the relay accepts another upgrade
 * from here. A browser does not report why there is no answer, but a connection that cannot be established fails at once. A
 * stopping relay, or a proxy without its relay, answers 503 or 502.
 */
async function askWhy(socketUrl: string): Promise<{ status: number; wait: number } | 'unreachable' | 'silent'> {
  const signal = AbortSignal.timeout(ASK_TIMEOUT);
  try {
    const url = socketUrl.replace(/^ws/, 'http');
    const { status, headers } = await fetch(url, { signal, cache: 'no-store', credentials: 'omit' });
    return { status, wait: Number(headers.get('retry-after')) || 0 };
  } catch {
    return signal.aborted ? 'silent' : 'unreachable';
  }
}

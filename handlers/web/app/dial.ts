import type { Dial } from '../../../lib/host/dial.ts';

/** Milliseconds for the question why an upgrade was refused. */
const ASK_TIMEOUT = 5000;
/** RFC 6455 §7.4.1: the connection ended without a close frame. */
const NO_CLOSE = 1006;

/** Told of a refusal for too many failed attempts: seconds until the relay accepts the next one. */
export type OnLimited = (retryAfter: number) => void;

/**
 * Dials with the browser's WebSocket. The browser checks certificates, and shows nobody their key. It does not tell the
 * status of a refused upgrade either, so a plain request asks for it.
 */
export const createBrowserDial = (onLimited: OnLimited): Dial => {
  return (url, events) => {
    const socket = new WebSocket(url);
    let isOpen = false;
    let isClosing = false;
    let isOver = false;
    let whenClosed = () => {};

    function end(code: number, reason: string, status?: number): void {
      if (isOver) return;
      isOver = true;
      events.close({ code, reason, ...(status !== undefined && { status }) });
      whenClosed();
    }

    async function explainRefusal(): Promise<void> {
      const wait = await retryAfter(url);
      if (wait === null) return end(NO_CLOSE, 'the relay does not answer');
      if (wait === 0) return end(NO_CLOSE, 'the relay refused the connection');
      onLimited(wait);
      end(NO_CLOSE, '', 429);
    }

    socket.onopen = () => {
      isOpen = true;
      events.open(null);
    };
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
        // A browser cannot drop a connection; it is not waited for.
        socket.close();
        end(NO_CLOSE, 'terminated');
      },
    };
  };
};

/** Seconds until the relay accepts another upgrade from here: 0 for at once, null when nothing answers. */
async function retryAfter(socketUrl: string): Promise<number | null> {
  try {
    const response = await fetch(socketUrl.replace(/^ws/, 'http'), {
      signal: AbortSignal.timeout(ASK_TIMEOUT),
      cache: 'no-store',
      credentials: 'omit',
    });
    return Number(response.headers.get('retry-after')) || 0;
  } catch {
    return null;
  }
}

import { upstreamReason } from '../host/upstream.ts';
import {
  CONNECT_TIMEOUT,
  type DialUpstream,
  TIMED_OUT,
  type UpstreamSocket,
  UpstreamSocketError,
  type UpstreamSocketEvents,
  type UpstreamSocketRequest,
} from '../host/upstream-socket.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { systemClock } from '../kit/clock.ts';

/** Characters of messages buffered while reading is paused, since this platform cannot slow down the server. */
const MAX_KEPT = 16 * 1024 * 1024;
/** Added to the characters of each message, because an empty one takes memory too. */
const OVERHEAD = 1024;
/** Milliseconds for the other side's close frame. */
const CLOSE_TIMEOUT = 5_000;

/** The client side of a WebSocket on Workers, as returned by `fetch`. */
type WorkersSocket = WebSocket & { accept(): void };
type UpgradeResponse = Response & { webSocket?: WorkersSocket | null };

/** A `DialUpstream` that upgrades with the platform's `fetch`, for the edge. */
export const dialByFetch: DialUpstream = async (request, events) => attach(await upgrade(request), request, events);

async function upgrade({
  url,
  headers,
  signal,
  connectTimeout = CONNECT_TIMEOUT,
}: UpstreamSocketRequest): Promise<WorkersSocket> {
  const attempt = new AbortController();
  let reason = 'aborted';
  const abort = () => attempt.abort();
  const cancelTimer = systemClock.after(connectTimeout, () => {
    reason = TIMED_OUT;
    abort();
  });
  signal.addEventListener('abort', abort);
  if (signal.aborted) abort();
  try {
    const response: UpgradeResponse = await fetch(url.replace(/^ws/, 'http'), {
      headers: { ...headers, upgrade: 'websocket' },
      redirect: 'manual',
      signal: attempt.signal,
    });
    if (response.webSocket) return response.webSocket;
    void response.body?.cancel().catch(() => {});
    throw UpstreamSocketError.refused(response.status);
  } catch (error) {
    if (error instanceof UpstreamSocketError) throw error;
    throw new UpstreamSocketError(attempt.signal.aborted ? reason : upstreamReason(error));
  } finally {
    cancelTimer();
    signal.removeEventListener('abort', abort);
  }
}

function attach(
  socket: WorkersSocket,
  { signal, maxMessage }: UpstreamSocketRequest,
  events: UpstreamSocketEvents,
): UpstreamSocket {
  let state: 'open' | 'closing' | 'closed' = 'open';
  let isPaused = false;
  let cancelTimer = () => {};
  const queued: string[] = [];
  let queuedSize = 0;
  let ending: { code: number; reason: string } | undefined;

  function end(code: number, reason: string): void {
    if (state === 'closed') return;
    state = 'closed';
    cancelTimer();
    signal.removeEventListener('abort', abort);
    queued.length = 0;
    events.closed({ code, reason });
  }

  /** A connection cannot be dropped here, so this sends the close frame and does not wait for the reply. */
  function drop(code: number, reason: string): void {
    if (state === 'closed') return;
    closeQuietly(code);
    end(code === 1000 ? 1006 : code, reason);
  }

  function closeQuietly(code?: number, reason?: string): void {
    try {
      socket.close(code, reason);
    } catch {
      // Already closed.
    }
  }

  const abort = () => drop(1000, 'aborted');

  socket.addEventListener('message', ({ data }) => {
    if (state === 'closed' || typeof data !== 'string') return;
    if (data.length > maxMessage || (data.length * 3 > maxMessage && utf8ToBytes(data).byteLength > maxMessage)) {
      return drop(1009, `a message is larger than ${maxMessage} bytes`);
    }
    if (!isPaused && queued.length === 0) return events.message(data);
    queuedSize += data.length + OVERHEAD;
    if (queuedSize > MAX_KEPT) return drop(1009, 'the server sends faster than it is read');
    queued.push(data);
  });
  socket.addEventListener('close', ({ code, reason }) => {
    closeQuietly();
    endAfterQueued(code, reason);
  });
  socket.addEventListener('error', () => endAfterQueued(1006, 'connection lost'));
  signal.addEventListener('abort', abort);
  socket.accept();
  if (signal.aborted) queueMicrotask(abort);

  return {
    send(text) {
      if (state === 'open') socket.send(text);
    },
    unsent: () => 0,
    pause() {
      isPaused = true;
    },
    resume() {
      isPaused = false;
      flush();
    },
    close(code, reason) {
      if (state !== 'open') return;
      state = 'closing';
      closeQuietly(code, reason);
      cancelTimer = systemClock.after(CLOSE_TIMEOUT, () => end(1006, 'no close frame'));
    },
    terminate: () => drop(1000, ''),
  };

  function endAfterQueued(code: number, reason: string): void {
    ending ??= { code, reason };
    flush();
  }

  /** Delivers the buffered messages, until reading is paused again. */
  function flush(): void {
    while (!isPaused && state !== 'closed') {
      const text = queued.shift();
      if (text === undefined) {
        if (ending) end(ending.code, ending.reason);
        return;
      }
      queuedSize -= text.length + OVERHEAD;
      events.message(text);
    }
  }
}

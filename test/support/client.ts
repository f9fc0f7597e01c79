import { WebSocket } from 'ws';
import { TIMEOUT } from './limits.ts';

export interface Frame {
  channel: string;
  type: string;
  id: string;
  payload: Record<string, unknown>;
  [extra: string]: unknown;
}

const pongTo = ({ id, payload }: Frame): string => JSON.stringify({ channel: 'system', type: 'pong', id, payload });

export type Client = Awaited<ReturnType<typeof connect>>;

/**
 * A WebSocket client that collects frames and can wait for those still to come. It answers pings, `system/ping` too
 * (contract 02 §2), until `ignorePings`.
 */
export async function connect(url: string, options: { headers?: Record<string, string> } = {}) {
  const socket = new WebSocket(url, { perMessageDeflate: false, ...options });
  const frames: Frame[] = [];
  const waiters = new Set<() => void>();
  const wake = () => {
    for (const waiter of [...waiters]) waiter();
  };
  let answersPings = true;
  let ended: { code: number; reason: string } | undefined;
  socket.on('message', (data) => {
    const frame: Frame = JSON.parse(String(data));
    frames.push(frame);
    if (answersPings && frame.channel === 'system' && frame.type === 'ping') socket.send(pongTo(frame));
    wake();
  });
  socket.on('close', (code, reason) => {
    ended = { code, reason: String(reason) };
    wake();
  });
  await new Promise<void>((resolve, reject) => {
    socket.once('open', resolve);
    socket.once('error', reject);
    socket.once('unexpected-response', (_request, response) => {
      let body = '';
      response.on('data', (chunk) => {
        body += chunk;
      });
      response.on('end', () =>
        reject(
          Object.assign(new Error(`HTTP ${response.statusCode}`), {
            status: response.statusCode,
            headers: response.headers,
            body,
          }),
        ),
      );
    });
  });
  socket.on('error', () => {});

  function until<T>(what: string, look: () => T | undefined): Promise<T> {
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        waiters.delete(attempt);
        reject(new Error(`waited in vain for ${what}; received ${JSON.stringify(frames).slice(0, 2000)}`));
      }, TIMEOUT);
      const attempt = () => {
        const found = look();
        if (found === undefined) return;
        clearTimeout(timer);
        waiters.delete(attempt);
        resolve(found);
      };
      waiters.add(attempt);
      attempt();
    });
  }

  return {
    socket,
    frames,
    /** Sends an envelope. */
    send(channel: string, type: string, payload: unknown = {}, id: unknown = crypto.randomUUID()): void {
      socket.send(JSON.stringify({ channel, type, id, payload }));
    },
    raw(data: string | Buffer): void {
      socket.send(data);
    },
    /** Removes and returns the first matching frame, waiting for it if necessary. */
    next(match: Partial<Pick<Frame, 'channel' | 'type' | 'id'>> = {}): Promise<Frame> {
      return until(JSON.stringify(match), () => {
        const at = frames.findIndex((frame) => Object.entries(match).every(([key, value]) => frame[key] === value));
        return at < 0 ? undefined : frames.splice(at, 1)[0];
      });
    },
    /** Answers no ping from now on, neither of the protocol nor of `system`. */
    ignorePings(): void {
      answersPings = false;
      (socket as unknown as { _autoPong: boolean })._autoPong = false;
    },
    /** Resolves with the close code and reason. */
    closed: () => until('the end of the socket', () => ended),
    close: () => socket.close(),
    terminate: () => socket.terminate(),
  };
}

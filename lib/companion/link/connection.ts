import type { Dial, DialedSocket, PeerKey, PinnedRoute, SocketEnd, SocketEvents } from '../../host/dial.ts';
import type { Cancel, Clock } from '../../kit/clock.ts';
import { newUuid } from '../../kit/uuid.ts';
import { ALIVE, encodeEnvelope, type Message, type Payload, parseEnvelope } from '../../socket/envelope.ts';
import type { Disconnect } from './state.ts';

const CLOSE_TIMEOUT = 1000;

export interface ConnectionDeps {
  dial: Dial;
  url: string;
  /** The route of a pinned endpoint. */
  route?: PinnedRoute;
  clock: Clock;
  onOpen(spki: PeerKey): void;
  onMessage(message: Message): void;
  onClose(end: SocketEnd): void;
}

export type Connection = ReturnType<typeof openConnection>;

/** Opens a socket to a relay. Once it is disconnected, no callback is called. */
export function openConnection({ dial, url, route, clock, onOpen, onMessage, onClose }: ConnectionDeps) {
  const gone = new AbortController();
  let receivedAt = clock.monotonic();
  let socket: DialedSocket | null = null;
  const alive = () => {
    receivedAt = clock.monotonic();
    return !gone.signal.aborted;
  };

  const events: SocketEvents = {
    open(spki) {
      if (alive()) onOpen(spki);
    },
    message(text) {
      if (!alive()) return;
      const message = parseEnvelope(text);
      if (message) onMessage(message);
    },
    alive,
    close(end) {
      if (!gone.signal.aborted) onClose(end);
    },
  };
  socket = dial(url, events, route);

  /** Resolves when the socket has closed, or has had enough time to. */
  const sayGoodbye = () =>
    new Promise<void>((resolve) => {
      const cancel = clock.after(CLOSE_TIMEOUT, resolve);
      socket?.close(1000, 'companion stopped', () => {
        cancel();
        resolve();
      });
    });

  return {
    /** When the relay was last heard from, monotonic ms. */
    get receivedAt() {
      return receivedAt;
    },
    /** Aborted on disconnect, when commands that arrived on this connection lose their caller. */
    gone: gone.signal,
    /** No effect after a disconnect. */
    send(channel: string, type: string, payload: Payload, id = newUuid()): void {
      if (!gone.signal.aborted) socket?.send(encodeEnvelope(channel, type, payload, id));
    },
    /** Resolves when a `goodbye` is complete; at once otherwise. */
    async disconnect(how: Disconnect): Promise<void> {
      if (gone.signal.aborted) return;
      gone.abort();
      if (how === 'close') socket?.close();
      if (how === 'goodbye') await sayGoodbye();
      if (how === 'terminate' || how === 'goodbye') socket?.terminate();
    },
  };
}

const STATUS_INTERVAL = 30_000;
/** Milliseconds of silence after which the relay is pinged, and for its answer: a dead link is detected within 15 s. */
const PING_AFTER = 7_000;
const ANSWER_WITHIN = 7_000;

export interface HeartbeatDeps {
  clock: Clock;
  connection: Connection;
  onSilent(reason: string): void;
  /** Omitted if there is no phone to report on. */
  status?: { payload(): Payload; onChange(listener: () => void): Cancel };
}

/**
 * Runs while the link is online: sends `bridge.status` now, every 30 s and on every change (contract 03 §1.3), and
 * checks for silence from the relay. Returns its cancellation.
 */
export function startHeartbeat({ clock, connection, onSilent, status }: HeartbeatDeps): Cancel {
  const cancels: Cancel[] = [];
  let cancelWatch: Cancel = () => {};
  cancels.push(() => cancelWatch());
  const watch = () => {
    cancelWatch = clock.after(connection.receivedAt + PING_AFTER - clock.monotonic(), () => {
      if (clock.monotonic() - connection.receivedAt < PING_AFTER) watch();
      else ping();
    });
  };
  // Only an unanswered ping counts, since timers of a hidden page or a sleeping machine run late.
  const ping = () => {
    const pingedAt = clock.monotonic();
    connection.send('system', 'ping', ...ALIVE);
    cancelWatch = clock.after(ANSWER_WITHIN, () => {
      const silence = clock.monotonic() - connection.receivedAt;
      if (connection.receivedAt >= pingedAt) watch();
      else onSilent(`nothing was heard for ${Math.round(silence / 1000)} s`);
    });
  };
  watch();
  if (status) {
    const send = () => connection.send('bridge', 'bridge.status', status.payload());
    cancels.push(status.onChange(send));
    let cancelReport: Cancel = () => {};
    cancels.push(() => cancelReport());
    const report = () => {
      cancelReport = clock.after(STATUS_INTERVAL, report);
      send();
    };
    report();
  }
  return () => {
    for (const cancel of cancels.splice(0)) cancel();
  };
}

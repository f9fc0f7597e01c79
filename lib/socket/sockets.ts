import type { Storage } from 'unstorage';
import type { Limiter } from '../access/limiter.ts';
import type { Cancel, Clock } from '../clock.ts';
import { every } from '../clock.ts';
import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { PairingCodes } from '../pairing/codes.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { type Admitted, authenticate, readFirstFrame, refusalReason } from './auth.ts';
import type { Channels } from './channel.ts';
import { Connection, type ConnectionParts } from './connection.ts';
import { encodeEnvelope, isLongerThan, type Payload } from './envelope.ts';
import type { Caller, Transport } from './transport.ts';

const AUTH_TIMEOUT = 30_000;
const PRE_AUTH_BYTES = 64 * 1024;
const PRE_AUTH_PER_PEER = 16;
const PRE_AUTH_TOTAL = 256;
const SOCKETS_PER_SESSION = 8;
const PING_PERIOD = 30_000;
const PONG_WAIT = 15_000;
const BUSY_RETRY = 5;

/** What the runtime tells of a socket's life. */
export interface SocketEvents {
  message(text: string): void;
  drained(): void;
  /** The client pinged: the runtime has answered by itself. */
  pinged(): void;
  closed(): void;
}

/** What must be kept of a socket so that it can be taken up again after the process slept (edge). */
export interface SocketRecord {
  family: string;
  typed_stream: boolean;
  caller: Caller;
}

export interface SocketsParts {
  /** The channel table; not asked for before the first socket is open. */
  channels(): Channels;
  sessions: Sessions;
  codes: PairingCodes;
  limiter: Limiter;
  clock: Clock;
  log: Log;
  version: string;
  /** The current profile rows. */
  profiles(): unknown[];
  /** Where sockets are remembered over a sleep; absent where the process lives as long as its sockets. */
  remember?: Storage<SocketRecord>;
}

/**
 * What happens to a socket goes to the gate until that admits it, then to its connection. The gate is let go then:
 * sockets are many and stay long.
 */
class SocketLife implements SocketEvents {
  gate: Pick<SocketEvents, 'message' | 'closed'> | undefined;
  #connection: Connection | undefined;

  admitted(connection: Connection): void {
    this.#connection = connection;
    this.gate = undefined;
  }

  message(text: string): void {
    if (this.#connection) this.#connection.receive(text);
    else this.gate?.message(text);
  }

  drained(): void {
    this.#connection?.drained();
  }

  pinged(): void {
    this.#connection?.checkUnsent();
  }

  closed(): void {
    this.gate?.closed();
    this.#connection?.ended();
  }
}

export type Sockets = ReturnType<typeof createSockets>;

/** Every socket of the relay, from its upgrade to its end (contract 01 §3). */
export function createSockets(parts: SocketsParts) {
  const { sessions, limiter, clock, log } = parts;
  const connections = new Map<string, Connection>();
  const bySession = new Map<Session, Set<Connection>>();
  const waiting = new Map<string, { key: string; close(code: number, reason: string): void }>();
  const waitingPerPeer = new Map<string, number>();
  let stopping = false;

  sessions.onReduce((session) => {
    for (const connection of copyOf(session)) connection.policyChanged();
  });
  sessions.onEnd((session, reason) => {
    const text = reason === 'expired' ? 'session expired' : 'session revoked';
    for (const connection of copyOf(session)) connection.close(4401, text);
  });

  const copyOf = (session: Session): Connection[] => [...(bySession.get(session) ?? [])];

  function addWaiting(id: string, key: string, close: (code: number, reason: string) => void): void {
    waiting.set(id, { key, close });
    waitingPerPeer.set(key, (waitingPerPeer.get(key) ?? 0) + 1);
  }

  function removeWaiting(id: string): void {
    const entry = waiting.get(id);
    if (!entry) return;
    waiting.delete(id);
    const left = (waitingPerPeer.get(entry.key) ?? 1) - 1;
    if (left > 0) waitingPerPeer.set(entry.key, left);
    else waitingPerPeer.delete(entry.key);
  }

  const connectionParts: ConnectionParts = {
    get channels() {
      return parts.channels();
    },
    sessions,
    clock,
    log,
    onClosed(connection) {
      const { id, session, caller } = connection;
      connections.delete(id);
      const siblings = bySession.get(session);
      siblings?.delete(connection);
      if (siblings?.size === 0) bySession.delete(session);
      void parts.remember?.removeItem(id);
      log.info(`socket of session ${session.prefix} closed (${caller.key})`);
    },
  };

  function connect(transport: Transport, caller: Caller, session: Session, typedStream: boolean): Connection {
    const connection = new Connection(connectionParts, transport, caller, session, { typedStream });
    const siblings = bySession.get(session) ?? new Set();
    bySession.set(session, siblings);
    siblings.add(connection);
    connections.set(transport.id, connection);
    if (siblings.size > SOCKETS_PER_SESSION) siblings.values().next().value?.close(1008, 'replaced');
    return connection;
  }

  return {
    /** How many sockets are open and authenticated. */
    count: (): number => connections.size,

    /** Whole seconds after which a peer may try an upgrade again, or 0 when it may now (contract 01 §3.1). */
    refusal(key: string): { blocked: boolean; retryAfter: number } | undefined {
      const blocked = limiter.blockedFor(key);
      if (blocked > 0) return { blocked: true, retryAfter: blocked };
      const crowded = (waitingPerPeer.get(key) ?? 0) >= PRE_AUTH_PER_PEER || waiting.size >= PRE_AUTH_TOTAL;
      return crowded || stopping ? { blocked: false, retryAfter: BUSY_RETRY } : undefined;
    },

    /** Takes over a fresh socket: waits for its first frame, then dispatches (contract 01 §3.3-3.7). */
    open(transport: Transport, caller: Caller): SocketEvents {
      const life = new SocketLife();
      let state: 'waiting' | 'authenticating' | 'over' = 'waiting';
      let backlog: string[] = [];
      let budget = PRE_AUTH_BYTES;

      const finish = () => {
        state = 'over';
        backlog = [];
        cancelTimeout();
      };
      const leave = () => {
        finish();
        removeWaiting(transport.id);
      };
      // A refused socket counts until it is really gone: its connection is not free before.
      const drop = (code: number, reason: string) => {
        finish();
        transport.close(code, reason);
      };
      const fail = (reason: string) => {
        log.info(`socket from ${caller.key} refused: ${reason}`);
        transport.send(encodeEnvelope('system', 'auth.fail', { reason }, crypto.randomUUID()));
        drop(1008, reason);
      };
      const cancelTimeout: Cancel = clock.after(AUTH_TIMEOUT, () => {
        if (state === 'waiting') fail('Authentication timeout');
      });
      addWaiting(transport.id, caller.key, drop);
      log.info(`socket from ${caller.key} opened`);

      const admit = ({ session, token, refreshToken }: Admitted, typedStream: boolean) => {
        leave();
        transport.authenticated?.();
        const payload: Payload = {
          session_token: token,
          ...(refreshToken === undefined ? {} : { refresh_token: refreshToken }),
          server_version: parts.version,
          expires_at: session.expiresAt,
          grants: session.grants,
          transport_hint: session.transportHint,
          client_surface: session.device.surface,
          device_form_factor: session.device.formFactor,
          profiles: parts.profiles(),
        };
        transport.send(encodeEnvelope('system', 'auth.ok', payload, crypto.randomUUID()));
        const connection = connect(transport, caller, session, typedStream);
        life.admitted(connection);
        void connection.opened(false);
        void parts.remember?.setItem(transport.id, { family: session.family, typed_stream: typedStream, caller });
        log.info(`socket of session ${session.prefix} authenticated (${caller.key})`);
      };

      const first = async (text: string) => {
        const frame = readFirstFrame(text);
        if (frame.kind === 'refused') {
          fail(frame.reason);
          return;
        }
        state = 'authenticating';
        let admitted: Admitted | undefined;
        try {
          admitted = await authenticate(parts, frame.offer, caller);
        } catch (error) {
          log.error(`authentication failed unexpectedly: ${describeError(error)}`);
        }
        // The socket may have gone, and the relay may have begun to stop, while the session was saved.
        if (state !== 'authenticating') return;
        if (!admitted) {
          fail(refusalReason(frame.offer));
          return;
        }
        const queued = backlog;
        admit(admitted, frame.offer.typedStream);
        for (const text of queued) life.message(text);
      };

      life.gate = {
        message(text) {
          if (state === 'over') return;
          if (isLongerThan(text, budget)) {
            finish();
            transport.terminate();
            return;
          }
          budget -= text.length;
          if (state === 'authenticating') backlog.push(text);
          else void first(text);
        },
        closed: leave,
      };
      return life;
    },

    /** Takes up a socket that outlived a sleep of the process (edge). One that had not authenticated is closed. */
    async restore(transport: Transport): Promise<SocketEvents | undefined> {
      const record = await parts.remember?.getItem(transport.id);
      const session = record ? sessions.byFamily(record.family) : undefined;
      if (!record || !session) {
        transport.close(4401, 'session expired');
        await parts.remember?.removeItem(transport.id);
        return undefined;
      }
      const life = new SocketLife();
      const connection = connect(transport, record.caller, session, record.typed_stream);
      life.admitted(connection);
      await connection.opened(true);
      return life;
    },

    /** Sends one envelope to every authenticated socket. A failing one does not stop the others. */
    broadcast(channel: string, type: string, payload: Payload, extra?: Payload): void {
      const frame = encodeEnvelope(channel, type, payload, crypto.randomUUID(), extra);
      for (const connection of [...connections.values()]) {
        try {
          connection.sendFrame(frame);
        } catch (error) {
          log.warn(`a push could not be sent: ${describeError(error)}`);
        }
      }
    },

    /** Pings every socket each 30 s and drops those that stay silent for 15 s. Returns the end of it. */
    keepAlive(): Cancel {
      let pinged = false;
      const tick = () => {
        for (const connection of [...connections.values()]) {
          if (!pinged) {
            connection.showedLife();
            connection.ping();
          } else if (!connection.showedLife()) connection.terminate();
        }
        pinged = !pinged;
      };
      const onError = (error: unknown) => log.error(`keep-alive failed: ${describeError(error)}`);
      // PING_PERIOD is two PONG_WAITs: a tick each, pinging on one and looking for life on the next.
      return every(clock, Math.min(PONG_WAIT, PING_PERIOD / 2), tick, onError);
    },

    /** Closes every socket, authenticated or not, and refuses new ones. */
    stop(): void {
      stopping = true;
      for (const connection of [...connections.values()]) connection.close(1001, 'server shutting down');
      for (const socket of [...waiting.values()]) socket.close(1001, 'server shutting down');
    },
  };
}

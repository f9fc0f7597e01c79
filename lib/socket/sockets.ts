import type { Store } from '../../storage/schema.ts';
import type { Limiter } from '../access/limiter.ts';
import { describeError } from '../errors.ts';
import { type Cancel, type Clock, every } from '../kit/clock.ts';
import type { Log } from '../log.ts';
import type { PairingCodes } from '../pairing/codes.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Admitted } from './auth.ts';
import { Bag } from './bag.ts';
import { type Channels, type ChannelTable, tableOf } from './channel.ts';
import { Connection, type ConnectionParts } from './connection.ts';
import { encodeEnvelope, encodeEnvelopeAround, type Payload } from './envelope.ts';
import { Gate, type GateParts } from './gate.ts';
import { SessionSockets } from './session-sockets.ts';
import type { Caller, Transport } from './transport.ts';
import { WaitingRoom } from './waiting-room.ts';

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
  remember?: Store<'sockets'>;
}

/**
 * What happens to a socket goes to the gate until that admits it, then to its connection. The gate is let go then:
 * sockets are many and stay long.
 */
class SocketLife implements SocketEvents {
  gate: Gate | undefined;
  connection: Connection | undefined;

  message(text: string): void {
    if (this.connection) this.connection.receive(text);
    else this.gate?.message(text);
  }

  drained(): void {
    this.connection?.drained();
  }

  pinged(): void {
    this.connection?.checkUnsent();
  }

  closed(): void {
    this.gate?.closed();
    this.connection?.ended();
  }
}

export type Sockets = ReturnType<typeof createSockets>;

/** Every socket of the relay, from its upgrade to its end (contract 01 §3). */
export function createSockets(parts: SocketsParts) {
  const { sessions, limiter, clock, log } = parts;
  const connections = new Bag<Connection>();
  const bySession = new Map<Session, SessionSockets>();
  const waiting = new WaitingRoom({ clock, sleeps: parts.remember !== undefined });
  const version = JSON.stringify(parts.version);
  let table: ChannelTable | undefined;
  let profiles: { rows: unknown[]; text: string } = { rows: [], text: '[]' };
  let stopping = false;
  let cancelKeepAlive: Cancel = () => {};

  sessions.onReduce((session) => bySession.get(session)?.policyChanged());
  sessions.onEnd((session, reason) => {
    bySession.get(session)?.end(4401, reason === 'expired' ? 'session expired' : 'session revoked');
    bySession.delete(session);
  });

  const gateParts: GateParts = {
    sessions,
    codes: parts.codes,
    limiter,
    log,
    refused: (gate) => waiting.refused(gate),
    left: (gate) => waiting.leave(gate),
  };
  const connectionParts: ConnectionParts = {
    get channels() {
      table ??= tableOf(parts.channels());
      return table;
    },
    sessions,
    clock,
    log,
    onClosed(connection) {
      const { id, session, caller } = connection;
      connections.remove(connection);
      bySession.get(session)?.remove(connection);
      void parts.remember?.removeItem(id);
      log.info(`socket of session ${session.prefix} closed (${caller.key})`);
    },
  };

  function socketsOf(session: Session): SessionSockets {
    const known = bySession.get(session);
    if (known) return known;
    const sockets = new SessionSockets(connectionParts, session);
    bySession.set(session, sockets);
    return sockets;
  }

  function connect(transport: Transport, caller: Caller, session: Session, typedStream: boolean): Connection {
    const connection = new Connection(connectionParts, transport, caller, session, { typedStream });
    connections.add(connection);
    socketsOf(session).add(connection);
    return connection;
  }

  /** Profile rows may be megabytes, and change rarely: their text is made once. */
  function profilesText(): string {
    const rows = parts.profiles();
    if (rows !== profiles.rows) profiles = { rows, text: JSON.stringify(rows) };
    return profiles.text;
  }

  /** Tells a client that it is in, and takes its socket up (contract 01 §3.5). */
  function admit(transport: Transport, caller: Caller, admitted: Admitted, typedStream: boolean): Connection {
    const { session, token, refreshToken } = admitted;
    transport.authenticated?.();
    const text = JSON.stringify;
    const payload =
      `{"session_token":${text(token)},` +
      (refreshToken === undefined ? '' : `"refresh_token":${text(refreshToken)},`) +
      `"server_version":${version},${socketsOf(session).text},"profiles":${profilesText()}}`;
    transport.send(encodeEnvelopeAround('system', 'auth.ok', payload));
    const connection = connect(transport, caller, session, typedStream);
    void connection.opened(false);
    void parts.remember?.setItem(transport.id, { family: session.family, typed_stream: typedStream, caller });
    log.info(`socket of session ${session.prefix} authenticated (${caller.key})`);
    return connection;
  }

  return {
    /** How many sockets are open and authenticated. */
    count: (): number => connections.size,

    /** Whole seconds after which a peer may try an upgrade again, or 0 when it may now (contract 01 §3.1). */
    refusal(key: string): { blocked: boolean; retryAfter: number } | undefined {
      const blocked = limiter.blockedFor(key);
      if (blocked > 0) return { blocked: true, retryAfter: blocked };
      return stopping || !waiting.hasRoomFor(key) ? { blocked: false, retryAfter: BUSY_RETRY } : undefined;
    },

    /** Takes over a fresh socket: waits for its first frame, then dispatches (contract 01 §3.3-3.7). */
    open(transport: Transport, caller: Caller): SocketEvents {
      const life = new SocketLife();
      const gate = new Gate(gateParts, transport, caller, (admitted, typedStream) => {
        life.connection = admit(transport, caller, admitted, typedStream);
        life.gate = undefined;
        return life.connection;
      });
      life.gate = gate;
      waiting.enter(gate);
      log.info(`socket from ${caller.key} opened`);
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
      life.connection = connect(transport, record.caller, session, record.typed_stream);
      await life.connection.opened(true);
      return life;
    },

    /** Sends one envelope to every authenticated socket. A failing one does not stop the others. */
    broadcast(channel: string, type: string, payload: Payload, extra?: Payload): void {
      const frame = encodeEnvelope(channel, type, payload, crypto.randomUUID(), extra);
      for (const connection of connections.all()) {
        try {
          connection.sendFrame(frame);
        } catch (error) {
          log.warn(`a push could not be sent: ${describeError(error)}`);
        }
      }
    },

    /** Begins to ping every socket each 30 s, and to drop those that stay silent for 15 s. */
    start(): void {
      let pinged = false;
      const tick = () => {
        for (const connection of connections.all()) {
          if (!pinged) {
            connection.showedLife();
            connection.ping();
          } else if (!connection.showedLife()) connection.terminate();
        }
        pinged = !pinged;
      };
      const onError = (error: unknown) => log.error(`keep-alive failed: ${describeError(error)}`);
      // PING_PERIOD is two PONG_WAITs: a tick each, pinging on one and looking for life on the next.
      cancelKeepAlive = every(clock, Math.min(PONG_WAIT, PING_PERIOD / 2), tick, onError);
    },

    /** Closes every socket, authenticated or not, and refuses new ones. */
    stop(): void {
      stopping = true;
      cancelKeepAlive();
      for (const connection of connections.all()) connection.close(1001, 'server shutting down');
      waiting.closeAll(1001, 'server shutting down');
    },
  };
}

import type { Storage } from 'unstorage';
import type { Limiter } from '../access/limiter.ts';
import { type Cancel, type Clock, every } from '../clock.ts';
import { describeError } from '../errors.ts';
import type { Log } from '../log.ts';
import type { PairingCodes } from '../pairing/codes.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Admitted } from './auth.ts';
import { Bag } from './bag.ts';
import { type Channels, type ChannelTable, tableOf } from './channel.ts';
import { Connection, type ConnectionParts } from './connection.ts';
import { encodeEnvelope, type Payload } from './envelope.ts';
import { Gate, type GateParts } from './gate.ts';
import type { Caller, Transport } from './transport.ts';

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
  /** The oldest first. A session keeps its list until it ends. */
  const bySession = new Map<Session, Connection[]>();
  const waiting = new Bag<Gate>();
  const waitingPerPeer = new Map<string, number>();
  let table: ChannelTable | undefined;
  let stopping = false;

  sessions.onReduce((session) => {
    for (const connection of copyOf(session)) connection.policyChanged();
  });
  sessions.onEnd((session, reason) => {
    const text = reason === 'expired' ? 'session expired' : 'session revoked';
    for (const connection of copyOf(session)) connection.close(4401, text);
    bySession.delete(session);
  });

  const copyOf = (session: Session): Connection[] => [...(bySession.get(session) ?? [])];

  function leave(gate: Gate): void {
    if (!waiting.remove(gate)) return;
    const { key } = gate.caller;
    const left = (waitingPerPeer.get(key) ?? 1) - 1;
    if (left > 0) waitingPerPeer.set(key, left);
    else waitingPerPeer.delete(key);
  }

  const gateParts: GateParts = { sessions, codes: parts.codes, limiter, log, clock, left: leave };
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
      const siblings = bySession.get(session) ?? [];
      const index = siblings.indexOf(connection);
      if (index >= 0) siblings.splice(index, 1);
      void parts.remember?.removeItem(id);
      log.info(`socket of session ${session.prefix} closed (${caller.key})`);
    },
  };

  function connect(transport: Transport, caller: Caller, session: Session, typedStream: boolean): Connection {
    const connection = new Connection(connectionParts, transport, caller, session, { typedStream });
    let siblings = bySession.get(session);
    if (!siblings) {
      siblings = [];
      bySession.set(session, siblings);
    }
    siblings.push(connection);
    connections.add(connection);
    if (siblings.length > SOCKETS_PER_SESSION) siblings[0]?.close(1008, 'replaced');
    return connection;
  }

  /** Tells a client that it is in, and takes its socket up (contract 01 §3.5). */
  function admit(transport: Transport, caller: Caller, admitted: Admitted, typedStream: boolean): Connection {
    const { session, token, refreshToken } = admitted;
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
      const crowded = (waitingPerPeer.get(key) ?? 0) >= PRE_AUTH_PER_PEER || waiting.size >= PRE_AUTH_TOTAL;
      return crowded || stopping ? { blocked: false, retryAfter: BUSY_RETRY } : undefined;
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
      waiting.add(gate);
      waitingPerPeer.set(caller.key, (waitingPerPeer.get(caller.key) ?? 0) + 1);
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

    /** Pings every socket each 30 s and drops those that stay silent for 15 s. Returns the end of it. */
    keepAlive(): Cancel {
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
      return every(clock, Math.min(PONG_WAIT, PING_PERIOD / 2), tick, onError);
    },

    /** Closes every socket, authenticated or not, and refuses new ones. */
    stop(): void {
      stopping = true;
      for (const connection of connections.all()) connection.close(1001, 'server shutting down');
      for (const gate of waiting.all()) gate.close(1001, 'server shutting down');
    },
  };
}

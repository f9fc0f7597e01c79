import type { SocketRecord, Store } from '../../storage/schema.ts';
import type { Limiter } from '../access/limiter.ts';
import type { Proofs } from '../access/proofs.ts';
import { describeError } from '../errors.ts';
import type { ReadBudgets } from '../kit/byte-budget.ts';
import { type Cancel, type Clock, every, seconds } from '../kit/clock.ts';
import { entriesOf } from '../kit/entries.ts';
import { createEvent } from '../kit/event.ts';
import type { Log } from '../log.ts';
import type { PairingCodes } from '../pairing/codes.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Admitted, AuthRequest } from './auth.ts';
import { type Channels, type ChannelTable, createChannelTable } from './channel.ts';
import { type ConnectionDeps, type ConnectionRow, SocketConnection } from './connection.ts';
import { encodeEnvelope, encodeEnvelopeAround, type Payload } from './envelope.ts';
import { type LongFrame, releaseFrame, textOfFrame } from './envelope-head.ts';
import { Handshake, type HandshakeDeps } from './handshake.ts';
import { IndexedSet } from './indexed-set.ts';
import { PendingSockets } from './pending-sockets.ts';
import { Probes } from './probes.ts';
import { SessionSockets } from './session-sockets.ts';
import type { Caller, SocketEvents, Transport } from './transport.ts';

/** Milliseconds between ticks of the keep-alive, which alternate between pinging and checking. */
const PONG_WAIT = 15_000;
const BUSY_RETRY = 5;
/** Seconds. Another process may listen in a moment. */
const STOPPING_RETRY = 1;

export interface Refusal {
  /** True after failed attempts; otherwise the relay has no room, or is stopping. */
  blocked: boolean;
  stopping: boolean;
  /** Seconds. */
  retryAfter: number;
}

export interface SocketsDeps {
  /** The channel table; first called when a socket opens. */
  channels(): Channels;
  sessions: Sessions;
  codes: PairingCodes;
  limiter: Limiter;
  proofs: Proofs;
  clock: Clock;
  log: Log;
  budgets: ReadBudgets;
  version: string;
  /** The current profile rows. */
  profiles(): unknown[];
  /** Pending during the first scan of the profiles, for 2 s at most, in which no client is admitted (contract 11 §5). */
  loading?(): Promise<void> | undefined;
  /** See `HandshakeDeps`. Absent without Reach. */
  routeCredential?: HandshakeDeps['routeCredential'];
  /** The `system` messages after `auth.ok`. */
  greetings?(session: Session): { type: string; payload: Payload }[];
  /**
   * Credentials for the mailbox that the device has yet to receive. `onDelivered` is called once the client has shown that they
   * arrived.
   */
  mailbox?(session: Session): { mailbox: Payload; onDelivered(): void } | undefined;
  /** Home's key, for a device that has sent its own; else undefined (contract 12 §4). */
  homeBox?(session: Session, boxKey: string | undefined): Payload | undefined;
  /** A `pairing` message after `auth.ok`. `onDelivered` is called once the client has shown that it arrived. */
  routes?(session: Session): { type: string; payload: Payload; onDelivered(): void } | undefined;
  /** See `AuthDeps`. */
  routesBy?: HandshakeDeps['routesBy'];
  edgePage?: HandshakeDeps['edgePage'];
  isEdgeOfHome?: HandshakeDeps['isEdgeOfHome'];
  /** Store of open sockets; absent if the process lives as long as its sockets. */
  store?: Store<'sockets'>;
}

/** Passes events to the handshake, then to the connection, and drops the handshake: sockets are many and long-lived. */
class SocketDispatcher implements SocketEvents {
  handshake: Handshake | undefined;
  connection: SocketConnection | undefined;

  message(text: string): void {
    if (this.connection) this.connection.receive(text);
    else this.handshake?.message(text);
  }

  longMessage(bytes: LongFrame): void {
    // An unauthenticated client cannot send that much.
    if (this.connection) this.connection.receive(bytes);
    else releaseFrame(bytes);
  }

  drained(): void {
    this.connection?.checkUnsent();
  }

  pinged(): void {
    this.connection?.pinged();
  }

  ponged(data?: Uint8Array): void {
    this.connection?.ponged(data && textOfFrame(data));
  }

  closed(): void {
    this.handshake?.closed();
    this.connection?.ended();
  }
}

/** The members of a first frame besides its credentials. */
type FirstFrame = Pick<AuthRequest, 'typedStream' | 'boxKey'>;

/** The members of `auth.ok` for this client only, as JSON text with a comma after each. */
function issuedText(
  { session, token, refreshToken, routeCredential }: Admitted,
  mailbox?: Payload,
  homeBox?: Payload,
): string {
  const text = JSON.stringify;
  return (
    `"session_token":${text(token)},` +
    (refreshToken === undefined ? '' : `"refresh_token":${text(refreshToken)},`) +
    (routeCredential === undefined ? '' : `"route_credential":${text(routeCredential)},`) +
    (mailbox === undefined ? '' : `"mailbox":${text(mailbox)},`) +
    (homeBox === undefined ? '' : `"home_box":${text(homeBox)},`) +
    (session.keyThumbprint === undefined ? '' : '"bound":true,')
  );
}

/** All sockets of the relay, from upgrade to close (contract 01 §3). */
export function createSockets(deps: SocketsDeps) {
  const { sessions, limiter, clock, log, store } = deps;
  const presence = createEvent<[session: Session, change: 'connected' | 'disconnected']>();
  const connections = new IndexedSet<SocketConnection>();
  const bySession = new Map<Session, SessionSockets>();
  const pending = new PendingSockets({ clock, sleeps: store !== undefined });
  const version = JSON.stringify(deps.version);
  /** The records of sockets that survived a sleep, read once for all of them. */
  let slept: Promise<Map<string, SocketRecord | null>> | undefined;
  const readSlept = () => {
    slept ??= (store ? entriesOf(store) : Promise.resolve([])).then(
      (all) => new Map(all as [string, SocketRecord | null][]),
    );
    return slept;
  };
  let table: ChannelTable | undefined;
  let profiles: { rows: unknown[]; text: string } = { rows: [], text: '[]' };
  let stopping = false;
  let cancelKeepAlive: Cancel = () => {};

  sessions.onChange((session) => bySession.get(session)?.policyChanged());
  sessions.onEnd((session, reason) => {
    bySession.get(session)?.end(4401, reason === 'expired' ? 'session expired' : 'session revoked');
    bySession.delete(session);
  });

  /** Writes are not awaited: without its record, a socket is closed when the process wakes. */
  function written(write: Promise<void> | undefined): void {
    write?.catch((error) => log.warn(`a socket could not be saved: ${describeError(error)}`));
  }

  const handshakeDeps: HandshakeDeps = {
    ...deps,
    refused: (handshake) => pending.refused(handshake),
    done: (handshake) => pending.remove(handshake),
  };
  const probes = new Probes(clock);
  const connectionDeps: ConnectionDeps = {
    get channels() {
      table ??= createChannelTable(deps.channels());
      return table;
    },
    sessions,
    clock,
    log,
    probes,
    parsing: deps.budgets.parsing,
    answersPings: (session, answers) => bySession.get(session)?.setAnswersPings(answers),
    onClosed(connection) {
      const { session, caller } = connection;
      connections.remove(connection);
      bySession.get(session)?.remove(connection);
      if (store) written(store.removeItem(connection.id));
      presence.emit(session, 'disconnected');
      log.info(`socket of session ${session.prefix} closed (${caller.key})`);
    },
  };

  function socketsOf(session: Session): SessionSockets {
    const known = bySession.get(session);
    if (known) return known;
    const sockets = new SessionSockets(connectionDeps, session);
    bySession.set(session, sockets);
    return sockets;
  }

  function connect(
    transport: Transport,
    caller: Caller,
    session: Session,
    options: { typedStream: boolean; since?: number },
  ): SocketConnection {
    const connection = new SocketConnection(connectionDeps, transport, caller, session, options);
    connections.add(connection);
    socketsOf(session).add(connection);
    return connection;
  }

  /** Cached, since the rows may be megabytes and change rarely. */
  function profilesText(session: Session): string {
    // A row contains the profile's system prompt.
    if (!hasGrant(session, 'profiles')) return '[]';
    const rows = deps.profiles();
    if (rows !== profiles.rows) profiles = { rows, text: JSON.stringify(rows) };
    return profiles.text;
  }

  /** No failure affects other sockets. */
  function sendTo(connection: SocketConnection, frame: string): void {
    try {
      connection.sendFrame(frame);
    } catch (error) {
      log.warn(`a push could not be sent: ${describeError(error)}`);
    }
  }

  const hasGrant = ({ grants }: Session, name: string): boolean => isGranted(grants, name, seconds(clock));

  /** Sends `auth.ok` and opens the connection (contract 01 §3.5). */
  function admit(transport: Transport, caller: Caller, admitted: Admitted, request: FirstFrame): SocketConnection {
    const [{ session }, { typedStream, boxKey }] = [admitted, request];
    transport.authenticated?.();
    const [given, box] = [deps.mailbox?.(session), deps.homeBox?.(session, boxKey)];
    const rest = `"server_version":${version},${socketsOf(session).text},"profiles":${profilesText(session)}}`;
    transport.send(encodeEnvelopeAround('system', 'auth.ok', `{${issuedText(admitted, given?.mailbox, box)}${rest}`));
    for (const { type, payload } of deps.greetings?.(session) ?? []) {
      transport.send(encodeEnvelope('system', type, payload, crypto.randomUUID()));
    }
    const connection = connect(transport, caller, session, { typedStream });
    if (given) connection.probe(given.onDelivered);
    const routes = deps.routes?.(session);
    if (routes) {
      transport.send(encodeEnvelope('pairing', routes.type, routes.payload, crypto.randomUUID()));
      connection.probe(routes.onDelivered);
    }
    void connection.opened(false);
    const record = { family: session.family, typed_stream: typedStream, caller, since: connection.since };
    written(store?.setItem(transport.id, record));
    presence.emit(session, 'connected');
    log.info(`socket of session ${session.prefix} authenticated (${caller.key})`);
    return connection;
  }

  return {
    /** Calls back when a device has opened or closed a socket. */
    onPresence: presence.on,

    /** Number of open, authenticated sockets. */
    count: (): number => connections.size,

    /** The open connections of a session, oldest first (contract 09 §2). */
    describe: (session: Session): ConnectionRow[] =>
      (bySession.get(session)?.connections ?? []).map((connection) => connection.describe()),

    /** Returns why a peer may not upgrade, and the seconds after which to retry; undefined if it may (contract 01 §3.1). */
    refusal(key: string): Refusal | undefined {
      // Before the limits, since clients stay away for five minutes after a 429.
      if (stopping) return { blocked: false, stopping, retryAfter: STOPPING_RETRY };
      const blocked = limiter.blockedFor(key);
      if (blocked > 0) return { blocked: true, stopping, retryAfter: blocked };
      return pending.hasRoomFor(key) ? undefined : { blocked: false, stopping, retryAfter: BUSY_RETRY };
    },

    /** Takes over a new socket: authenticates its first frame, then dispatches messages (contract 01 §3.3-3.7). */
    open(transport: Transport, caller: Caller): SocketEvents {
      const socket = new SocketDispatcher();
      const handshake = new Handshake(handshakeDeps, transport, caller, (admitted, request) => {
        socket.connection = admit(transport, caller, admitted, request);
        socket.handshake = undefined;
        return socket.connection;
      });
      socket.handshake = handshake;
      pending.add(handshake);
      log.info(`socket from ${caller.key} opened`);
      return socket;
    },

    /** Restores a socket that survived a sleep of the process (edge). Closes one that had not authenticated. */
    async restore(transport: Transport): Promise<SocketEvents | undefined> {
      const record = (await readSlept()).get(transport.id);
      const session = record ? sessions.byFamily(record.family) : undefined;
      if (!record || !session) {
        transport.close(4401, 'session expired');
        return undefined;
      }
      const socket = new SocketDispatcher();
      const { caller, typed_stream: typedStream, since } = record;
      socket.connection = connect(transport, caller, session, { typedStream, since });
      await socket.connection.opened(true);
      return socket;
    },

    /** Every socket that survived the sleep is restored: removes the records of the others. */
    async restored(): Promise<void> {
      const open = new Set(connections.snapshot().map(({ id }) => id));
      for (const id of (await readSlept()).keys()) if (!open.has(id)) written(store?.removeItem(id));
      slept = undefined;
    },

    /** Sends one envelope to every socket whose session has the grant (null for any), or is one of the given ones. */
    broadcast(
      to: string | null | ((session: Session) => boolean),
      channel: string,
      type: string,
      payload: Payload,
      extra?: Payload,
    ): void {
      const frame = encodeEnvelope(channel, type, payload, crypto.randomUUID(), extra);
      for (const connection of connections.snapshot()) {
        const { session } = connection;
        if (typeof to === 'function' ? to(session) : to === null || hasGrant(session, to)) sendTo(connection, frame);
      }
    },

    /** Sends one envelope to every socket of a session. `onDelivered` is called once a client has shown that it arrived. */
    send(session: Session, channel: string, type: string, payload: Payload, onDelivered: () => void): void {
      const frame = encodeEnvelope(channel, type, payload, crypto.randomUUID());
      for (const connection of [...(bySession.get(session)?.connections ?? [])]) {
        sendTo(connection, frame);
        connection.probe(onDelivered);
      }
    },

    /** True if a session has an open socket. */
    isConnected: (session: Session): boolean => (bySession.get(session)?.connections.length ?? 0) > 0,

    /** Starts the keep-alive: pings every socket each 30 s and drops those that stay silent for 15 s. */
    start(): void {
      let pinged = false;
      const tick = () => {
        for (const connection of connections.snapshot()) {
          if (!pinged) {
            connection.wasActive();
            connection.ping();
          } else if (!connection.wasActive()) connection.terminate();
        }
        pinged = !pinged;
      };
      const onError = (error: unknown) => log.error(`keep-alive failed: ${describeError(error)}`);
      cancelKeepAlive = every(clock, PONG_WAIT, tick, onError);
    },

    /** Closes every socket, authenticated or not, and refuses new ones. */
    stop(): void {
      stopping = true;
      cancelKeepAlive();
      for (const connection of connections.snapshot()) connection.close(1001, 'server shutting down');
      pending.closeAll(1001, 'server shutting down');
    },
  };
}

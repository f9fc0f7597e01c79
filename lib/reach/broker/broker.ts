import { timingSafeEqual } from '../../kit/bytes.ts';
import { type Clock, seconds } from '../../kit/clock.ts';
import { isObject } from '../../kit/json.ts';
import { digestOf } from '../../kit/sha256.ts';
import { utf8Length } from '../../kit/text.ts';
import { MAX_PAYLOAD } from '../frames.ts';
import { isId, newId, shortId } from '../ids.ts';
import {
  type ErrorCode,
  encodeMessage,
  type HostMessage,
  MAX_CONTROL,
  PING,
  PONG,
  parseHostMessage,
  parseRegister,
  type Register,
} from '../messages.ts';
import { type Change, type CredentialRecord, Credentials } from './credentials.ts';
import { type Effect, Link } from './effects.ts';
import { ReplayCache, type SeenRecord, SourceLimits } from './limits.ts';
import { type HostFields, HostLink, MAX_QUEUED_BYTES, type Stream, type StreamLimits } from './streams.ts';

/** Milliseconds in which a socket must register. */
const REGISTRATION_TIMEOUT = 10_000;
const MAX_HOSTS = 256;
const MAX_STREAMS_PER_ROUTE = 6;
/** A digest that no token has, for unknown hosts. */
const NOBODY = digestOf('');

/** Digests of the tokens of each host, one or two while a token is replaced. */
export type Hosts = ReadonlyMap<string, readonly string[]>;

export interface BrokerDeps {
  clock: Pick<Clock, 'now' | 'monotonic'>;
  hosts: Hosts;
  /** Records from the store, of any table. */
  stored?: unknown[];
  limits?: Partial<StreamLimits>;
  /** Milliseconds after which a new registration replaces a registered host; never by default. */
  replaceAfter?: number;
  /** True if connection IDs are stored, because the broker's memory may be dropped at any time. */
  keepsSeen?: boolean;
}

type Connection<S> =
  | { role: 'pending'; link: Link<S>; source: string; since: number }
  | { role: 'host'; link: Link<S>; host: HostLink<S> }
  | { role: 'client'; link: Link<S>; host: HostLink<S>; stream: Stream<S> };

/** State of an open socket that survives the broker's memory (contract 08 §8). */
export type Snapshot =
  | {
      role: 'host';
      hostId: string;
      connectionId: string;
      digest: string;
      /** Time of its registration, by the clock of the broker. Earlier versions did not store it. */
      since?: number;
      window: number | null;
      /** IDs of the streams that ended last. */
      ended: string[];
    }
  | ({ role: 'client'; hostId: string } & Pick<
      Stream<unknown>,
      'id' | 'connectionId' | 'digest' | 'credentialId' | 'lastData' | 'sendCredit' | 'receiveCredit' | 'unanswered'
    >);

const LIMITS: StreamLimits = {
  maxStreams: 16,
  maxStreamsWithoutFlow: 16,
  maxUnanswered: Number.POSITIVE_INFINITY,
  maxQueuedToHost: MAX_QUEUED_BYTES,
  window: 262_144,
};

/**
 * The broker of Reach (contract 08 §7) without sockets, storage or timers: every method takes one event and returns its
 * effects. `S` stands for a socket of the runtime; each has one object or name.
 */
export class Broker<S> {
  readonly #deps: BrokerDeps;
  readonly #limits: StreamLimits;
  #hosts: Hosts;
  readonly #credentials = new Credentials();
  readonly #sources: SourceLimits;
  readonly #seen: ReplayCache;
  readonly #connections = new Map<S, Connection<S>>();
  readonly #online = new Map<string, HostLink<S>>();
  readonly #saves = new Map<number, (ok: boolean) => void>();
  #lastSave = 0;
  /** Emptied by `#take` at the end of each event. Links keep a reference to it. */
  readonly #effects: Effect<S>[] = [];

  constructor(deps: BrokerDeps) {
    this.#deps = deps;
    this.#limits = { ...LIMITS, ...deps.limits };
    this.#hosts = deps.hosts;
    this.#sources = new SourceLimits(deps.clock);
    this.#seen = new ReplayCache(deps.clock);
    const { stored = [] } = deps;
    const changes = this.#credentials.load(stored, this.#isKnown, seconds(deps.clock));
    this.#save([...changes, ...this.#seenChanges(this.#seen.load(stored.filter(isSeen)))]);
  }

  /** True if a source may connect once more. A refused one gets 429. */
  admits(source: string): boolean {
    return this.#sources.attempt(source);
  }

  /** A socket is open and has to register. */
  opened(socket: S, source: string): Effect<S>[] {
    const link = new Link(socket, this.#effects);
    this.#connections.set(socket, { role: 'pending', link, source, since: this.#deps.clock.monotonic() });
    this.#sources.waits(source);
    return this.#take();
  }

  text(socket: S, text: string): Effect<S>[] {
    const connection = this.#connections.get(socket);
    if (connection?.role === 'pending') this.#register(connection, parseRegister(text));
    else if (connection && text === PING) {
      if (connection.role === 'host') connection.host.control(PONG);
      else connection.link.send(PONG);
    } else if (connection?.role === 'host') this.#control(connection.host, text);
    else if (connection) connection.host.abort(connection.stream, 'unauthorized', 'a text message');
    return this.#take();
  }

  binary(socket: S, bytes: Uint8Array): Effect<S>[] {
    const connection = this.#connections.get(socket);
    if (connection?.role === 'pending') this.#refuse(connection, 'unauthorized');
    else if (connection?.role === 'host') connection.host.fromHost(bytes);
    else if (connection) this.#fromClient(connection.host, connection.stream, bytes);
    return this.#take();
  }

  /** The other side has disconnected. */
  closed(socket: S): Effect<S>[] {
    const connection = this.#connections.get(socket);
    if (connection) {
      this.#connections.delete(socket);
      connection.link.isOpen = false;
      if (connection.role === 'pending') this.#sources.settled(connection.source, false);
      else if (connection.role === 'host') this.#hostEnded(connection.host, 'disconnected');
      else connection.host.clientEnded(connection.stream, 'closed by the client');
    }
    return this.#take();
  }

  /** Bytes of earlier messages were sent to the other side. */
  sent(socket: S, bytes: number): Effect<S>[] {
    const connection = this.#connections.get(socket);
    if (connection) {
      connection.link.unsent -= bytes;
      if (connection.role === 'host') connection.host.sentToHost();
      else if (connection.role === 'client') connection.host.sentToClient(connection.stream, bytes);
    }
    return this.#take();
  }

  /**
   * True if bytes for a socket may count as sent at once, in a runtime that cannot know when they are: a host with flow
   * control announces its capacity, and a message of a client acknowledges the bytes that it got. Until then, at most `own`
   * bytes may be in flight to a socket, and `all` to the clients of its host.
   */
  isAhead(socket: S, { own, all }: { own: number; all: number }): boolean {
    const connection = this.#connections.get(socket);
    if (connection?.role === 'host') return connection.host.window !== null;
    if (connection?.role !== 'client' || connection.stream.unanswered > own) return false;
    let sum = 0;
    for (const { unanswered } of connection.host.streams.values()) sum += unanswered;
    return sum <= all;
  }

  /** Changes were stored, or could not be. */
  saved(id: number, ok: boolean): Effect<S>[] {
    const then = this.#saves.get(id);
    this.#saves.delete(id);
    then?.(ok);
    return this.#take();
  }

  /** Closes overdue sockets. Call every second while `isBusy`, and at `nextExpiry`. */
  tick(): Effect<S>[] {
    const deadline = this.#deps.clock.monotonic() - REGISTRATION_TIMEOUT;
    if (this.#sources.pending > 0) {
      for (const connection of this.#connections.values()) {
        if (connection.role === 'pending' && connection.since <= deadline) this.#refuse(connection, 'unauthorized');
      }
    }
    for (const host of [...this.#online.values()]) host.tick();
    return this.#take();
  }

  /** Removes credentials and connection IDs that expired long ago. Call it now and then. */
  prune(): Effect<S>[] {
    const changes = this.#credentials.prune(seconds(this.#deps.clock), this.#isKnown);
    this.#save([...changes, ...this.#seenChanges(this.#seen.prune())]);
    return this.#take();
  }

  /** Replaces the list of hosts; those whose token is no longer in it are closed. */
  reload(hosts: Hosts): Effect<S>[] {
    this.#hosts = hosts;
    for (const host of [...this.#online.values()]) {
      if (!hosts.get(host.id)?.includes(host.digest)) this.#violated(host, 'unauthorized');
    }
    this.#save(this.#credentials.prune(seconds(this.#deps.clock), this.#isKnown));
    return this.#take();
  }

  /** Effects outside of any event, such as those of the start. */
  pending(): Effect<S>[] {
    return this.#take();
  }

  counts(): { hosts_online: number; active_streams: number } {
    let streams = 0;
    for (const host of this.#online.values()) streams += host.streams.size;
    return { hosts_online: this.#online.size, active_streams: streams };
  }

  isRegistered(socket: S): boolean {
    const role = this.#connections.get(socket)?.role;
    return role !== undefined && role !== 'pending';
  }

  /** True if there is state that only memory holds. */
  isBusy(): boolean {
    if (this.#sources.pending > 0 || this.#saves.size > 0) return true;
    for (const { streams } of this.#online.values()) {
      for (const { toHost, toClient, hostLive, clientLive } of streams.values()) {
        if (toHost.bytes > 0 || toClient.bytes > 0 || !hostLive || !clientLive) return true;
      }
    }
    return false;
  }

  /** Time at which the first idle stream ends, in milliseconds of the monotonic clock; null without streams. */
  nextExpiry(): number | null {
    let next: number | null = null;
    for (const host of this.#online.values()) {
      const at = host.nextIdleEnd();
      if (at !== null) next = Math.min(next ?? at, at);
    }
    return next;
  }

  snapshot(socket: S): Snapshot | null {
    const connection = this.#connections.get(socket);
    if (connection?.role === 'host') {
      const { id, connectionId, digest, since, window } = connection.host;
      const ended = connection.host.recentlyEnded(32);
      return { role: 'host', hostId: id, connectionId, digest, since, window, ended };
    }
    if (connection?.role !== 'client') return null;
    const { id, connectionId, digest, credentialId, lastData, sendCredit, receiveCredit, unanswered } =
      connection.stream;
    const credit = { sendCredit, receiveCredit, unanswered };
    return { role: 'client', hostId: connection.host.id, id, connectionId, digest, credentialId, lastData, ...credit };
  }

  /** Restores a socket that survived the broker's memory. Hosts come before clients; false for a client without its host. */
  restore(socket: S, snapshot: Snapshot): boolean {
    const link = new Link(socket, this.#effects);
    if (snapshot.role === 'host') {
      const { hostId, connectionId, digest, since, window, ended } = snapshot;
      if (this.#online.has(hostId) || !this.#hosts.get(hostId)?.includes(digest)) return false;
      const host = this.#createHost({ id: hostId, link, connectionId, digest, since });
      host.window = window;
      host.rememberEnded(ended);
      return true;
    }
    const host = this.#online.get(snapshot.hostId);
    if (!host) return false;
    const { role: _, hostId: __, ...retained } = snapshot;
    const toGrant = host.window === null ? 0 : this.#limits.window - retained.receiveCredit;
    const stream = Object.assign(host.add({ ...retained, client: link }), retained, { toGrant, isAnnounced: true });
    this.#connections.set(socket, { role: 'client', link, host, stream });
    return true;
  }

  readonly #isKnown = (hostId: string): boolean => this.#hosts.has(hostId);

  #take(): Effect<S>[] {
    return this.#effects.splice(0);
  }

  /** Changes to store after connection IDs were removed, and perhaps one was added. */
  #seenChanges(forgotten: string[], added?: SeenRecord): Change[] {
    if (!this.#deps.keepsSeen) return [];
    const changes = forgotten.map((id): Change => ({ table: 'seen', digest: id, record: null }));
    return added ? [...changes, { table: 'seen', digest: added.connection_id, record: added }] : changes;
  }

  #log(level: 'debug' | 'info' | 'warn', hostId: string, text: string): void {
    this.#effects.push({ do: 'log', level, text: `host ${shortId(hostId)}: ${text}` });
  }

  /** Calls `then` once the changes are stored, at once without changes. */
  #save(changes: Change[], then: (ok: boolean) => void = () => {}): void {
    if (changes.length === 0) {
      then(true);
      return;
    }
    const id = ++this.#lastSave;
    this.#saves.set(id, then);
    this.#effects.push({ do: 'save', changes, id });
  }

  #refuse(connection: Connection<S> & { role: 'pending' }, code: ErrorCode): void {
    this.#connections.delete(connection.link.socket);
    this.#sources.settled(connection.source, false);
    connection.link.send(encodeMessage({ type: 'error', code }));
    connection.link.close(1008);
  }

  #register(connection: Connection<S> & { role: 'pending' }, message: Register | ErrorCode): void {
    if (typeof message === 'string') {
      this.#refuse(connection, message);
      return;
    }
    const outcome = message.role === 'host' ? this.#checkHost(message) : this.#checkClient(message);
    if (typeof outcome === 'string') {
      this.#log('info', message.host_id, `${message.role} refused: ${outcome}`);
      this.#refuse(connection, outcome);
      return;
    }
    const { record, forgotten } = this.#seen.add(message.connection_id);
    const changes = this.#seenChanges(forgotten, record);
    // Phones open a stream for every few requests. Hosts and bootstraps are rare, and their records take room.
    this.#sources.settled(connection.source, message.credential_kind === 'route');
    if ('digest' in outcome) this.#admitHost(connection.link, message, outcome.digest, changes);
    else this.#match(connection.link, message, outcome.record, outcome.host, changes);
  }

  /** An unknown host must not be distinguishable from a wrong token. */
  #checkHost({ host_id, connection_id, token }: Register): { digest: string } | ErrorCode {
    const digest = digestOf(token);
    const known = this.#hosts.get(host_id) ?? [];
    const matches = [known[0] ?? NOBODY, known[1] ?? NOBODY].map((each) => timingSafeEqual(each, digest));
    if (!matches.includes(true)) return 'unauthorized';
    if (this.#seen.has(connection_id)) return 'replayed';
    const online = this.#online.get(host_id);
    const { replaceAfter = Number.POSITIVE_INFINITY, clock } = this.#deps;
    if (online && clock.monotonic() - online.since < replaceAfter) {
      // The same host may have lost the connection of its first registration.
      online.link.probe();
      return 'host_busy';
    }
    if (online) return { digest };
    return this.#online.size >= MAX_HOSTS ? 'host_busy' : { digest };
  }

  #checkClient(message: Register): { record: CredentialRecord; host: HostLink<S> } | ErrorCode {
    const { host_id, connection_id, credential_kind, token } = message;
    if (this.#seen.has(connection_id)) return 'replayed';
    const record = this.#credentials.find(digestOf(token), host_id, credential_kind, seconds(this.#deps.clock));
    if (typeof record === 'string') return record;
    const host = this.#online.get(host_id);
    const isRoute = record.kind === 'route';
    if (isRoute && host && host.countOf(record.token_sha256) >= MAX_STREAMS_PER_ROUTE) return 'host_busy';
    if (!host) return 'host_offline';
    return host.isFull ? 'host_busy' : { record, host };
  }

  #admitHost(link: Link<S>, { host_id, connection_id }: Register, digest: string, changes: Change[]): void {
    const former = this.#online.get(host_id);
    if (former) {
      this.#connections.delete(former.link.socket);
      former.link.close(1008);
      this.#hostEnded(former, 'replaced by a new registration');
    }
    const host = this.#createHost({ id: host_id, link, connectionId: connection_id, digest });
    this.#save(changes);
    host.control(encodeMessage({ type: 'registered', flow: { version: 1, window: this.#limits.window } }));
    this.#log('info', host_id, 'registered');
  }

  #createHost(fields: HostFields<S>): HostLink<S> {
    const host: HostLink<S> = new HostLink(fields, {
      clock: this.#deps.clock,
      limits: this.#limits,
      events: {
        violated: (code) => this.#violated(host, code),
        ended: (stream, why) => {
          // A stream that its host has closed only counts the bytes left for it.
          this.#connections.delete(stream.client.socket);
          const bytes = `${stream.bytesToHost} bytes to the host, ${stream.bytesToClient} back`;
          this.#log('debug', fields.id, `a stream ended: ${why} (${bytes})`);
        },
      },
    });
    this.#online.set(fields.id, host);
    this.#connections.set(fields.link.socket, { role: 'host', link: fields.link, host });
    return host;
  }

  /** Spends a use of the credential and opens a stream. Host and client are told once that is stored. */
  #match(link: Link<S>, message: Register, record: CredentialRecord, host: HostLink<S>, changes: Change[]): void {
    const spent = this.#credentials.spend(record, seconds(this.#deps.clock));
    const { token_sha256: digest, credential_id } = record;
    const credentialId = record.kind === 'route' ? credential_id : null;
    const stream = host.add({ id: newId(), connectionId: message.connection_id, digest, credentialId, client: link });
    this.#connections.set(link.socket, { role: 'client', link, host, stream });
    this.#save([...spent, ...changes], (ok) => {
      if (!stream.clientLive || !stream.hostLive) return;
      if (!ok) {
        host.abort(stream, 1011, 'the state could not be stored');
        return;
      }
      const open = { stream_id: stream.id, host_connection_id: host.connectionId };
      host.announce(stream, encodeMessage({ type: 'open', ...open }));
      link.send(encodeMessage({ type: 'matched', stream_id: stream.id }));
      this.#log('debug', host.id, 'a client is matched');
    });
  }

  #fromClient(host: HostLink<S>, stream: Stream<S>, bytes: Uint8Array): void {
    if (bytes.length === 0) host.abort(stream, 1000, 'closed by the client');
    else if (bytes.length > MAX_PAYLOAD) host.abort(stream, 'quota_exceeded', 'a message over 1 MiB');
    else if (!host.fromClient(stream, bytes)) host.abort(stream, 'quota_exceeded', 'the queue to the host is full');
  }

  #control(host: HostLink<S>, text: string): void {
    const message = parseHostMessage(text);
    if (!message || (message.type === 'flow' && host.window !== null)) {
      this.#violated(host, utf8Length(text) > MAX_CONTROL ? 'quota_exceeded' : 'unauthorized');
      return;
    }
    switch (message.type) {
      case 'flow':
        host.useFlow(message.window);
        break;
      case 'revoke':
        this.#revoke(host, message.credential_id);
        break;
      default:
        this.#publish(host, message);
    }
  }

  #publish(host: HostLink<S>, message: Extract<HostMessage, { expires_at: number }>): void {
    const { token_sha256, expires_at } = message;
    const common = { host_id: host.id, token_sha256, expires_at };
    let record: CredentialRecord;
    let named:
      | { credential_kind: 'route'; credential_id: string }
      | { credential_kind: 'bootstrap'; pairing_id: string };
    if (message.type === 'publish_route') {
      const { credential_id, device_id_hash } = message;
      record = { ...common, uses_left: null, kind: 'route', credential_id, device_id_hash };
      named = { credential_kind: 'route', credential_id };
    } else {
      const { pairing_id, max_uses } = message;
      record = { ...common, uses_left: max_uses, kind: 'bootstrap', credential_id: pairing_id, device_id_hash: null };
      named = { credential_kind: 'bootstrap', pairing_id };
    }
    const changes = this.#credentials.publish(record, seconds(this.#deps.clock));
    if (typeof changes === 'string') this.#violated(host, changes);
    else this.#acknowledge(host, changes, encodeMessage({ type: 'published', ...named }));
  }

  #revoke(host: HostLink<S>, credentialId: string): void {
    const changes = this.#credentials.revoke(host.id, credentialId);
    for (const stream of [...host.streams.values()]) {
      if (stream.credentialId === credentialId) host.revoke(stream);
    }
    const reply = { type: 'revoked', credential_kind: 'route', credential_id: credentialId } as const;
    this.#acknowledge(host, changes, encodeMessage(reply));
  }

  /** Answers a control message once its changes are stored. If that fails, the host is closed and tries again. */
  #acknowledge(host: HostLink<S>, changes: Change[], reply: string): void {
    this.#save(changes, (ok) => {
      if (ok) host.control(reply);
      else this.#closeHost(host, 1011, 'the state could not be stored');
    });
  }

  #violated(host: HostLink<S>, code: ErrorCode): void {
    host.link.send(encodeMessage({ type: 'error', code }));
    this.#closeHost(host, 1008, code);
  }

  #closeHost(host: HostLink<S>, code: number, why: string): void {
    this.#connections.delete(host.link.socket);
    host.link.close(code);
    this.#hostEnded(host, why);
  }

  #hostEnded(host: HostLink<S>, why: string): void {
    if (this.#online.get(host.id) !== host) return;
    this.#online.delete(host.id);
    host.end(1001, why);
    this.#log('info', host.id, `offline: ${why}`);
  }
}

const isSeen = (value: unknown): value is SeenRecord =>
  isObject(value) && isId(value.connection_id) && Number.isFinite(value.expires_at);

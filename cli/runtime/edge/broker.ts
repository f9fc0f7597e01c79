import { DurableObject } from 'cloudflare:workers';
import type {
  DurableObjectNamespace,
  DurableObjectState,
  KVNamespace,
  WebSocket as WorkerSocket,
} from '@cloudflare/workers-types';
import { limitKey } from '../../../lib/access/peer.ts';
import { describeError } from '../../../lib/errors.ts';
import { attempt } from '../../../lib/kit/attempt.ts';
import { systemClock } from '../../../lib/kit/clock.ts';
import { parseJson } from '../../../lib/kit/json.ts';
import { KiB, MiB } from '../../../lib/kit/units.ts';
import { createLog, type Log } from '../../../lib/log.ts';
import { Broker, type Hosts, type Snapshot } from '../../../lib/reach/broker/broker.ts';
import { type Effect, wholeMessage } from '../../../lib/reach/broker/effects.ts';
import { parseHosts } from '../../../lib/reach/broker/hosts.ts';
import type { Counts } from '../../../lib/reach/broker/http.ts';
import { isDigest } from '../../../lib/reach/ids.ts';
import { PING, PONG } from '../../../lib/reach/messages.ts';
import { type BrokerStore, openBrokerStore } from '../../../storage/broker.ts';
import { durableObjectExecutor } from '../../../storage/durable-object.ts';
import { sqlBackend } from '../../../storage/sql-backend.ts';
import { answerClose } from './transport.ts';

export interface BrokerEnv {
  BROKER: DurableObjectNamespace;
  COUNTER: DurableObjectNamespace;
  /** A credentials file as on a host (contract 08 §7.1), as a secret. */
  REACH_HOSTS?: string;
  /** Alternatively an entry `host:<ID>` per host: its digest, or a JSON list of one or two. */
  HOSTS?: KVNamespace;
  /** Limits the attempts of one source address. */
  ATTEMPTS?: { limit(options: { key: string }): Promise<{ success: boolean }> };
  REACH_LOG_LEVEL?: string;
}

/** Header in which the Worker passes a client's address to an object. */
export const SOURCE_HEADER = 'cf-connecting-ip';

/** Milliseconds between checks while there is state in memory only. Idle streams are checked when the first one ends. */
const TICK = 1_000;
/**
 * The platform does not report sent bytes, so a stream whose client answers nothing is assumed to send 2 MiB/s once this
 * much is in flight, or to all clients. A client's next message acknowledges everything before it.
 */
const AHEAD = { own: 8 * MiB, all: 32 * MiB };
const PACE_BYTES = 64 * KiB;
const PACE = 31.25;
/** Milliseconds after which a registration replaces the former one, since nothing here detects that a host is dead. */
const REPLACE_AFTER = 10_000;
/**
 * The platform reads from a client even if its host accepts no bytes, and does not wait for the event of a message to finish
 * either (tried 2026-11). So a whole request body of Secure Link, 16 MiB, has to fit in the queue.
 */
const LIMITS = { maxStreamsWithoutFlow: 4, maxUnanswered: 8 * MiB, maxQueuedToHost: 20 * MiB };

/** Digests of a host's tokens; empty for an unknown host. */
export async function digestsOf(env: BrokerEnv, hostId: string): Promise<string[]> {
  const hosts = env.REACH_HOSTS === undefined ? undefined : parseHosts(env.REACH_HOSTS);
  // biome-ignore lint/suspicious/noConsole: the console is the log of a Worker
  if (typeof hosts === 'string') console.log(`REACH_HOSTS is invalid: ${hosts}`);
  const listed = typeof hosts === 'object' ? hosts.get(hostId) : undefined;
  if (listed || !env.HOSTS) return listed ?? [];
  const entry = await env.HOSTS.get(`host:${hostId}`);
  if (entry === null) return [];
  const list = isDigest(entry.trim()) ? [entry.trim()] : parseJson(entry);
  return Array.isArray(list) && list.length <= 2 && list.every(isDigest) ? list : [];
}

/** The broker of one host: the same core as on Node, with sockets that survive its memory (contract 08 §8). */
export class BrokerObject extends DurableObject<BrokerEnv> {
  readonly #state: DurableObjectState;
  readonly #hostId: string;
  readonly #log: Log;
  /** Digests of the host's tokens, as last read. */
  #digests: string[] = [];
  #store!: BrokerStore;
  #broker!: Broker<WorkerSocket>;
  /** Bytes sent to clients that are not assumed to have left yet. */
  readonly #unsent = new Map<WorkerSocket, number>();
  /** Set while there is state in memory only. */
  #ticking: ReturnType<typeof setTimeout> | undefined;
  #isPacing = false;
  /** Time at which the alarm is set to fire, epoch milliseconds. */
  #alarmAt: number | null = null;
  #reported = '';
  #isReporting = false;

  constructor(state: DurableObjectState, env: BrokerEnv) {
    super(state as never, env);
    this.#state = state;
    this.#hostId = state.id.name ?? '';
    const level = env.REACH_LOG_LEVEL === 'DEBUG' ? 'DEBUG' : 'INFO';
    // biome-ignore lint/suspicious/noConsole: the console is the log of a Worker
    this.#log = createLog(level, (line) => console.log(line)).named('reach');
    state.setWebSocketAutoResponse(new WebSocketRequestResponsePair(PING, PONG));
    void state.blockConcurrencyWhile(() => this.#wake());
  }

  async #wake(): Promise<void> {
    this.#store = openBrokerStore(sqlBackend(durableObjectExecutor(this.#state.storage)));
    this.#digests = await digestsOf(this.env, this.#hostId);
    this.#broker = new Broker({
      // Workers have no monotonic clock, and the wall clock survives a sleep.
      clock: { now: systemClock.now, monotonic: systemClock.now },
      hosts: this.#hosts(),
      stored: await this.#store.all(),
      limits: LIMITS,
      replaceAfter: REPLACE_AFTER,
      keepsSeen: true,
    });
    const sockets = this.#state.getWebSockets().map((socket) => ({
      socket,
      snapshot: socket.deserializeAttachment() as Snapshot | null,
    }));
    // Clients need their host.
    sockets.sort((a, b) => Number(b.snapshot?.role === 'host') - Number(a.snapshot?.role === 'host'));
    for (const { socket, snapshot } of sockets) {
      if (!snapshot || !this.#broker.restore(socket, snapshot)) socket.close(1001, '');
    }
    this.#alarmAt = await this.#state.storage.getAlarm();
    // The counter got them before the sleep.
    this.#reported = JSON.stringify(this.#broker.counts());
    this.#run(this.#broker.pending());
    this.#log.debug(`awake with ${sockets.length} sockets`);
  }

  #hosts = (): Hosts => new Map(this.#digests.length > 0 ? [[this.#hostId, this.#digests]] : []);

  /**
   * Takes the present digests: nothing tells an object that is awake that they have changed in KV. False if they cannot be read,
   * and a token may have been replaced.
   */
  async #reload(): Promise<boolean> {
    try {
      const digests = await digestsOf(this.env, this.#hostId);
      if (digests.join() === this.#digests.join()) return true;
      this.#digests = digests;
      this.#run(this.#broker.reload(this.#hosts()));
      return true;
    } catch (error) {
      this.#log.warn(`the tokens of the host cannot be read: ${describeError(error)}`);
      return false;
    }
  }

  async fetch(request: Request): Promise<Response> {
    const source = limitKey(request.headers.get(SOURCE_HEADER));
    if (!this.#broker.admits(source)) return new Response(null, { status: 429 });
    if (!(await this.#reload())) return new Response(null, { status: 503 });
    const { 0: client, 1: server } = new WebSocketPair();
    this.#state.acceptWebSocket(server as never);
    this.#run(this.#broker.opened(server as never, source));
    return new Response(null, { status: 101, webSocket: client } as ResponseInit);
  }

  async webSocketMessage(socket: WebSocket, message: string | ArrayBuffer): Promise<void> {
    const own = socket as never as WorkerSocket;
    this.#run(
      typeof message === 'string' ? this.#broker.text(own, message) : this.#broker.binary(own, new Uint8Array(message)),
    );
  }

  async webSocketClose(socket: WebSocket, code: number): Promise<void> {
    this.#ended(socket as never);
    answerClose(socket as never, code, '');
  }

  async webSocketError(socket: WebSocket): Promise<void> {
    this.#ended(socket as never);
  }

  async alarm(): Promise<void> {
    this.#alarmAt = null;
    this.#run([...this.#broker.tick(), ...this.#broker.prune()]);
  }

  #ended(socket: WorkerSocket): void {
    this.#unsent.delete(socket);
    this.#run(this.#broker.closed(socket));
  }

  #run(effects: Effect<WorkerSocket>[]): void {
    // Each step may free credit, with which the next one sends more.
    for (let step = effects; step.length > 0; ) {
      const sent: [WorkerSocket, number][] = [];
      for (const effect of step) {
        if (effect.do === 'log') this.#log[effect.level](effect.text);
        else if (effect.do === 'save') void this.#save(effect);
        else if (effect.do === 'send') this.#send(effect.socket, wholeMessage(effect), sent);
        else if (effect.do === 'close') {
          this.#unsent.delete(effect.socket);
          attempt(() => effect.socket.close(effect.code, ''));
        }
        // Pausing has no effect here: a stream ends when its queue is full. Neither has probing: see `REPLACE_AFTER`.
      }
      step = sent.flatMap(([socket, bytes]) => this.#broker.sent(socket, bytes));
    }
    this.#settle();
  }

  /** Sends one message. It is added to `sent` if it may count as sent, otherwise it is paced. */
  #send(socket: WorkerSocket, data: string | Uint8Array, sent: [WorkerSocket, number][]): void {
    // Fails once it has closed: the close event follows or has passed.
    attempt(() => socket.send(data as string));
    const unsent = this.#unsent.get(socket) ?? 0;
    if (unsent === 0 && this.#broker.isAhead(socket, AHEAD)) {
      sent.push([socket, data.length]);
      return;
    }
    this.#unsent.set(socket, unsent + data.length);
    this.#pace();
  }

  /**
   * Periodically assumes that a part of every client's bytes has left. A host without flow control is assumed to be fast.
   */
  #pace(): void {
    if (this.#isPacing) return;
    this.#isPacing = true;
    setTimeout(() => {
      this.#isPacing = false;
      for (const [socket, unsent] of [...this.#unsent]) {
        const isHost = this.#broker.snapshot(socket)?.role === 'host';
        const isFast = isHost || this.#broker.isAhead(socket, AHEAD);
        const left = isFast ? unsent : Math.min(unsent, PACE_BYTES);
        if (left < unsent) this.#unsent.set(socket, unsent - left);
        else this.#unsent.delete(socket);
        this.#run(this.#broker.sent(socket, left));
      }
      if (this.#unsent.size > 0) this.#pace();
      else this.#settle();
    }, PACE);
  }

  /** The platform holds messages back until earlier writes are durable. */
  async #save({ changes, id }: Extract<Effect<WorkerSocket>, { do: 'save' }>): Promise<void> {
    let ok = true;
    try {
      await this.#store.write(changes);
    } catch (error) {
      ok = false;
      this.#log.error(`the state could not be stored: ${describeError(error)}`);
    }
    this.#run(this.#broker.saved(id, ok));
  }

  /**
   * Runs after each event. A timer runs only while there is state in memory only, because it keeps the object from sleeping:
   * an idle tunnel has none. State that must survive a sleep is attached in the event that changed it (contract 12 §6).
   */
  #settle(): void {
    if (this.#broker.isBusy()) {
      this.#ticking ??= setTimeout(() => {
        this.#ticking = undefined;
        this.#attach();
        this.#run(this.#broker.tick());
      }, TICK);
    } else {
      clearTimeout(this.#ticking);
      this.#ticking = undefined;
      // Each step of a busy stream would attach it again, so pacing attaches at its end.
      if (!this.#isPacing) this.#attach();
    }
    this.#arm();
    void this.#report();
  }

  /** Sets the alarm for the end of the first idle stream. An alarm that comes too early is set again when it fires. */
  #arm(): void {
    const next = this.#broker.nextExpiry();
    if (next === null || (this.#alarmAt !== null && this.#alarmAt <= next)) return;
    this.#alarmAt = next;
    void this.#state.storage.setAlarm(next);
  }

  /** Attaches to each socket the facts that must survive a sleep. */
  #attach(): void {
    for (const socket of this.#state.getWebSockets()) {
      const snapshot = this.#broker.snapshot(socket);
      if (snapshot) attempt(() => socket.serializeAttachment(snapshot));
    }
  }

  /** Reports a change to the counter, one call at a time. Its figures are best effort. */
  async #report(): Promise<void> {
    if (this.#isReporting) return;
    this.#isReporting = true;
    try {
      for (;;) {
        const counts = this.#broker.counts();
        const text = JSON.stringify(counts);
        if (text === this.#reported) break;
        this.#reported = text;
        await counterOf(this.env).report(this.#hostId, counts.hosts_online, counts.active_streams);
      }
    } catch (error) {
      this.#reported = '';
      this.#log.debug(`the counter does not answer: ${describeError(error)}`);
    } finally {
      this.#isReporting = false;
    }
  }
}

/** The one object that counts. */
export const counterOf = ({ COUNTER }: BrokerEnv): BrokerCounter =>
  COUNTER.get(COUNTER.idFromName('counter')) as unknown as BrokerCounter;

/** Key of the sums. Each host has a key too, with its streams. */
const TOTAL = 'total';
const hostKey = (hostId: string): string => `host:${hostId}`;

/** Adds up the reports of the objects of all hosts, for `/health`. Stores the sums, so that a request costs one row. */
export class BrokerCounter extends DurableObject<BrokerEnv> {
  async report(hostId: string, online: number, streams: number): Promise<void> {
    const { storage } = this.ctx;
    let total = await storage.get<Counts>(TOTAL);
    if (!total) {
      // The rows of former versions have no sums.
      await storage.deleteAll();
      total = { hosts_online: 0, active_streams: 0 };
    }
    const former = await storage.get<number>(hostKey(hostId));
    const hosts = total.hosts_online + online - (former === undefined ? 0 : 1);
    const active = total.active_streams + streams - (former ?? 0);
    if (online === 0) await storage.delete(hostKey(hostId));
    else await storage.put(hostKey(hostId), streams);
    await storage.put(TOTAL, { hosts_online: hosts, active_streams: active } satisfies Counts);
  }

  async counts(): Promise<Counts> {
    return (await this.ctx.storage.get<Counts>(TOTAL)) ?? { hosts_online: 0, active_streams: 0 };
  }
}

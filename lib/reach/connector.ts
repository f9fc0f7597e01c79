import type { DialBroker } from '../host/broker-socket.ts';
import { type Cancel, type Clock, seconds, systemClock } from '../kit/clock.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { type BrokerRequest, BrokerRequestError, HostLink } from './host-link.ts';
import type { OpenLocalEnd } from './host-streams.ts';

const MAX_DELAY = 60_000;
/** Milliseconds for which a connection has to live to count as a success. */
const STABLE = 30_000;
/** Milliseconds for the broker's close frame when the relay stops. */
const CLOSE_TIMEOUT = 2_000;
/** Milliseconds that streams get to end by themselves when the relay stops. */
const STREAM_GRACE = 1_000;
const MAX_ERROR = 500;

/** The connector's part of the states of `/health` (contract 08 §6.1). */
export type ConnectorState = 'stopped' | 'connecting' | 'connected' | 'backoff';

export interface ConnectorStatus {
  state: ConnectorState;
  activeStreams: number;
  completedStreams: number;
  connectAttempts: number;
  /** Epoch seconds; null unless connected. */
  connectedAt: number | null;
  lastError: string | null;
}

export interface ConnectorParts {
  /** `wss://` and authority. */
  brokerUrl: string;
  hostId: string;
  token: string;
  dial: DialBroker;
  openLocalEnd: OpenLocalEnd;
  clock: Clock;
  log: Log;
  /** Between 0 and 1. */
  random?(): number;
  /** The broker has accepted this host, for the first time or again. */
  onConnected(): void;
}

/**
 * Milliseconds until the next attempt after so many failures in a row: 1, 2, 4, ... 60 s, and up to a second more so that
 * hosts do not return in step (contract 08 §6.1).
 */
export function retryDelay(failures: number, random: number): number {
  const delay = Math.min(MAX_DELAY, 1000 * 2 ** Math.min(failures - 1, 16));
  return delay + random * Math.min(1000, delay / 4);
}

/** Keeps this host connected to its broker: one connection at a time, with growing pauses between attempts. */
export class Connector {
  readonly #parts: ConnectorParts;
  #state: ConnectorState = 'stopped';
  #link: HostLink | undefined;
  #failures = 0;
  #attempts = 0;
  #completed = 0;
  #connectedAt: number | null = null;
  #connectedSince = 0;
  #lastError: string | null = null;
  #cancelRetry: Cancel = () => {};

  constructor(parts: ConnectorParts) {
    this.#parts = parts;
  }

  get status(): ConnectorStatus {
    return {
      state: this.#state,
      activeStreams: this.#link?.activeStreams ?? 0,
      completedStreams: this.#completed,
      connectAttempts: this.#attempts,
      connectedAt: this.#connectedAt,
      lastError: this.#lastError,
    };
  }

  get isConnected(): boolean {
    return this.#state === 'connected';
  }

  /** Bytes of streams that have not left for the broker. */
  get unsentBytes(): number {
    return this.#link?.unsentBytes ?? 0;
  }

  start(): void {
    if (this.#state === 'stopped') this.#connect();
  }

  /**
   * Closes streams and connection; no attempt follows. What runs inside the streams, which the relay closes meanwhile, has
   * a second to end by itself (contract 08 §9). Resolves within three seconds.
   */
  async stop(): Promise<void> {
    const link = this.#link;
    this.#link = undefined;
    this.#state = 'stopped';
    this.#connectedAt = null;
    this.#cancelRetry();
    if (!link) return;
    // Waits for the network, not on the relay's clock.
    await withTimeout({ clock: systemClock, timeout: STREAM_GRACE }, link.withoutStreams(), () => {});
    await withTimeout({ clock: systemClock, timeout: CLOSE_TIMEOUT }, link.close(), () => {});
    link.drop();
  }

  /**
   * Sends a request to the broker.
   * @throws BrokerRequestError `offline` unless connected, `timeout` after ten seconds, or the broker's own code, with
   *   which the connection ends.
   */
  request(message: BrokerRequest): Promise<void> {
    const link = this.isConnected ? this.#link : undefined;
    return link ? link.request(message) : Promise.reject(new BrokerRequestError('offline'));
  }

  #connect(): void {
    const { brokerUrl, hostId, token, dial, openLocalEnd, clock } = this.#parts;
    this.#state = 'connecting';
    this.#attempts++;
    const link = new HostLink({
      url: `${brokerUrl}/v1/connect`,
      hostId,
      token,
      dial,
      openLocalEnd,
      clock,
      registered: () => this.#connected(),
      completed: () => {
        this.#completed++;
      },
      ended: (reason) => this.#ended(link, reason),
    });
    this.#link = link;
    link.start();
  }

  #connected(): void {
    const { clock, log, brokerUrl, onConnected } = this.#parts;
    this.#state = 'connected';
    this.#connectedAt = seconds(clock);
    this.#connectedSince = clock.monotonic();
    this.#lastError = null;
    log.info(`connected to the broker ${brokerUrl}`);
    onConnected();
  }

  #ended(link: HostLink, reason: string): void {
    if (this.#link !== link) return;
    const { clock, log, token, random = Math.random } = this.#parts;
    const wasStable = this.isConnected && clock.monotonic() - this.#connectedSince >= STABLE;
    this.#failures = wasStable ? 1 : this.#failures + 1;
    this.#link = undefined;
    this.#state = 'backoff';
    this.#connectedAt = null;
    // A broker chooses some of these words, and must not have the token appear in them.
    const error = reason.replaceAll(token, '***').slice(0, MAX_ERROR);
    const delay = retryDelay(this.#failures, random());
    const line = `no connection to the broker: ${error}; trying again in ${Math.round(delay / 1000)} s`;
    if (error === this.#lastError) log.debug(line);
    else log.warn(line);
    this.#lastError = error;
    this.#cancelRetry = clock.after(delay, () => this.#connect());
  }
}

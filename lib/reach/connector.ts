import { type Cancel, seconds, systemClock } from '../kit/clock.ts';
import { type Attempts, type Ending, NO_ATTEMPTS, nextAttempt, type Pace } from '../kit/reconnect.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import { HostLink, type HostLinkDeps } from './host-link.ts';

/** 1, 2, 4, ... 60 s, and up to a second more (contract 08 §6.1). */
export const PACE: Pace = { max: 60_000, jitter: (wait) => Math.min(1000, wait / 4) };
/** Milliseconds for the broker's close frame when the relay stops. */
const CLOSE_TIMEOUT = 2_000;
/** Milliseconds that streams get to end by themselves when the relay stops. */
const STREAM_GRACE = 1_000;
const MAX_ERROR = 500;

/**
 * Advice for a broker that refuses this host, or has closed its connection without a reason: a broker keeps one connection
 * of a host, the first one or, at the edge, the last. Null for any other `last_error`.
 */
export const otherRelayAdvice = (error: string): string | null =>
  error === 'host_busy' || error.endsWith(' closed the connection (1008)')
    ? 'Another relay seems to run with the credentials of this one, such as one from a backup: stop one of the two.'
    : null;

/** The connector's states in `/health` (contract 08 §6.1). */
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

export interface ConnectorDeps extends Omit<HostLinkDeps, 'registered' | 'completed' | 'ended'> {
  log: Log;
  /** Between 0 and 1. */
  random?(): number;
  /** The broker has accepted this host, for the first time or again. */
  onConnected(broker: HostLink): void;
}

/** Keeps this host connected to its broker: one connection at a time, with growing pauses between attempts. */
export class Connector {
  readonly #deps: ConnectorDeps;
  #state: ConnectorState = 'stopped';
  #link: HostLink | undefined;
  #retries: Attempts = NO_ATTEMPTS;
  #attempts = 0;
  #completed = 0;
  #connectedAt: number | null = null;
  #connectedSince = 0;
  #lastError: string | null = null;
  #cancelRetry: Cancel = () => {};

  constructor(deps: ConnectorDeps) {
    this.#deps = deps;
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

  /** The present connection to the broker, once that has accepted this host. */
  get broker(): HostLink | undefined {
    return this.#state === 'connected' ? this.#link : undefined;
  }

  start(): void {
    if (this.#state === 'stopped') this.#connect();
  }

  /**
   * Closes streams and connection, and stops reconnecting. Traffic inside the streams, which the relay closes meanwhile, has
   * a second to end by itself (contract 08 §9). Resolves within three seconds.
   */
  async stop(): Promise<void> {
    const link = this.#link;
    this.#link = undefined;
    this.#state = 'stopped';
    this.#connectedAt = null;
    this.#cancelRetry();
    if (!link) return;
    // Waits for the network, so not on the relay's clock.
    await withTimeout({ clock: systemClock, timeout: STREAM_GRACE }, link.withoutStreams(), () => {});
    await withTimeout({ clock: systemClock, timeout: CLOSE_TIMEOUT }, link.close(), () => {});
    link.drop();
  }

  #connect(): void {
    this.#state = 'connecting';
    this.#attempts++;
    const link: HostLink = new HostLink({
      ...this.#deps,
      registered: () => this.#connected(link),
      completed: () => {
        this.#completed++;
      },
      ended: (reason, ending) => this.#ended(link, reason, ending),
    });
    this.#link = link;
    link.start();
  }

  #connected(link: HostLink): void {
    if (this.#link !== link) return;
    const { clock, log, brokerUrl, onConnected } = this.#deps;
    this.#state = 'connected';
    this.#connectedAt = seconds(clock);
    this.#connectedSince = clock.monotonic();
    this.#lastError = null;
    log.info(`connected to the broker ${brokerUrl}`);
    onConnected(link);
  }

  #ended(link: HostLink, reason: string, ending: Ending): void {
    if (this.#link !== link) return;
    const { clock, log, token, random = Math.random } = this.#deps;
    const now = clock.monotonic();
    const lasted = this.broker ? now - this.#connectedSince : null;
    const { attempts, wait } = nextAttempt(this.#retries, { ending, lasted }, { now, random: random() }, PACE);
    this.#retries = attempts;
    this.#link = undefined;
    this.#state = 'backoff';
    this.#connectedAt = null;
    // A broker chooses some of these words, and the token must not appear in them.
    const error = reason.replaceAll(token, '***').slice(0, MAX_ERROR);
    const advice = otherRelayAdvice(error);
    const line = `no connection to the broker: ${error}; trying again in ${Math.ceil(wait / 1000)} s${advice ? `. ${advice}` : ''}`;
    if (error === this.#lastError) log.debug(line);
    else log.warn(line);
    this.#lastError = error;
    this.#cancelRetry = clock.after(wait, () => this.#connect());
  }
}

import { describeError } from '../errors.ts';
import type { BrokerSocket, DialBroker } from '../host/broker-socket.ts';
import { UpstreamSocketError } from '../host/upstream-socket.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { type Ending, endingOf } from '../kit/reconnect.ts';
import { visibleLine } from '../kit/text.ts';
import { decodeFrame, MAX_FRAME } from './frames.ts';
import { HostStreams, type OpenLocalEnd, WINDOW } from './host-streams.ts';
import { newId } from './ids.ts';
import { type BrokerMessage, encodeMessage, type HostMessage, parseBrokerMessage } from './messages.ts';
import { CONNECT_PATH } from './settings.ts';

/** Milliseconds for the answer to the registration, and for that to a request. */
const REGISTER_TIMEOUT = 10_000;
const REQUEST_TIMEOUT = 10_000;
/** A broker that leaves two of them unanswered is given up. */
const PING_INTERVAL = 7_000;
/** Unanswered requests of one connection. */
const MAX_PENDING = 1024;
const SHUTTING_DOWN = 1001;

/** A message that the broker answers: one to publish or to revoke a credential. */
export type BrokerRequest = Exclude<HostMessage, { type: 'flow' }>;

/** A request that was not acknowledged. `code` is the broker's, or `offline`, `timeout` or `busy`. */
export class BrokerRequestError extends Error {
  readonly code: string;

  constructor(code: string) {
    super(`the broker did not acknowledge the request: ${code}`);
    this.name = 'BrokerRequestError';
    this.code = code;
  }
}

export interface HostLinkDeps {
  /** `wss://` and authority. */
  brokerUrl: string;
  hostId: string;
  token: string;
  dial: DialBroker;
  openLocalEnd: OpenLocalEnd;
  clock: Clock;
  /** The broker has accepted this host. */
  registered(): void;
  /** A stream is over. */
  completed(): void;
  /** The attempt failed or the connection ended, with the reason; called once, and not after `close`. */
  ended(reason: string, ending: Ending): void;
}

interface PendingRequest {
  resolve(): void;
  reject(error: BrokerRequestError): void;
  cancelTimer: Cancel;
}

type LinkState = 'dialling' | 'registering' | 'registered' | 'over';

/** One connection to the broker, from dialling to its end (contract 08 §6.4). */
export class HostLink {
  readonly brokerUrl: string;
  readonly hostId: string;
  readonly #deps: HostLinkDeps;
  readonly #connectionId = newId();
  readonly #abort = new AbortController();
  /** Keyed by the published or revoked credential. */
  readonly #pending = new Map<string, PendingRequest>();
  #state: LinkState = 'dialling';
  #socket: BrokerSocket | undefined;
  #streams: HostStreams | undefined;
  #hasFlow = false;
  #cancelTimer: Cancel = () => {};
  #onClosed: () => void = () => {};
  #onLastStream: () => void = () => {};

  constructor(deps: HostLinkDeps) {
    this.brokerUrl = deps.brokerUrl;
    this.hostId = deps.hostId;
    this.#deps = deps;
  }

  get activeStreams(): number {
    return this.#streams?.size ?? 0;
  }

  /** Bytes of streams that have not been sent to the broker. */
  get unsentBytes(): number {
    return this.#streams?.unsentBytes ?? 0;
  }

  /** Dials and registers. Never throws: see `ended`. */
  start(): void {
    void this.#dial();
  }

  /**
   * Sends a request and waits for its acknowledgement: one at a time for each credential.
   * @throws BrokerRequestError `offline` unless registered, `timeout` after ten seconds, `busy`, or the broker's own code,
   *   after which the connection ends.
   */
  request(message: BrokerRequest): Promise<void> {
    const key = keyOf(message);
    if (this.#state !== 'registered' || this.#pending.has(key) || this.#pending.size >= MAX_PENDING) {
      return Promise.reject(new BrokerRequestError(this.#state === 'registered' ? 'busy' : 'offline'));
    }
    return new Promise((resolve, reject) => {
      const cancelTimer = this.#deps.clock.after(REQUEST_TIMEOUT, () => {
        this.#pending.delete(key);
        reject(new BrokerRequestError('timeout'));
      });
      this.#pending.set(key, { resolve, reject, cancelTimer });
      this.#socket?.send(encodeMessage(message));
    });
  }

  /** Resolves once no stream is open. */
  withoutStreams(): Promise<void> {
    if (this.activeStreams === 0) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onLastStream = resolve;
    });
  }

  /** Closes the streams with CLOSE, then the connection. Resolves once the broker has answered, if ever. */
  close(): Promise<void> {
    const socket = this.#socket;
    if (this.#state !== 'over') {
      this.#streams?.closeAll();
      this.#finish();
      if (!socket) this.#abort.abort();
    }
    if (!socket) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onClosed = resolve;
      socket.close(SHUTTING_DOWN, '');
    });
  }

  /** Drops the connection at once. */
  drop(): void {
    this.#finish();
    this.#abort.abort();
    this.#socket?.terminate();
  }

  async #dial(): Promise<void> {
    const { dial } = this.#deps;
    try {
      const request = {
        url: this.brokerUrl + CONNECT_PATH,
        headers: {},
        signal: this.#abort.signal,
        maxMessage: MAX_FRAME,
        pingInterval: PING_INTERVAL,
      };
      const socket = await dial(request, {
        message: (text) => this.#receive(text),
        bytes: (bytes) => this.#receiveBytes(bytes),
        closed: ({ code, reason }) => {
          this.#socket = undefined;
          const why = `${code}${reason && `: ${visibleLine(reason)}`}`;
          this.#end(`the broker closed the connection (${why})`, endingOf({ code }));
          this.#onClosed();
        },
      });
      // A broker that speaks first, or a relay that stops, may end the attempt before the socket exists.
      if (this.#state === 'over') socket.terminate();
      else this.#register(socket);
    } catch (error) {
      const { status, isRefused } = error instanceof UpstreamSocketError ? error : {};
      this.#end(describeError(error), endingOf({ code: 1006, status, isRefused }));
    }
  }

  #register(socket: BrokerSocket): void {
    const { token, clock } = this.#deps;
    this.#socket = socket;
    this.#state = 'registering';
    this.#cancelTimer = clock.after(REGISTER_TIMEOUT, () => this.#fail('the broker did not answer the registration'));
    const connection_id = this.#connectionId;
    const role = { role: 'host', credential_kind: 'host' } as const;
    socket.send(encodeMessage({ type: 'register', ...role, host_id: this.hostId, connection_id, token }));
  }

  #receive(text: string): void {
    if (this.#state === 'over') return;
    const message = parseBrokerMessage(text);
    if (message?.type === 'error') this.#fail(message.code, message.code);
    else if (!message || (message.type === 'registered') !== (this.#state === 'registering'))
      this.#violation('message');
    else this.#handle(message);
  }

  #handle(message: Exclude<BrokerMessage, { type: 'error' }>): void {
    switch (message.type) {
      case 'registered':
        this.#registered(message.flow?.window);
        break;
      case 'open':
        // Another id belongs to an earlier connection, whose streams are gone (contract 08 §6.4).
        if (message.host_connection_id === this.#connectionId) this.#streams?.open(message.stream_id);
        else this.#violation('stream for another connection');
        break;
      case 'published':
        this.#acknowledged(
          message.credential_kind === 'route' ? `route ${message.credential_id}` : `bootstrap ${message.pairing_id}`,
        );
        break;
      case 'revoked':
        this.#acknowledged(`revoke ${message.credential_id}`);
        break;
    }
  }

  #registered(window: number | undefined): void {
    const { openLocalEnd: open, clock, registered } = this.#deps;
    const completed = () => {
      this.#deps.completed();
      if (this.activeStreams === 0) this.#onLastStream();
    };
    const socket = this.#socket as BrokerSocket;
    this.#cancelTimer();
    this.#state = 'registered';
    this.#hasFlow = window !== undefined;
    this.#streams = new HostStreams({ socket, open, clock, window, completed });
    if (window !== undefined) socket.send(encodeMessage({ type: 'flow', window: WINDOW }));
    registered();
  }

  #receiveBytes(bytes: Uint8Array): void {
    if (this.#state === 'over') return;
    const frame = this.#state === 'registered' ? decodeFrame(bytes, this.#hasFlow) : undefined;
    if (!frame || frame.type === 'bad') this.#violation('frame');
    else this.#streams?.receive(frame);
  }

  #acknowledged(key: string): void {
    const request = this.#pending.get(key);
    if (!request) return;
    this.#pending.delete(key);
    request.cancelTimer();
    request.resolve();
  }

  #violation(what: string): void {
    this.#fail(`protocol violation of the broker: unexpected ${what}`);
  }

  /** Ends the connection from this side. */
  #fail(reason: string, code?: string): void {
    this.#end(reason, 'other', code);
    this.#abort.abort();
    this.#socket?.terminate();
  }

  #end(reason: string, ending: Ending, code?: string): void {
    if (this.#state === 'over') return;
    this.#finish(code);
    this.#deps.ended(reason, ending);
  }

  /** Frees everything except the socket. Pending requests fail with `code`. */
  #finish(code = 'offline'): void {
    this.#state = 'over';
    this.#cancelTimer();
    this.#streams?.abort();
    const pending = [...this.#pending.values()];
    this.#pending.clear();
    for (const { reject, cancelTimer } of pending) {
      cancelTimer();
      reject(new BrokerRequestError(code));
    }
  }
}

function keyOf(message: BrokerRequest): string {
  switch (message.type) {
    case 'publish_bootstrap':
      return `bootstrap ${message.pairing_id}`;
    case 'publish_route':
      return `route ${message.credential_id}`;
    case 'revoke':
      return `revoke ${message.credential_id}`;
  }
}

import { describeError } from '../errors.ts';
import { type DialUpstream, type UpstreamSocket, UpstreamSocketError } from '../host/upstream-socket.ts';
import type { Cancel, Clock } from '../kit/clock.ts';
import { type Ending, endingOf } from '../kit/reconnect.ts';
import { visibleLine } from '../kit/text.ts';
import { type Cursor, encodeFrame, type Frame, HOME_PATH, MAX_FRAME, parseFrame } from './frames.ts';
import { type HomeKey, signChallenge } from './keys.ts';

/** Milliseconds from the open socket until the edge has accepted home. */
const HELLO_TIMEOUT = 10_000;
/** The platform itself answers pings, so the object keeps sleeping. */
const PING_INTERVAL = 15_000;
const SHUTTING_DOWN = 1001;

export interface HomeLinkDeps {
  /** Origin of the edge. */
  url: string;
  key: HomeKey;
  epoch: string;
  applied(): Cursor;
  dial: DialUpstream;
  clock: Clock;
  /** The edge has accepted home, and has applied home's ops up to a position. */
  accepted(edge: Cursor): void;
  receive(frame: Frame): void;
  /** The attempt failed or the connection ended, with the reason; called once, and not after `close`. */
  ended(reason: string, ending: Ending): void;
}

/** One connection from home to the edge, from dialling to its end (contract 12 §2). */
export class HomeLink {
  readonly #deps: HomeLinkDeps;
  readonly #abort = new AbortController();
  #state: 'dialling' | 'signing' | 'up' | 'over' = 'dialling';
  #socket: UpstreamSocket | undefined;
  /** A challenge that came before the socket was returned. */
  #challenge: string | undefined;
  #cancelTimer: Cancel = () => {};

  constructor(deps: HomeLinkDeps) {
    this.#deps = deps;
  }

  /** Dials and proves the key. Never throws: see `ended`. */
  start(): void {
    void this.#dial();
  }

  send(text: string): void {
    if (this.#state === 'up') this.#socket?.send(text);
  }

  /** Ends the connection from this side, and says why. */
  fail(reason: string): void {
    if (this.#state === 'over') return;
    this.#end(reason, 'other');
    this.#drop();
  }

  /** Ends the connection because the relay stops or the mirror ends. */
  close(): void {
    if (this.#state === 'over') return;
    this.#finish();
    if (this.#socket) this.#socket.close(SHUTTING_DOWN, '');
    else this.#abort.abort();
  }

  async #dial(): Promise<void> {
    const { url, dial, clock } = this.#deps;
    try {
      const socket = await dial(
        {
          url: url.replace(/^http/, 'ws') + HOME_PATH,
          headers: {},
          signal: this.#abort.signal,
          maxMessage: MAX_FRAME,
          pingInterval: PING_INTERVAL,
        },
        {
          message: (text) => this.#receive(text),
          closed: ({ code, reason }) => {
            this.#socket = undefined;
            const why = `${code}${reason && `: ${visibleLine(reason)}`}`;
            this.#end(`the edge closed the connection (${why})`, endingOf({ code }));
          },
        },
      );
      if (this.#state === 'over') return socket.terminate();
      this.#socket = socket;
      this.#cancelTimer = clock.after(HELLO_TIMEOUT, () => this.fail('the edge did not accept home in time'));
      if (this.#challenge !== undefined) await this.#answer(this.#challenge);
    } catch (error) {
      const { status, isRefused } = error instanceof UpstreamSocketError ? error : {};
      this.#end(describeError(error), endingOf({ code: 1006, status, isRefused }));
    }
  }

  #receive(text: string): void {
    if (this.#state === 'over') return;
    const frame = parseFrame(text);
    if (!frame) this.fail('the edge sent what is no frame of the mirror');
    else if (this.#state === 'up' && frame.type !== 'challenge' && frame.type !== 'hello') this.#deps.receive(frame);
    else if (this.#state === 'dialling' && frame.type === 'challenge') {
      if (this.#socket) void this.#answer(frame.nonce);
      else this.#challenge = frame.nonce;
    } else if (this.#state === 'signing' && frame.type === 'hello') {
      this.#cancelTimer();
      this.#state = 'up';
      this.#deps.accepted(frame.applied);
    } else this.fail('the edge sent a frame out of turn');
  }

  async #answer(nonce: string): Promise<void> {
    const { key, url, epoch, applied } = this.#deps;
    this.#state = 'signing';
    try {
      const sig = await signChallenge(key.privateKey, nonce, new URL(url).host);
      if (this.#state !== 'signing') return;
      this.#socket?.send(encodeFrame({ type: 'hello', key: key.publicKey, sig, epoch, applied: applied() }));
    } catch (error) {
      const advice = 'disable the mirror on both sides and enable it again';
      this.fail(`home's key cannot be used (${describeError(error)}): ${advice}`);
    }
  }

  #end(reason: string, ending: Ending): void {
    if (this.#state === 'over') return;
    this.#finish();
    this.#deps.ended(reason, ending);
  }

  #finish(): void {
    this.#state = 'over';
    this.#cancelTimer();
  }

  #drop(): void {
    this.#abort.abort();
    this.#socket?.terminate();
  }
}

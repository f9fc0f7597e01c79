import { describeError } from '../errors.ts';
import { type Admitted, type AuthParts, authenticate, type Offer, readFirstFrame, refusalReason } from './auth.ts';
import type { Member } from './bag.ts';
import { encodeEnvelope, isLongerThan } from './envelope.ts';
import type { Caller, Transport } from './transport.ts';

const PRE_AUTH_BYTES = 64 * 1024;

export interface GateParts extends AuthParts {
  /** The socket was refused, and told so: it is to be gone soon. */
  refused(gate: Gate): void;
  /** The socket has left: admitted or gone. */
  left(gate: Gate): void;
}

/** Makes the connection of a socket whose offer was good. */
export type Admit = (admitted: Admitted, typedStream: boolean) => { receive(text: string): void };

/**
 * A socket until it has authenticated (contract 01 §3.3-3.6): one first frame, 64 KiB, 30 seconds. A refused socket
 * stays here until it is really gone, or has had the time to go: its connection is not free before.
 */
export class Gate implements Member {
  readonly transport: Transport;
  readonly caller: Caller;
  place = -1;
  /** When its time is over, on the monotonic clock. */
  deadline = 0;
  readonly #parts: GateParts;
  readonly #admit: Admit;
  #state: 'waiting' | 'authenticating' | 'over' = 'waiting';
  #backlog: string[] | undefined;
  #budget = PRE_AUTH_BYTES;

  constructor(parts: GateParts, transport: Transport, caller: Caller, admit: Admit) {
    this.#parts = parts;
    this.#admit = admit;
    this.transport = transport;
    this.caller = caller;
  }

  message(text: string): void {
    if (this.#state === 'over') return;
    if (isLongerThan(text, this.#budget)) {
      this.#finish();
      this.transport.terminate();
      return;
    }
    this.#budget -= text.length;
    if (this.#state === 'waiting') {
      this.#judge(text);
      return;
    }
    this.#backlog ??= [];
    this.#backlog.push(text);
  }

  /** The socket is gone, or on to better things. */
  closed(): void {
    this.#finish();
    this.#parts.left(this);
  }

  /** Its time is over, unless its offer is being judged. A refused one that did not go gives its place free. */
  expire(): void {
    if (this.#state === 'waiting') this.#fail('Authentication timeout');
    else if (this.#state === 'over') this.#parts.left(this);
  }

  close(code: number, reason: string): void {
    this.#finish();
    this.transport.close(code, reason);
  }

  #judge(text: string): void {
    const frame = readFirstFrame(text);
    if (frame.kind === 'refused') {
      this.#fail(frame.reason);
      return;
    }
    const { offer } = frame;
    this.#state = 'authenticating';
    let verdict: ReturnType<typeof authenticate>;
    try {
      verdict = authenticate(this.#parts, offer, this.caller);
    } catch (error) {
      verdict = this.#failed(error);
    }
    if (verdict instanceof Promise) {
      void verdict.catch((error) => this.#failed(error)).then((admitted) => this.#judged(offer, admitted));
    } else this.#judged(offer, verdict);
  }

  #failed(error: unknown): undefined {
    this.#parts.log.error(`authentication failed unexpectedly: ${describeError(error)}`);
  }

  #judged(offer: Offer, admitted: Admitted | undefined): void {
    // The socket may have gone, and the relay may have begun to stop, while the session was saved.
    if (this.#state !== 'authenticating') return;
    if (!admitted) {
      this.#fail(refusalReason(offer));
      return;
    }
    const backlog = this.#backlog;
    this.closed();
    const connection = this.#admit(admitted, offer.typedStream);
    for (const text of backlog ?? []) connection.receive(text);
  }

  #fail(reason: string): void {
    this.#parts.log.info(`socket from ${this.caller.key} refused: ${reason}`);
    this.transport.send(encodeEnvelope('system', 'auth.fail', { reason }, crypto.randomUUID()));
    this.close(1008, reason);
    this.#parts.refused(this);
  }

  #finish(): void {
    this.#state = 'over';
    this.#backlog = undefined;
  }
}

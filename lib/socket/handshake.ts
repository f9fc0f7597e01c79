import type { Proofs } from '../access/proofs.ts';
import { describeError, RelayError } from '../errors.ts';
import type { Session } from '../sessions/session.ts';
import {
  type Admitted,
  type AuthDeps,
  type AuthRequest,
  authenticate,
  type Proved,
  provedCredential,
  readFirstFrame,
  refusalReason,
} from './auth.ts';
import { encodeEnvelope, isLongerThan } from './envelope.ts';
import type { Indexed } from './indexed-set.ts';
import type { Caller, Transport } from './transport.ts';

const MAX_PRE_AUTH_BYTES = 64 * 1024;

export interface HandshakeDeps extends AuthDeps {
  proofs: Proofs;
  /** Credential with which a client over Secure Link returns through the broker. Takes 3 s at most and never rejects. */
  routeCredential?(session: Session): Promise<object | undefined>;
  /** While this is pending, a first frame waits (contract 11 §5). Never rejects. */
  loading?(): Promise<void> | undefined;
  /** The client was refused and notified, but is still connected. */
  refused(handshake: Handshake): void;
  /** The handshake is over: the client was admitted or has disconnected. */
  done(handshake: Handshake): void;
}

/** Turns an authenticated socket into a connection. */
export type Admit = (
  admitted: Admitted,
  request: Pick<AuthRequest, 'typedStream' | 'boxKey'>,
) => { receive(text: string): void };

/**
 * A socket before its authentication (contract 01 §3.3-3.6): one first frame, 64 KiB, 30 seconds. A client whose proof has
 * an old nonce gets a new one, once (`auth.challenge`), and sends its first frame again. Lasts until a refused client has
 * disconnected, or has had time to, and occupies a slot until then.
 */
export class Handshake implements Indexed {
  readonly transport: Transport;
  readonly caller: Caller;
  index = -1;
  /** Expiry, on the monotonic clock. */
  deadline = 0;
  readonly #deps: HandshakeDeps;
  readonly #admit: Admit;
  #state: 'waiting' | 'authenticating' | 'over' = 'waiting';
  #backlog: string[] | undefined;
  #budget = MAX_PRE_AUTH_BYTES;
  /** Seconds of the restriction on codes when this client presented its code. */
  #restrictedFor = 0;
  #wasChallenged = false;

  constructor(deps: HandshakeDeps, transport: Transport, caller: Caller, admit: Admit) {
    this.#deps = deps;
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
      this.#authenticate(text);
      return;
    }
    this.#backlog ??= [];
    this.#backlog.push(text);
  }

  /** The socket has closed, or its connection has taken over. */
  closed(): void {
    this.#finish();
    this.#deps.done(this);
  }

  /** Refuses a silent client; frees the slot of a refused one that is still connected. */
  expire(): void {
    if (this.#state === 'waiting') this.#fail('Authentication timeout');
    else if (this.#state === 'over') this.#deps.done(this);
  }

  close(code: number, reason: string): void {
    this.#finish();
    this.transport.close(code, reason);
  }

  #authenticate(text: string): void {
    const frame = readFirstFrame(text);
    if (frame.kind === 'refused') {
      this.#fail(frame.reason);
      return;
    }
    const { request } = frame;
    this.#state = 'authenticating';
    const loading = this.#deps.loading?.();
    if (!loading) {
      this.#begin(request);
      return;
    }
    void loading.then(() => {
      if (this.#state === 'authenticating') this.#begin(request);
    });
  }

  #begin(request: AuthRequest): void {
    this.#restrictedFor = this.#deps.limiter.restrictedFor();
    if (request.proof === undefined) this.#check(request);
    else void this.#prove(request, request.proof);
  }

  async #prove(request: AuthRequest, proof: string): Promise<void> {
    const { proofs } = this.#deps;
    const target = { method: 'GET', path: '/ws', token: provedCredential(request) };
    const verdict = await proofs.verify(proof, target);
    if (this.#state !== 'authenticating') return;
    if (verdict.kind === 'stale' && !this.#wasChallenged) {
      this.#wasChallenged = true;
      this.#state = 'waiting';
      const { nonce } = proofs.nonce();
      this.transport.send(encodeEnvelope('system', 'auth.challenge', { nonce }, crypto.randomUUID()));
    } else this.#check(request, verdict.kind === 'proved' && verdict.thumbprint);
  }

  #check(request: AuthRequest, proved?: Proved): void {
    let result: ReturnType<typeof authenticate>;
    try {
      result = this.#isPinned()
        ? this.#authenticatePinned(request, proved)
        : authenticate(this.#deps, request, this.caller, proved);
    } catch (error) {
      this.#failed(request, error);
      return;
    }
    if (result instanceof Promise) {
      void result.then(
        (admitted) => this.#settle(request, admitted),
        (error) => this.#failed(request, error),
      );
    } else this.#settle(request, result);
  }

  /** True if the client came over Secure Link or Reach, according to the runtime, not to a header. */
  #isPinned(): boolean {
    const { via } = this.caller.peer;
    return this.#deps.routeCredential !== undefined && (via === 'secure-link' || via === 'reach');
  }

  async #authenticatePinned(request: AuthRequest, proved?: Proved): Promise<Admitted | undefined> {
    const admitted = await authenticate(this.#deps, request, this.caller, proved);
    if (!admitted) return undefined;
    const routeCredential = await this.#deps.routeCredential?.(admitted.session);
    // The session may have ended meanwhile.
    return this.#deps.sessions.isAlive(admitted.session) ? { ...admitted, routeCredential } : undefined;
  }

  #failed(request: AuthRequest, error: unknown): void {
    const isExpected = error instanceof RelayError && (error.kind === 'unavailable' || error.kind === 'unauthorized');
    if (!isExpected) this.#deps.log.error(`authentication failed unexpectedly: ${describeError(error)}`);
    if (this.#state !== 'authenticating') return;
    this.#fail(isExpected ? error.message : this.#refusalOf(request));
  }

  #settle(request: AuthRequest, admitted: Admitted | undefined): void {
    // The socket may have closed, or the relay started to stop, while the session was being saved.
    if (this.#state !== 'authenticating') return;
    if (!admitted) {
      this.#fail(this.#refusalOf(request));
      return;
    }
    const backlog = this.#backlog;
    this.closed();
    const connection = this.#admit(admitted, request);
    for (const text of backlog ?? []) connection.receive(text);
  }

  /** A device with the credentials of an ended session is told when it ended (contract 11 §2). */
  #refusalOf(request: AuthRequest): string {
    const { sessionToken: token, refreshToken, pairingCode } = request;
    const over = pairingCode === undefined ? this.#deps.sessions.endedSentence({ token, refreshToken }) : undefined;
    return over ?? refusalReason(request, this.#restrictedFor, this.#deps.isEdgeOfHome?.());
  }

  #fail(reason: string): void {
    this.#deps.log.info(`socket from ${this.caller.key} refused: ${reason}`);
    this.transport.send(encodeEnvelope('system', 'auth.fail', { reason }, crypto.randomUUID()));
    this.close(1008, reason);
    this.#deps.refused(this);
  }

  #finish(): void {
    this.#state = 'over';
    this.#backlog = undefined;
  }
}

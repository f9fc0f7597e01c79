import { type Cancel, type Clock, every } from '../../kit/clock.ts';
import type { JsonObject } from '../../kit/json.ts';
import type { SocketEnd, SocketEvents, Transport } from '../../socket/transport.ts';
import type { Cursors } from './outbox.ts';
import { ResumableSession, SUPERSEDED } from './resumable.ts';
import type { Activity } from './rules.ts';
import type { Effect, EventBody, Input, Phase, ResumableOptions, SocketId } from './types.ts';

/** Sockets are pinged every second time, and checked for an answer in between. */
const TICK = 10_000;
/** Unsent bytes above which the producer pauses, unless the transport or the rules allow less. */
const HIGH_WATER = 4 * 1024 * 1024;

export interface SessionSocketDeps extends Omit<ResumableOptions, 'now'> {
  clock: Clock;
  /** A message of the owner, of any type that the session does not handle itself. */
  deliver(message: JsonObject): void;
  /** Connects the provider, for rules that ask for it; answered by `connected` or `connectFailed`. */
  connect?(): void;
  /** The session got its first socket, lost it, or got another one. */
  changed?(phase: Phase): void;
  /** A socket lost the session to another one. */
  superseded?(): void;
  /** An event was made, for the event log. */
  made(event: JsonObject): void;
  /** The session is over. Called once, last. */
  ended(why: string): void;
  failed(error: unknown): void;
}

interface Link {
  transport: Transport;
  /** Bytes received and still unsent when the transport was pinged. */
  pinged?: { received: number | undefined; unsent: number };
  /** Unsent bytes that a replay put there. */
  replayed: number;
}

/** The sockets of one voice session: performs the effects of its state machine, and owns its timers. */
export class SessionSocket {
  readonly #deps: SessionSocketDeps;
  readonly #machine: ResumableSession;
  readonly #links = new Map<SocketId, Link>();
  /** Inputs that arrived while another one was being handled. */
  readonly #inputs: Input[] = [];
  readonly #waiting = new Set<() => void>();
  #isRunning = false;
  #isRingFull = false;
  #isSocketFull = false;
  #owner: SocketId | undefined;
  #armed: number | undefined;
  #cancelDeadline: Cancel = () => {};
  readonly #cancelTicks: Cancel;

  constructor(deps: SessionSocketDeps) {
    this.#deps = deps;
    const { clock } = deps;
    this.#machine = new ResumableSession({ ...deps, now: clock.monotonic() });
    let isPing = true;
    // At the edge, the tick also keeps the object awake that holds the session.
    this.#cancelTicks = every(
      clock,
      TICK,
      () => {
        if (isPing) this.#ping();
        else this.#dropSilent();
        isPing = !isPing;
      },
      deps.failed,
    );
    this.#arm();
  }

  /** True if the session has ended, even if its timer is late. */
  get isOver(): boolean {
    this.#step({ type: 'time' });
    return this.#machine.phase === 'closed';
  }

  /** True if a client is connected, even if it still waits for the provider. */
  get isAttached(): boolean {
    return this.#machine.owner !== undefined;
  }

  /** The client's position. */
  get cursors(): Readonly<Cursors> {
    return this.#machine.cursors;
  }

  /** Takes over a socket of the session's principal. */
  open(transport: Transport): SocketEvents {
    const socket = transport.id;
    transport.authenticated?.();
    this.#links.set(socket, { transport, replayed: 0 });
    this.#step({ type: 'opened', socket });
    return {
      message: (text) => this.#step({ type: 'text', socket, text }),
      bytes: () => this.#step({ type: 'binary', socket }),
      drained: () => this.#drained(socket),
      pinged: () => this.#drained(socket),
      closed: (end = { code: 1006, reason: '' }) => this.#lose(socket, end),
    };
  }

  publish(event: EventBody): void {
    this.#step({ type: 'publish', event });
  }

  /** Publishes an event with an `audio_event_id`. The producer awaits `room` before each. */
  publishAudio(event: EventBody): void {
    this.#step({ type: 'publish', event, isAudio: true });
  }

  setActivity(activity: Activity): void {
    this.#step({ type: 'activity', activity });
  }

  /** Records what the client has played, from a delivered message (`playback.drained`). */
  setPlayed(audioEventId: number): void {
    this.#step({ type: 'played', audioEventId });
  }

  setResumeTtl(ttl: number): void {
    this.#step({ type: 'resume-ttl', ttl });
  }

  connected(): void {
    this.#step({ type: 'connected' });
  }

  connectFailed(error: EventBody): void {
    this.#step({ type: 'connect-failed', error });
  }

  /** Ends the session; `why` is for the event log. */
  close(code: number, reason: string, why: string): void {
    this.#step({ type: 'close', code, reason, why });
  }

  /** Undefined if more may be published; otherwise resolves once it may, or the session has ended. */
  room(): Promise<void> | undefined {
    return this.#isFull ? new Promise<void>((resolve) => this.#waiting.add(resolve)) : undefined;
  }

  get #isFull(): boolean {
    return this.#machine.phase !== 'closed' && (this.#isRingFull || this.#isSocketFull);
  }

  #step(input: Input): void {
    this.#inputs.push(input);
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      for (let next = this.#inputs.shift(); next; next = this.#inputs.shift()) this.#handle(next);
    } finally {
      this.#isRunning = false;
    }
    this.#arm();
    this.#release();
  }

  #handle(input: Input): void {
    const { clock, changed } = this.#deps;
    const before = this.#machine.phase;
    for (const effect of this.#machine.step(input, clock.monotonic())) this.#perform(effect);
    if (this.#owner !== this.#machine.owner) {
      this.#owner = this.#machine.owner;
      const link = this.#ownerLink;
      if (link) link.replayed = link.transport.unsent();
    }
    this.#measure();
    if (this.#machine.phase !== before) changed?.(this.#machine.phase);
  }

  #perform(effect: Effect): void {
    const { deliver, connect, made, ended } = this.#deps;
    switch (effect.type) {
      case 'send':
        this.#links.get(effect.socket)?.transport.send(effect.text);
        break;
      case 'close':
        this.#close(effect.socket, effect.code, effect.reason);
        if (effect.code === SUPERSEDED) this.#deps.superseded?.();
        break;
      case 'reading':
        this.#setReading(effect.socket, effect.paused);
        break;
      case 'connect':
        connect?.();
        break;
      case 'deliver':
        deliver(effect.message);
        break;
      case 'producer':
        this.#isRingFull = effect.paused;
        break;
      case 'made':
        made(effect.event);
        break;
      case 'ended':
        this.#cancelTicks();
        ended(effect.why);
        break;
    }
  }

  get #ownerLink(): Link | undefined {
    return this.#owner === undefined ? undefined : this.#links.get(this.#owner);
  }

  #setReading(socket: SocketId, paused: boolean): void {
    const transport = this.#links.get(socket)?.transport;
    if (paused) transport?.pause();
    else transport?.resume();
  }

  #close(socket: SocketId, code: number, reason: string): void {
    const transport = this.#links.get(socket)?.transport;
    this.#links.delete(socket);
    transport?.close(code, reason);
    // A client that does not read would not see the close frame, while its unsent bytes stay in memory.
    if (transport && transport.unsent() > HIGH_WATER) transport.terminate();
  }

  #lose(socket: SocketId, end: SocketEnd): void {
    if (this.#links.delete(socket)) this.#step({ type: 'lost', socket, end });
  }

  #drop(socket: SocketId): void {
    this.#links.get(socket)?.transport.terminate();
    this.#lose(socket, { code: 1006, reason: '' });
  }

  #drained(socket: SocketId): void {
    const link = this.#links.get(socket);
    if (link) link.replayed = Math.min(link.replayed, link.transport.unsent());
    this.#measure();
    this.#release();
  }

  /** Checks the unsent bytes of the owner's socket. */
  #measure(): void {
    const link = this.#ownerLink;
    if (!link) {
      this.#isSocketFull = false;
      return;
    }
    const { transport, replayed } = link;
    const unsent = transport.unsent();
    // Halfway to the limit, so that a producer that pauses never closes a client's socket.
    const high = Math.min(HIGH_WATER, this.#deps.rules.maxUnsent / 2, transport.credit ?? HIGH_WATER);
    this.#isSocketFull = this.#isSocketFull ? unsent > high / 2 : unsent > high;
    if (unsent - replayed > this.#deps.rules.maxUnsent) this.#drop(transport.id);
  }

  #release(): void {
    if (this.#isFull) return;
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }

  #ping(): void {
    for (const link of this.#links.values()) {
      const { transport } = link;
      link.pinged = { received: transport.received?.(), unsent: transport.unsent() };
      transport.ping?.();
    }
  }

  /** Drops sockets without a sign of life since the ping. A pong may be queued behind much unsent audio. */
  #dropSilent(): void {
    for (const [socket, { transport, pinged }] of [...this.#links]) {
      if (pinged?.received === undefined) continue;
      if (transport.received?.() === pinged.received && transport.unsent() >= pinged.unsent) this.#drop(socket);
    }
  }

  #arm(): void {
    const { deadline } = this.#machine;
    if (deadline === this.#armed) return;
    this.#cancelDeadline();
    this.#armed = deadline;
    if (deadline === undefined) return;
    const { clock } = this.#deps;
    this.#cancelDeadline = clock.after(Math.max(0, Math.ceil(deadline - clock.monotonic())), () => {
      this.#armed = undefined;
      this.#step({ type: 'time' });
    });
  }
}

import { timingSafeEqual } from '../../kit/bytes.ts';
import { isObject, type JsonObject } from '../../kit/json.ts';
import { parseSimpleJson } from '../../kit/long-json.ts';
import { sha256 } from '../../kit/sha256.ts';
import { utf8Length } from '../../kit/text.ts';
import type { SocketEnd } from '../../socket/transport.ts';
import { type Cursors, Outbox } from './outbox.ts';
import type { Activity, Rules } from './rules.ts';
import type { Effect, EventBody, Input, Phase, ResumableOptions, SocketId } from './types.ts';

/** Close code of a socket that lost the session to another one. */
export const SUPERSEDED = 4000;

const MAX_CANDIDATES = 4;
const CLAIM_TTL = 10_000;
/** Bytes that the owner may send before the provider is connected. Reading is paused, which some platforms cannot. */
const MAX_HELD = 4 * 1024 * 1024;

interface Owner {
  socket: SocketId;
  /** Messages that arrived before the provider was connected. */
  held: string[];
  heldBytes: number;
}

interface Candidate {
  /** Deadline for claiming the session. */
  until?: number;
  /** The cursors of a valid claim that waits for the provider. */
  claim?: Cursors;
}

const cursor = (value: unknown): number =>
  Number.isSafeInteger(value) && (value as number) > 0 ? (value as number) : 0;

/**
 * One resumable voice session as a state machine (contract 05 §12, contract 06 §4): which socket owns it, which events its
 * client still needs, and when it ends. It has no timers and uses no socket: `step` returns the effects, and `deadline` says
 * when to call it with `time`.
 */
export class ResumableSession {
  readonly #options: ResumableOptions;
  readonly #rules: Rules;
  readonly #outbox: Outbox;
  readonly #candidates = new Map<SocketId, Candidate>();
  #phase: Phase = 'created';
  #owner: Owner | undefined;
  #activity: Activity = 'idle';
  #resumeTtl: number;
  /** Time at which the session ends unless a socket comes. */
  #until: number | undefined;
  #isProducerPaused = false;
  #effects: Effect[] = [];
  #now: number;

  constructor(options: ResumableOptions) {
    this.#options = options;
    this.#rules = options.rules;
    this.#outbox = new Outbox(options.rules, options.now);
    this.#resumeTtl = options.resumeTtl;
    this.#now = options.now;
    this.#until = options.now + options.rules.unattachedTtl;
  }

  get phase(): Phase {
    return this.#phase;
  }

  /** The socket that gets the events. */
  get owner(): SocketId | undefined {
    return this.#owner?.socket;
  }

  get cursors(): Readonly<Cursors> {
    return this.#outbox.cursors;
  }

  /** Events stored for a resume, and the bytes of their frames. */
  get buffered(): { events: number; bytes: number } {
    return this.#outbox.buffered;
  }

  /** When `step` is next due with `time`, in monotonic milliseconds. */
  get deadline(): number | undefined {
    const all = [this.#until, ...[...this.#candidates.values()].map(({ until }) => until)];
    const due = all.filter((time) => time !== undefined);
    return due.length === 0 ? undefined : Math.min(...due);
  }

  /** Handles an input at `now` (monotonic milliseconds) and returns the effects, in order. */
  step(input: Input, now: number): Effect[] {
    this.#effects = [];
    this.#now = Math.max(this.#now, now);
    this.#passDeadlines();
    this.#apply(input);
    this.#pace();
    return this.#effects;
  }

  #apply(input: Input): void {
    switch (input.type) {
      case 'opened':
        this.#opened(input.socket);
        break;
      case 'text':
        this.#received(input.socket, input.text);
        break;
      case 'binary':
        this.#refuse(input.socket, 'unsupported websocket frame');
        break;
      case 'lost':
        this.#lost(input.socket, input.end);
        break;
      case 'publish':
        this.#publish(input.event, input.isAudio);
        break;
      case 'activity':
        this.#activity = input.activity;
        break;
      case 'played':
        this.#outbox.raise({ ...this.cursors, played: cursor(input.audioEventId) });
        break;
      case 'connected':
        this.#connected();
        break;
      case 'connect-failed':
        this.#connectFailed(input.error);
        break;
      case 'resume-ttl':
        this.#resumeTtl = input.ttl;
        if (this.#phase === 'detached') this.#until = this.#now + input.ttl;
        break;
      case 'close':
        this.#end(input.why, input.code, input.reason);
        break;
      case 'time':
        break;
    }
  }

  #opened(socket: SocketId): void {
    if (this.#phase === 'closed') this.#close(socket, 4008, 'session closed');
    else if (this.#phase === 'created') this.#firstOpened(socket);
    else if (!this.#rules.resumable) {
      this.#supersede(socket);
      this.#attach();
    } else if (this.#candidates.size >= MAX_CANDIDATES) this.#close(socket, 4009, 'too many candidates');
    else this.#candidates.set(socket, { until: this.#now + CLAIM_TTL });
  }

  #firstOpened(socket: SocketId): void {
    this.#owner = { socket, held: [], heldBytes: 0 };
    if (this.#rules.connects) {
      this.#phase = 'connecting';
      this.#until = undefined;
      this.#effects.push({ type: 'reading', socket, paused: true }, { type: 'connect' });
    } else this.#attach();
  }

  #attach(): void {
    this.#phase = 'attached';
    this.#until = undefined;
    this.#publishReady();
  }

  #publishReady(): void {
    const { event, audio } = this.#outbox.last;
    const { input } = this.cursors;
    this.#publish({
      type: 'voice.session.ready',
      ...this.#options.ready(),
      ...(this.#rules.resumable && { last_event_id: event, last_audio_event_id: audio }),
      ...(this.#rules.connects && { last_input_chunk_id: input }),
    });
  }

  /** Makes a socket the owner. The previous one is closed, and its later messages and events are ignored. */
  #supersede(socket: SocketId): void {
    if (this.#owner && this.#owner.socket !== socket) {
      this.#close(this.#owner.socket, SUPERSEDED, 'superseded by resumed route');
    }
    this.#owner = { socket, held: [], heldBytes: 0 };
  }

  #lost(socket: SocketId, end: SocketEnd): void {
    if (this.#candidates.delete(socket) || this.#owner?.socket !== socket) return;
    this.#owner = undefined;
    // A provider that is being connected stays for a candidate, or for the claim that follows.
    if (this.#phase !== 'attached') return;
    if (this.#rules.endsSession(end, this.#activity)) this.#end('closed', 1000, 'session closed');
    else this.#detach();
  }

  #detach(): void {
    this.#owner = undefined;
    this.#phase = 'detached';
    this.#until = this.#now + this.#resumeTtl;
    this.#publish({
      type: 'voice.session.detached',
      session_id: this.#options.sessionId,
      reason: 'websocket_disconnected',
      resume_ttl_ms: this.#resumeTtl,
    });
  }

  #connected(): void {
    if (this.#phase !== 'connecting') return;
    const claim = [...this.#candidates].find(([, candidate]) => candidate.claim);
    const owner = this.#owner;
    if (owner) {
      this.#effects.push({ type: 'reading', socket: owner.socket, paused: false });
      this.#attach();
    } else this.#detach();
    if (claim) this.#resume(claim[0], claim[1].claim as Cursors);
    else if (owner) for (const text of owner.held.splice(0)) this.#received(owner.socket, text);
  }

  /** The session stays attachable, and a later socket connects again. */
  #connectFailed(error: EventBody): void {
    if (this.#phase !== 'connecting') return;
    const waiting = [...this.#candidates].filter(([, { claim }]) => claim).map(([socket]) => socket);
    if (this.#owner) waiting.unshift(this.#owner.socket);
    for (const socket of waiting) {
      this.#sendUnrecorded(socket, error);
      this.#candidates.delete(socket);
      this.#close(socket, 1000, 'provider unavailable');
    }
    this.#owner = undefined;
    this.#phase = 'created';
    this.#until = this.#now + this.#rules.unattachedTtl;
  }

  #received(socket: SocketId, text: string): void {
    const isOwner = this.#owner?.socket === socket;
    if (!isOwner && !this.#candidates.has(socket)) return;
    if (isOwner && this.#phase === 'connecting') {
      this.#hold(this.#owner as Owner, text);
      return;
    }
    const message = parseSimpleJson(text);
    if (message === undefined) this.#refuse(socket, 'invalid JSON message');
    else if (!isObject(message)) this.#refuse(socket, 'message must be a JSON object');
    else if (isOwner) this.#handle(socket, message);
    else if (message.type === 'session.start' || message.type === 'session.resume') this.#claim(socket, message);
    else this.#failResume(socket, 'session_not_claimed', 4009);
  }

  #hold(owner: Owner, text: string): void {
    owner.heldBytes += utf8Length(text);
    if (owner.heldBytes <= MAX_HELD) owner.held.push(text);
    else {
      this.#owner = undefined;
      this.#close(owner.socket, 1013, 'too much data before voice.session.ready');
    }
  }

  /** A message of the owner. */
  #handle(socket: SocketId, message: JsonObject): void {
    const { resumable, answersStart } = this.#rules;
    const isClaim = message.type === 'session.resume' || typeof message.resume_token === 'string';
    if (message.type === 'session.close') this.#end('closed', 1000, 'session closed');
    else if (message.type === 'session.start' && !(isClaim && resumable)) {
      if (answersStart) this.#publishReady();
    } else if (!resumable) this.#effects.push({ type: 'deliver', message });
    else if (message.type === 'session.start' || message.type === 'session.resume') this.#claim(socket, message);
    else if (message.type === 'client.ack') this.#acknowledge(message);
    else this.#effects.push({ type: 'deliver', message });
  }

  #acknowledge({ event_id, audio_event_id, played_audio_event_id, input_chunk_id }: JsonObject): void {
    this.#outbox.raise({
      event: cursor(event_id),
      audio: cursor(audio_event_id),
      played: cursor(played_audio_event_id),
      input: cursor(input_chunk_id),
    });
  }

  #claim(socket: SocketId, message: JsonObject): void {
    const { resume_token: token } = message;
    if (typeof token !== 'string' || !timingSafeEqual(sha256(token), this.#options.tokenHash)) {
      this.#failResume(socket, 'invalid_resume_token', 4003);
      return;
    }
    const claim: Cursors = {
      event: cursor(message.last_event_id),
      audio: cursor(message.last_audio_event_id),
      played: cursor(message.last_played_audio_event_id),
      input: cursor(message.last_input_chunk_id),
    };
    if (this.#phase === 'created') {
      // The socket opened before the provider failed.
      this.#candidates.set(socket, { claim });
      this.#phase = 'connecting';
      this.#until = undefined;
      this.#effects.push({ type: 'connect' });
      return;
    }
    if (this.#phase !== 'connecting') {
      this.#resume(socket, claim);
      return;
    }
    // The latest claim wins once the provider is connected, however long that takes.
    const others = [...this.#candidates].filter(([, candidate]) => candidate.claim).map(([other]) => other);
    this.#candidates.set(socket, { claim });
    for (const other of others) {
      if (other === socket) continue;
      this.#candidates.delete(other);
      this.#close(other, SUPERSEDED, 'superseded by resumed route');
    }
  }

  /** Gives the session to a socket with a valid claim, and sends it the missed events. */
  #resume(socket: SocketId, claim: Cursors): void {
    this.#candidates.delete(socket);
    this.#supersede(socket);
    this.#phase = 'attached';
    this.#until = undefined;
    this.#outbox.raise(claim);
    const { event, audio, played, input } = this.cursors;
    const session_id = this.#options.sessionId;
    const { frames, hasGap } = this.#outbox.replay();
    this.#sendUnrecorded(socket, {
      type: 'voice.session.resumed',
      session_id,
      last_event_id: event,
      last_audio_event_id: audio,
      last_played_audio_event_id: played,
      ...(this.#rules.connects && { last_input_chunk_id: input }),
    });
    this.#sendUnrecorded(socket, {
      type: 'voice.replay.started',
      session_id,
      from_event_id: event,
      from_audio_event_id: Math.max(audio, played),
      replay_event_count: frames.length,
      ...(hasGap && { gap: true }),
    });
    for (const text of frames) this.#effects.push({ type: 'send', socket, text });
    this.#sendUnrecorded(socket, { type: 'voice.replay.done', session_id, replay_event_count: frames.length });
  }

  /** Refuses a socket. The session keeps waiting for the right token. */
  #failResume(socket: SocketId, reason: string, code: number): void {
    const session_id = this.#options.sessionId;
    this.#sendUnrecorded(socket, { type: 'voice.session.resume_failed', session_id, reason });
    this.#candidates.delete(socket);
    this.#close(socket, code, reason.replaceAll('_', ' '));
    if (this.#owner?.socket === socket) this.#detach();
  }

  /** Answers bad input: to the owner with a regular event, to a candidate with an unrecorded one. */
  #refuse(socket: SocketId, message: string): void {
    const event = { type: 'voice.error', message };
    if (this.#candidates.has(socket)) this.#sendUnrecorded(socket, event);
    else if (this.#owner?.socket === socket) this.#publish(event);
  }

  #publish(body: EventBody, isAudio = false): void {
    if (this.#phase === 'closed') return;
    const text = this.#made(body, isAudio);
    if (this.#phase === 'attached' && this.#owner)
      this.#effects.push({ type: 'send', socket: this.#owner.socket, text });
    this.#outbox.retain(text, isAudio);
  }

  /** Control events take an id but are never replayed. */
  #sendUnrecorded(socket: SocketId, body: EventBody): void {
    this.#effects.push({ type: 'send', socket, text: this.#made(body) });
  }

  #made(body: EventBody, isAudio = false): string {
    const event = this.#outbox.number(body, this.#now, isAudio);
    this.#effects.push({ type: 'made', event });
    return JSON.stringify(event);
  }

  /** Pauses the producer while the ring is full, so that no event is evicted that the client still needs. */
  #pace(): void {
    const isFull = this.#phase !== 'closed' && this.#outbox.isFull;
    if (isFull === this.#isProducerPaused) return;
    this.#isProducerPaused = isFull;
    this.#effects.push({ type: 'producer', paused: isFull });
  }

  #passDeadlines(): void {
    for (const [socket, { until }] of [...this.#candidates]) {
      if (until === undefined || until > this.#now) continue;
      this.#candidates.delete(socket);
      this.#close(socket, 4009, 'session not claimed');
    }
    if (this.#until === undefined || this.#until > this.#now) return;
    const unattached = [...this.#candidates.keys()];
    for (const socket of unattached) this.#failResume(socket, 'resume_expired', 4008);
    this.#end(unattached.length > 0 ? 'resume_expired' : 'resume_ttl_expired', 1000, 'session expired');
  }

  /** Ends the session and all of its sockets. A candidate is first told that its claim is too late. */
  #end(why: string, code: number, reason: string): void {
    if (this.#phase === 'closed') return;
    for (const socket of [...this.#candidates.keys()]) {
      if (code === 1000) this.#failResume(socket, 'session_closed', 4008);
      else this.#close(socket, code, reason);
    }
    this.#candidates.clear();
    if (this.#owner) this.#close(this.#owner.socket, code, reason);
    this.#owner = undefined;
    this.#phase = 'closed';
    this.#until = undefined;
    this.#outbox.clear();
    this.#effects.push({ type: 'ended', why });
  }

  #close(socket: SocketId, code: number, reason: string): void {
    this.#effects.push({ type: 'close', socket, code, reason });
  }
}

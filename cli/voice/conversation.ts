import { asObject, type JsonObject } from '../../lib/kit/json.ts';
import { CommandError, printable, printableText } from '../output.ts';
import type { VoiceRelay } from './relay.ts';
import { followSession, type Send, type SessionClient, type VoiceEvent } from './socket.ts';
import type { SpeechPart } from './speech.ts';

/** A network may come and go for as long as the relay waits for the client. */
const PERSISTENT = { resumes: Number.POSITIVE_INFINITY, comeBack: 30_000 };
const BYTES_PER_SAMPLE = 2;
/** Milliseconds without any event while an answer is pending; the relay sends progress every five seconds. */
const SILENCE = 90_000;
const SEE_DOCTOR = 'See which providers and keys the relay has: svc voice doctor';

/** Body of `POST /voice/realtime-agent/session`; absent members come from the settings of the relay. */
export interface ConversationRequest {
  profile?: string;
  provider?: string;
  model?: string;
  voice?: string;
  sample_rate?: number;
  chat_session_id?: string;
  final_answer_only?: boolean;
}

/** A confirmation that the agent waits for. */
export interface Confirmation {
  id: string;
  message: string;
}

/** Output for the person, or for a script in their place. */
export interface Audience {
  /** Every event of the relay, in order. */
  event(event: JsonObject): void;
  /** Transcript of an utterance. */
  transcript(text: string): void;
  /** A whole answer. */
  answer(text: string): void;
  audio(part: SpeechPart): void;
  /** Activity of the agent. */
  progress(text: string): void;
  confirmation(confirmation: Confirmation): void;
  /** Milliseconds until everything passed to `audio` has been heard. */
  unplayed(): number;
  connection(state: 'lost' | 'resumed', reason?: string): void;
}

interface Chunk {
  id: number;
  pcm: Buffer;
  rate: number;
}

/**
 * A conversation with the realtime agent, like a phone's: one session whose socket is resumed whenever it is lost (contract
 * 06 §4). Unacknowledged audio is then sent again.
 */
export class Conversation implements SessionClient<void> {
  readonly #audience: Audience;
  readonly #resumeToken: string;
  /** Has no effect while no socket is open. */
  #send: Send = () => {};
  #lastEvent = 0;
  #lastAudio = 0;
  /** Sent audio, oldest first, until the relay has acknowledged it. */
  #chunks: Chunk[] = [];
  #lastChunk = 0;
  /** The utterance was committed, and has no result yet. */
  #isCommitted = false;
  /** A text turn that the relay has not received yet. */
  #text: string | undefined;
  /** An answer to a confirmation that may not have arrived. */
  #decision: JsonObject | undefined;
  #confirmation: Confirmation | undefined;
  /** True while the user waits for an answer. */
  #isTurn = false;
  /** Background tasks, running and queued. */
  #running = 0;
  #queued = 0;
  /** Pending answers of background tasks. */
  #due = 0;
  #said = '';
  #isResuming = false;
  #isClosing = false;
  #lastHeard = performance.now();
  #failure: CommandError | undefined;
  #waiters = new Set<() => void>();
  isOver = false;

  constructor(resumeToken: string, audience: Audience) {
    this.#resumeToken = resumeToken;
    this.#audience = audience;
  }

  /** The unanswered confirmation. */
  get confirmation(): Confirmation | undefined {
    return this.#confirmation;
  }

  /** True if the user waits for an answer. */
  get isTurn(): boolean {
    return this.#isTurn;
  }

  /** True if no more events are expected unless the user says something. */
  get isSettled(): boolean {
    return !this.#isTurn && this.#running === 0 && this.#queued === 0 && this.#due === 0;
  }

  /** Says a text. */
  say(text: string): void {
    this.#begin();
    this.#text = text;
    this.#send({ type: 'response.create', text });
  }

  /** Sends a part of an utterance: 16-bit mono samples. */
  append(pcm: Buffer, rate: number): void {
    const chunk = { id: ++this.#lastChunk, pcm, rate };
    this.#chunks.push(chunk);
    this.#sendChunk(chunk);
  }

  /** Ends the utterance. */
  commit(): void {
    this.#begin();
    this.#isCommitted = true;
    this.#send({ type: 'input_audio.commit' });
  }

  /** Stops the answer and the task. */
  cancel(): void {
    this.#send({ type: 'response.cancel' });
  }

  /** Has the last result of a background task spoken again. */
  respeak(): void {
    this.#begin();
    this.#send({ type: 'svc.result.respeak' });
  }

  /** Answers the open confirmation. */
  decide(answer: 'allow_once' | 'deny'): void {
    if (!this.#confirmation) return;
    this.#decision = { type: 'svc.confirm', confirmation_id: this.#confirmation.id, answer };
    this.#confirmation = undefined;
    this.#send(this.#decision);
    this.#changed();
  }

  /** Ends the session. */
  close(): void {
    this.#isClosing = true;
    this.#send({ type: 'session.close' });
  }

  /** Resolves once `holds` is true; rejects if the session ends before, or is silent while an answer is pending. */
  async until(holds: (conversation: Conversation) => boolean): Promise<void> {
    while (!holds(this)) {
      if (this.isOver) throw this.#failure ?? new CommandError('the relay has ended the session', SEE_DOCTOR);
      const silence = performance.now() - this.#lastHeard;
      if (!this.isSettled && !this.#confirmation && silence > SILENCE) {
        throw new CommandError(
          `the relay has sent nothing for ${SILENCE / 1000} s`,
          'See its log and event log for details.',
        );
      }
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, 1000);
        this.#waiters.add(() => {
          clearTimeout(timer);
          resolve();
        });
      });
    }
  }

  /** Runs the session to its end. @throws CommandError */
  async run(relay: VoiceRelay, path: string): Promise<void> {
    try {
      await followSession(relay, path, this, PERSISTENT);
    } catch (error) {
      if (error instanceof CommandError) this.#failure = error;
      throw error;
    } finally {
      this.isOver = true;
      this.#changed();
    }
  }

  start(): object[] {
    return [{ type: 'session.start' }];
  }

  resume(): object[] {
    this.#isResuming = true;
    return [
      {
        type: 'session.resume',
        resume_token: this.#resumeToken,
        last_event_id: this.#lastEvent,
        last_audio_event_id: this.#lastAudio,
        last_played_audio_event_id: this.#played,
        last_input_chunk_id: (this.#chunks[0]?.id ?? this.#lastChunk + 1) - 1,
      },
    ];
  }

  opened(send: Send): void {
    this.#send = send;
    for (const chunk of this.#chunks) this.#sendChunk(chunk);
    if (this.#isCommitted) send({ type: 'input_audio.commit' });
    // After a resume, the replay first shows whether the relay has it.
    if (this.#text !== undefined && !this.#isResuming) send({ type: 'response.create', text: this.#text });
    if (this.#decision) send(this.#decision);
    if (this.#isClosing) send({ type: 'session.close' });
  }

  stopped(send: Send): void {
    send({ type: 'session.close' });
  }

  lost(reason: string): void {
    this.#send = () => {};
    this.#audience.connection('lost', reason);
  }

  closed(code: number, reason: string): { outcome: undefined } | undefined {
    this.#audience.event({ type: 'closed', code, reason });
    if (this.#isClosing) return { outcome: undefined };
    if (code !== 1000 || !this.isSettled) return undefined;
    this.#audience.progress(`The relay has ended the session: ${printable(reason)}.`);
    return { outcome: undefined };
  }

  onEvent(event: VoiceEvent, send: Send): undefined {
    const { type, event_id: id, audio_base64: audio, ...rest } = event;
    this.#lastHeard = performance.now();
    const shown = typeof audio === 'string' ? { audio_base64: `<${rest.byte_count} bytes>` } : {};
    this.#audience.event({ ...(event as JsonObject), ...shown });
    if (type === 'voice.session.resume_failed') {
      throw new CommandError('the relay did not resume the session after the connection was lost', 'Run it again.');
    }
    if (type === 'voice.error' && !isHarmless(event)) throw failureOf(event);
    this.#take(event, send);
    if (!/^voice\.(?:session|replay)\./.test(type) && typeof id === 'number') {
      this.#lastEvent = Math.max(this.#lastEvent, id);
      send({
        type: 'client.ack',
        event_id: this.#lastEvent,
        audio_event_id: this.#lastAudio,
        played_audio_event_id: this.#played,
      });
    }
    this.#changed();
    return undefined;
  }

  #take(event: VoiceEvent, send: Send): void {
    switch (event.type) {
      case 'voice.replay.done':
        this.#audience.connection('resumed');
        if (this.#text !== undefined) send({ type: 'response.create', text: this.#text });
        break;
      case 'voice.input_audio.received':
        this.#chunks = this.#chunks.filter(({ id }) => id > Number(event.input_chunk_id));
        break;
      case 'voice.input_transcript.final':
        this.#isCommitted = false;
        this.#transcribed(event);
        break;
      case 'voice.response.started':
        this.#isCommitted = false;
        this.#said = '';
        break;
      case 'voice.response.delta':
        this.#said += String(event.delta);
        break;
      case 'voice.output_audio.delta':
        this.#audio(event);
        break;
      case 'voice.playback_drain.requested':
        this.#drain(event);
        break;
      case 'voice.response.done':
        this.#responded(event);
        break;
      default:
        if (event.type.startsWith('svc.')) this.#work(event);
    }
  }

  #transcribed({ source, text: words }: VoiceEvent): void {
    if (source === 'client_text') this.#text = undefined;
    else if (printableText(words) !== '') this.#audience.transcript(printableText(words));
    else {
      this.#isTurn = false;
      this.#audience.progress('Nothing was understood.');
    }
  }

  #audio({ audio_event_id: id, audio_base64: audio, sample_rate: rate }: VoiceEvent): void {
    if (typeof id !== 'number' || id <= this.#lastAudio) return;
    this.#lastAudio = id;
    this.#audience.audio({ pcm: Buffer.from(String(audio), 'base64'), sampleRate: Number(rate) });
  }

  /** The relay may continue once everything was heard. */
  #drain({ call_id }: VoiceEvent): void {
    const lastAudio = this.#lastAudio;
    setTimeout(() => {
      this.#send({ type: 'playback.drained', call_id, played_audio_event_id: lastAudio });
    }, this.#audience.unplayed());
  }

  #responded({ delivery, final_text: whole, cancelled }: VoiceEvent): void {
    const said = this.#said || printableText(whole);
    this.#said = '';
    if (said !== '') this.#audience.answer(said);
    if (cancelled === true) this.#running = this.#queued = this.#due = 0;
    if (delivery !== undefined) this.#due = Math.max(0, this.#due - 1);
    this.#isTurn = false;
  }

  /** Reports the agent's work (contract 06 §4.2). */
  #work(event: VoiceEvent): void {
    const { type, queued_count: queued } = event;
    if (typeof queued === 'number') this.#queued = queued;
    switch (type) {
      case 'svc.run.promoted':
        this.#running = 1;
        this.#audience.progress('The task goes on in the background.');
        // Without a spoken hand-over, nothing more comes of this turn.
        if (event.spoken_handoff === false) this.#isTurn = false;
        break;
      case 'svc.run.background_completed':
        this.#running = 0;
        this.#due++;
        break;
      case 'svc.run.cancelled':
        this.#running = this.#queued = this.#due = 0;
        this.#audience.progress('The task was cancelled.');
        break;
      case 'svc.run.progress':
        this.#audience.progress(printableText(event.message) || printableText(event.status));
        break;
      case 'svc.tool.started':
        this.#audience.progress(`Using ${printableText(event.tool_name)}.`);
        break;
      case 'svc.confirmation.requested':
        this.#ask(event);
        break;
      case 'svc.confirmation.forwarded':
        this.#decision = undefined;
        if (this.#confirmation?.id === event.confirmation_id) this.#confirmation = undefined;
        break;
      case 'svc.result.respeak_unavailable':
        this.#isTurn = false;
        this.#audience.progress('No task in the background has finished yet.');
    }
  }

  #ask({ confirmation_id: id, message }: VoiceEvent): void {
    if (typeof id !== 'string') return;
    this.#confirmation = { id, message: printableText(message) };
    this.#audience.confirmation(this.#confirmation);
  }

  #begin(): void {
    this.#isTurn = true;
    this.#lastHeard = performance.now();
  }

  /** The last audio that was heard, as far as known: all of it or nothing. */
  get #played(): number {
    return this.#audience.unplayed() === 0 ? this.#lastAudio : 0;
  }

  #sendChunk({ id, pcm, rate }: Chunk): void {
    this.#send({
      type: 'input_audio.append',
      audio_base64: pcm.toString('base64'),
      sample_rate: rate,
      chunk_id: id,
    });
  }

  #changed(): void {
    const waiters = [...this.#waiters];
    this.#waiters.clear();
    for (const wake of waiters) wake();
  }
}

/** Errors that end nothing (contract 06 §1). */
function isHarmless({ message }: VoiceEvent): boolean {
  const words = String(message).toLowerCase();
  if (words.includes('no active response') || words.includes('cancellation failed')) return true;
  return words.includes('timed out') && words.includes('inactivity');
}

function failureOf({ message, error_code: code }: VoiceEvent): CommandError {
  const words = printable(String(message));
  if (code === 'svc_broker_auth_failed' || /svc broker auth failed|relay-side svc credential/i.test(words)) {
    const next = "Set API_SERVER_KEY in <agent home>/.env to the key of the agent's API server.";
    return new CommandError(words, next);
  }
  return new CommandError(words, SEE_DOCTOR);
}

/**
 * Starts a conversation.
 * @throws CommandError if the relay refuses a session.
 */
export async function startConversation(relay: VoiceRelay, request: ConversationRequest, audience: Audience) {
  const session = await relay.call({ method: 'POST', path: '/voice/realtime-agent/session', body: request });
  const { websocket_path: path, resume_token: resumeToken, ...facts } = session;
  if (typeof path !== 'string' || !path.startsWith('/voice/realtime-agent/') || typeof resumeToken !== 'string') {
    throw new CommandError(`the relay on ${relay.name} answers like another version`, 'Restart it, and try again.');
  }
  const conversation = new Conversation(resumeToken, audience);
  return { session: asObject(facts) ?? {}, conversation, run: () => conversation.run(relay, path) };
}

/** Milliseconds of sound. */
export const durationOf = ({ pcm, sampleRate }: SpeechPart): number =>
  (pcm.length / BYTES_PER_SAMPLE / sampleRate) * 1000;

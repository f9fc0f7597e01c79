import { describeError, RelayError } from '../../errors.ts';
import type { Cancel } from '../../kit/clock.ts';
import type { JsonObject } from '../../kit/json.ts';
import { actorText } from '../../operations/actor.ts';
import type { Gate, Lease } from '../../operations/gate.ts';
import type { SocketEvents, Transport } from '../../socket/transport.ts';
import type { Effective } from '../config.ts';

import { type NewSession, originOf, type TableSession } from '../sessions.ts';
import type { StreamingSettings } from '../settings.ts';
import { AGENT_RULES } from '../socket/rules.ts';
import { SessionSocket } from '../socket/session-socket.ts';
import type { Phase } from '../socket/types.ts';
import { reduce } from './core/reduce.ts';
import {
  type AgentConfig,
  type Effect,
  type Event,
  initialState,
  type Prompt,
  type ProviderCommand,
  type State,
  type Task,
} from './core/state.ts';
import { History } from './history.ts';
import { createPacedQueue } from './paced-queue.ts';
import { PendingAudio } from './pending-audio.ts';
import type { ConnectProvider, ProviderEvent, ProviderOptions, ProviderSession } from './provider/provider.ts';
import { Publisher } from './publisher.ts';
import type { ContextMessage } from './text/context.ts';
import { interfaceOf, localTime, providerInstructions, type SessionFacts, systemMessage } from './text/instructions.ts';
import { responseRequest } from './text/response-request.ts';
import { MAX_DELIVERED_ANSWER, speechSafe } from './text/speech-safe.ts';
import { lateResultText, toolResult } from './text/tool-results.ts';
import { TOOL_SURFACE, TOOLS } from './text/tools.ts';
import type { AgentUpstream } from './upstream/run.ts';
import { usageMember } from './usage.ts';

/** An answer that nobody has received. */
export interface UnreceivedAnswer {
  text: string;
  runId: string;
  chatSessionId: string | null;
}

/** Dependencies of a realtime agent session. */
export interface AgentSessionDeps<S extends StreamingSettings = StreamingSettings> extends NewSession<S, TableSession> {
  config: AgentConfig;
  /** Milliseconds that the session waits for its first socket. */
  unattachedTtl: number;
  /** Earlier conversation, oldest message first. */
  context: readonly ContextMessage[];
  /** Description of the profile for the provider. */
  profileBlock: string;
  upstream: AgentUpstream;
  /** Ends runs and prevents new ones while the relay is frozen (contract 09 §3). */
  gate: Pick<Gate, 'enter'>;
  /** Ids of the runs under way, of all sessions. */
  runIds: Set<string>;
  connectProvider: ConnectProvider;
  /** Further options of the provider's connection. */
  providerOptions?: Pick<ProviderOptions, 'headers' | 'oauthPath' | 'servers' | 'tuning'>;
  /**
   * Reads a text aloud, pulled: whole 16-bit samples at the session's rate.
   * @throws RelayError whose message may be shown to a client.
   */
  renderSpeech(text: string, signal: AbortSignal): AsyncIterable<Uint8Array>;
  /** True if rendered speech is recorded. */
  keepsAudio: boolean;
  /** Accepts an answer that was undelivered at the end of the session. Must not throw. */
  handOver(answer: UnreceivedAnswer): void;
}

/** Results of functions that a provider may lose with its connection. */
const MAX_RESULTS = 8;

/** The result of a function call, until the provider has spoken after it. */
interface SentResult {
  text: string;
  /** True if a response was requested after it. */
  isAsked: boolean;
}

/** Maximum bytes of speech in one event: some seconds. Even, so that samples stay whole. */
const MAX_PIECE = 128 * 1024;

/** An event of a provider, its speech in pieces that a phone can take one by one. */
function piecesOf(event: ProviderEvent): ProviderEvent[] {
  if (event.type !== 'audioDelta') return [event];
  const pieces: ProviderEvent[] = [];
  for (let at = 0; at < event.pcm.length; at += MAX_PIECE)
    pieces.push({ ...event, pcm: event.pcm.subarray(at, at + MAX_PIECE) });
  return pieces;
}

type Posted = Event extends infer E ? (E extends { at: number } ? Omit<E, 'at'> : never) : never;

/**
 * One session of the realtime agent: an actor with one mailbox. Sockets, the provider, runs, renders and timers post events;
 * `reduce` decides; the effects are performed here. No wait blocks the mailbox.
 */
export class AgentSession implements TableSession {
  readonly #deps: AgentSessionDeps;
  readonly #socket: SessionSocket;
  readonly #publisher: Publisher;
  #state: State;
  readonly #mailbox: Event[] = [];
  #isRunning = false;
  #provider: ProviderSession | undefined;
  /** Aborts all pending work with the provider. */
  #connection = new AbortController();
  readonly #history = new History();
  readonly #pending = new PendingAudio();
  #results: SentResult[] = [];
  readonly #runs = new Map<number, AbortController>();
  readonly #renders = new Map<number, AbortController>();
  readonly #timers = new Map<number, Cancel>();
  /** Why the socket's side has ended. */
  #ending: string | undefined;
  #hasEnded = false;

  constructor(deps: AgentSessionDeps) {
    this.#deps = deps;
    const { id, artifacts, clock, log, config, resumeTtl, tokenHash } = deps;
    this.#state = initialState(config);
    artifacts.record({ type: 'voice.realtime_agent.session.created', session_id: id, ...this.#voiceFacts() });
    this.#socket = new SessionSocket({
      rules: { ...AGENT_RULES, unattachedTtl: deps.unattachedTtl },
      sessionId: id,
      tokenHash,
      resumeTtl,
      clock,
      ready: () => this.#ready(),
      deliver: (message) => this.#received(message),
      connect: () => void this.#connect(),
      changed: (phase) => this.#changed(phase),
      superseded: () => artifacts.record({ type: 'voice.realtime_agent.websocket.superseded_closed', session_id: id }),
      made: (event) => artifacts.record(event),
      ended: (why) => this.#ended(why),
      failed: (error) => log.error(`a realtime agent socket failed: ${describeError(error)}`),
    });
    this.#publisher = new Publisher({
      socket: this.#socket,
      clock,
      published: (event) => this.#history.note(event),
      runStarted: () => ({ tool_surface: TOOL_SURFACE, interface: this.#interface }),
      pace: (isPaused) => (isPaused ? this.#provider?.pause() : this.#provider?.resume()),
    });
  }

  get id(): string {
    return this.#deps.id;
  }

  get principal() {
    return this.#deps.principal;
  }

  get scope(): Effective<StreamingSettings> {
    return this.#deps.scope;
  }

  get logPath(): string {
    return this.#deps.artifacts.logPath;
  }

  get isOver(): boolean {
    return this.#socket.isOver;
  }

  get isAttached(): boolean {
    return this.#socket.isAttached;
  }

  get isBusy(): boolean {
    const { turn, run, delivery } = this.#state;
    return turn.active !== null || run.current !== null || delivery.current !== null;
  }

  open(transport: Transport): SocketEvents {
    return this.#socket.open(transport);
  }

  close(code: number, reason: string, why: string): void {
    this.#socket.close(code, reason, why);
    // Runs may have outlived the socket.
    if (this.#state.phase === 'outliving') this.#post({ type: 'ended', why });
  }

  // --- events

  /** Handles an event completely. One that is posted meanwhile is handled after it. */
  #post(posted: Posted): void {
    const at = this.#deps.clock.monotonic();
    this.#mailbox.push({ ...posted, at } as Event);
    if (this.#isRunning) return;
    this.#isRunning = true;
    try {
      for (let event = this.#mailbox.shift(); event; event = this.#mailbox.shift()) this.#handle(event);
    } finally {
      this.#isRunning = false;
    }
    if (this.#ending !== undefined && this.#state.phase !== 'outliving') this.#finish(this.#ending);
  }

  #handle(event: Event): void {
    try {
      const [state, effects] = reduce(this.#state, event);
      this.#state = state;
      for (const effect of effects) this.#perform(effect);
    } catch (error) {
      this.#deps.log.error(`a realtime agent session failed: ${describeError(error)}`);
      this.#socket.close(1011, 'internal error', 'failed');
    }
  }

  #received(message: JsonObject): void {
    const { played_audio_event_id: played } = message;
    if (message.type === 'playback.drained' && typeof played === 'number') this.#socket.setPlayed(played);
    this.#post({ type: 'client', message, playback: this.#publisher.playback });
  }

  #changed(phase: Phase): void {
    const { artifacts, id } = this.#deps;
    if (phase === 'attached') {
      this.#publisher.resumed();
      this.#post({ type: 'attached' });
    } else if (phase === 'detached') {
      artifacts.record({ type: 'voice.realtime_agent.session.detached', session_id: id });
      this.#post({ type: 'detached' });
    }
  }

  async #connect(): Promise<void> {
    const { provider } = this.#deps.config;
    const dialled = await this.#dial();
    if (dialled === undefined) return;
    if (typeof dialled !== 'string') this.#socket.connected();
    else this.#socket.connectFailed({ type: 'voice.error', message: dialled, provider });
  }

  /** Reconnects the provider, with the conversation so far. */
  async #redial(): Promise<void> {
    this.#hangUp();
    const provider = await this.#dial();
    if (provider === undefined) return;
    if (typeof provider === 'string') {
      this.#post({ type: 'dialFailed', message: provider });
      return;
    }
    // It has closed meanwhile.
    if (this.#provider !== provider) return;
    this.#attempt(() => {
      for (const { role, content } of this.#history.forNewConnection()) provider.appendContext(role, content);
      for (const { text } of this.#results) provider.appendContext('user', text);
      for (const command of this.#pending.replay()) {
        if (command.type === 'audio') provider.sendAudio(command.pcm, command.sampleRate);
        else provider.commitAudio();
      }
    });
    this.#post({ type: 'dialled' });
  }

  #hangUp(): void {
    this.#provider?.close();
    this.#provider = undefined;
    this.#connection.abort();
    this.#publisher.forgetItems();
  }

  /** Opens a connection to the provider. Returns why there is none, or nothing if it is no longer wanted. */
  async #dial(): Promise<ProviderSession | string | undefined> {
    const { connectProvider, providerOptions, config, context, profileBlock, clock, log } = this.#deps;
    const { model, voice, sampleRate, isFinalAnswerOnly: finalAnswerOnly } = config;
    const connection = new AbortController();
    this.#connection = connection;
    const time = localTime(clock.now());
    const instructions = providerInstructions({ facts: this.#facts, time, finalAnswerOnly, context, profileBlock });
    const options = { ...providerOptions, model, voice, sampleRate, instructions, tools: TOOLS };
    let hasClosed = false;
    const post = (event: ProviderEvent) => {
      if (connection.signal.aborted) return;
      if (event.type === 'closed') {
        hasClosed = true;
        this.#hangUp();
      }
      if (event.type === 'responseDone') this.#results = this.#results.filter(({ isAsked }) => !isAsked);
      this.#post({ type: 'provider', event, playback: this.#publisher.playback });
    };
    // Bounded, because the provider is not read while they wait.
    const events = createPacedQueue(() => this.#socket.room(), post);
    try {
      const session = await connectProvider({ ...options, signal: connection.signal }, (event) =>
        events.push(piecesOf(event)),
      );
      if (hasClosed || !connection.signal.aborted) {
        if (!hasClosed) this.#provider = session;
        if (this.#publisher.isPaused) session.pause();
        return session;
      }
      session.close();
      return undefined;
    } catch (error) {
      if (connection.signal.aborted) return undefined;
      if (!(error instanceof RelayError)) log.error(`a realtime provider failed: ${describeError(error)}`);
      return error instanceof RelayError ? error.message : 'internal error';
    }
  }

  #ended(why: string): void {
    this.#ending = why;
    if (this.#state.phase !== 'outliving') this.#post({ type: 'ended', why });
  }

  /** Releases everything once the last event is handled. */
  #finish(why: string): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    const { artifacts, id } = this.#deps;
    this.#connection.abort();
    this.#provider?.close();
    for (const aborts of [this.#runs, this.#renders]) for (const abort of aborts.values()) abort.abort();
    for (const cancel of this.#timers.values()) cancel();
    this.#timers.clear();
    artifacts.endAudio();
    const usage = usageMember(this.#state.usage);
    artifacts.recordEnd({ type: 'voice.realtime_agent.session.closed', session_id: id, reason: why, ...usage });
    this.#deps.ended(this, artifacts.settled());
  }

  // --- effects

  readonly #effects: { readonly [T in Effect['type']]: (effect: Extract<Effect, { type: T }>) => void } = {
    emit: ({ event, hold }) => this.#publisher.emit(event, hold),
    audio: ({ audio, hold }) => this.#publisher.audio(audio, hold),
    release: ({ hold }) => this.#publisher.release(hold),
    discard: ({ hold }) => this.#publisher.discard(hold),
    mark: ({ event }) => this.#deps.artifacts.record(event),
    provider: ({ command }) => void this.#attempt(() => this.#command(command)),
    dial: () => void this.#redial(),
    hangUp: () => this.#hangUp(),
    toolResult: (result) => this.#sendResult(result),
    request: ({ request }) => this.#request(request.prompt),
    truncate: ({ isCertain }) => this.#truncate(isCertain),
    startRun: (run) => void this.#run(run),
    abortRun: ({ key }) => this.#runs.get(key)?.abort(),
    approve: ({ runId, confirmationId, answer }) => void this.#deps.upstream.approve(runId, confirmationId, answer),
    render: ({ id, text }) => void this.#render(id, text),
    stopRender: ({ id }) => this.#renders.get(id)?.abort(),
    setTimer: (timer) => this.#setTimer(timer),
    clearTimer: ({ generation }) => this.#clearTimer(generation),
    activity: ({ isBusy }) => this.#socket.setActivity(isBusy ? 'busy' : 'idle'),
    resumeTtl: ({ ttl }) => this.#socket.setResumeTtl(ttl),
    phoneMessage: ({ text, runId, chatSessionId }) => this.#deps.handOver({ text, runId, chatSessionId }),
    close: ({ code, reason, why }) => {
      this.#publisher.flush();
      this.#socket.close(code, reason, why);
    },
  };

  #perform(effect: Effect): void {
    (this.#effects[effect.type] as (effect: Effect) => void)(effect);
  }

  #request(prompt: Prompt | null): void {
    for (const result of this.#results) result.isAsked = true;
    this.#send('request', (provider) => provider.requestResponse(responseRequest(prompt)));
  }

  #truncate(isCertain: boolean): void {
    for (const { itemId, contentIndex, audioEndMs, responseId, share } of this.#publisher.cut(isCertain)) {
      const playedText = this.#history.cut(responseId, share);
      this.#attempt(() => this.#provider?.truncate(itemId, contentIndex, audioEndMs, playedText));
    }
  }

  #sendResult({ callId, toolName, outcome }: Extract<Effect, { type: 'toolResult' }>): void {
    const { profile } = this.#facts;
    const facts = { sessionId: this.#state.chatSessionId, profile, interface: this.#interface };
    const result = toolResult(outcome, facts);
    const text = lateResultText(toolName, result);
    this.#results = [...this.#results, { text, isAsked: false }].slice(-MAX_RESULTS);
    this.#send('toolResult', (provider) => {
      // A provider knows nothing of a call on an earlier connection.
      if (this.#state.turn.calls.includes(callId)) provider.sendToolResult(callId, result);
      else provider.appendContext('user', text);
    });
  }

  #command(command: ProviderCommand): void {
    const provider = this.#provider;
    this.#pending.note(command, provider !== undefined);
    switch (command.type) {
      case 'audio':
        provider?.sendAudio(command.pcm, command.sampleRate);
        break;
      case 'commit':
        provider?.commitAudio();
        break;
      case 'clear':
        provider?.clearAudio();
        break;
      case 'text':
        provider?.sendText(command.text);
        break;
      case 'cancel':
        provider?.cancelResponse();
        break;
      case 'context':
        provider?.appendContext(command.role, speechSafe(command.text, MAX_DELIVERED_ANSWER));
        break;
    }
  }

  /** Sends a message that the turn depends on. */
  #send(what: 'toolResult' | 'request', send: (provider: ProviderSession) => void): void {
    const provider = this.#provider;
    if (provider && !this.#attempt(() => send(provider))) this.#post({ type: 'providerRefused', what });
  }

  /** False if the provider accepts no more messages. The end of its connection is reported by a separate event. */
  #attempt(send: () => void): boolean {
    try {
      send();
      return true;
    } catch (error) {
      this.#deps.log.warn(`a realtime provider accepted no more messages: ${describeError(error)}`);
      return false;
    }
  }

  async #run({ key, task, sessionId, isExternal }: Extract<Effect, { type: 'startRun' }>): Promise<void> {
    const { upstream, clock, log, gate, principal, runIds } = this.#deps;
    let runId: string | undefined;
    const abort = new AbortController();
    const { signal } = abort;
    const frozen = ({ message }: RelayError) => {
      abort.abort();
      const who =
        principal.kind === 'session' ? actorText({ kind: 'voice', session: principal.session, runId }) : 'voice';
      log.info(`a run ended: ${message}, for ${who}`);
      this.#post({ type: 'run', key, event: { type: 'frozen', message } });
    };
    let lease: Lease;
    try {
      lease = gate.enter(frozen);
    } catch (error) {
      return frozen(error as RelayError);
    }
    this.#runs.set(key, abort);
    const request = {
      ...(sessionId !== null && { sessionId }),
      external: isExternal,
      ...this.#profileOf(task),
      message: task.text,
      systemMessage: systemMessage(this.#facts, localTime(clock.now())),
      signal,
    };
    try {
      for await (const event of upstream.run(request)) {
        if (signal.aborted) break;
        if (event.type === 'svc.run.started' && event.run_id !== undefined) {
          runId = event.run_id;
          runIds.add(runId);
        }
        this.#post({ type: 'run', key, event });
      }
    } catch (error) {
      log.error(`a run failed unexpectedly: ${describeError(error)}`);
      this.#post({ type: 'run', key, event: { type: 'error', message: 'internal error' } });
    } finally {
      lease.end();
      if (runId !== undefined) runIds.delete(runId);
      this.#runs.delete(key);
    }
  }

  #profileOf(task: Task): { profile?: string } {
    const profile = task.profile ?? this.#deps.config.profile;
    return profile === null ? {} : { profile };
  }

  async #render(id: number, answer: string): Promise<void> {
    const { renderSpeech, config, clock, artifacts, keepsAudio } = this.#deps;
    const abort = new AbortController();
    this.#renders.set(id, abort);
    const { signal } = abort;
    const { sampleRate } = config;
    const start = clock.monotonic();
    const since = (): number => Math.round(clock.monotonic() - start);
    const metrics: Record<string, number> = {};
    const path = keepsAudio ? artifacts.startAudio(sampleRate) : '';
    let error: string | undefined;
    try {
      for await (const pcm of renderSpeech(speechSafe(answer, MAX_DELIVERED_ANSWER), signal)) {
        if (signal.aborted) return;
        metrics.first_audio_ms ??= since();
        if (keepsAudio) artifacts.audio(pcm);
        this.#post({ type: 'rendered', id, pcm, sampleRate });
        await this.#socket.room();
      }
    } catch (reason) {
      if (signal.aborted) return;
      error = reason instanceof RelayError ? reason.message : describeError(reason);
    } finally {
      this.#renders.delete(id);
      if (keepsAudio) artifacts.endAudio();
    }
    metrics.response_done_ms = since();
    const savedPath = path === '' ? '' : await artifacts.savedAudio(path);
    const done = { audio_path: savedPath, metrics, metadata: { sample_rate: sampleRate } };
    this.#post({ type: 'renderEnded', id, done, ...(error !== undefined && { error }) });
  }

  #setTimer({ name, generation, delay }: Extract<Effect, { type: 'setTimer' }>): void {
    const cancel = this.#deps.clock.after(delay, () => {
      this.#timers.delete(generation);
      this.#post({ type: 'timer', name, generation });
    });
    this.#timers.set(generation, cancel);
  }

  #clearTimer(generation: number): void {
    this.#timers.get(generation)?.();
    this.#timers.delete(generation);
  }

  // --- the session's facts

  get #facts(): SessionFacts {
    const { config, scope } = this.#deps;
    const { provider, model, voice, profile } = config;
    return {
      provider,
      model,
      voice,
      profile,
      chatSessionId: this.#state.chatSessionId,
      configScope: scope.configScope,
    };
  }

  get #interface(): JsonObject {
    return interfaceOf(this.#facts, localTime(this.#deps.clock.now()));
  }

  #voiceFacts(): JsonObject {
    const { provider, model, voice, sampleRate } = this.#deps.config;
    return { provider, model, voice, sample_rate: sampleRate, ...originOf(this.#deps.scope) };
  }

  /** Members of `voice.session.ready` (contract 06 §4.2). */
  #ready(): JsonObject {
    const { id, artifacts, resumeTtl } = this.#deps;
    return {
      session_id: id,
      ...this.#voiceFacts(),
      event_log_path: artifacts.logPath,
      mode: 'realtime_agent',
      experimental: true,
      resume_supported: true,
      resume_ttl_ms: resumeTtl,
      chat_session_id: this.#state.chatSessionId,
      tool_surface: TOOL_SURFACE,
      interface: this.#interface,
    };
  }
}

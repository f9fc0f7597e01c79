import { describeError, RelayError } from '../../errors.ts';
import type { Clock } from '../../kit/clock.ts';
import type { JsonObject } from '../../kit/json.ts';
import { visibleLine } from '../../kit/text.ts';
import type { Log } from '../../log.ts';
import type { SocketEvents, Transport } from '../../socket/transport.ts';
import type { SessionArtifacts } from '../artifacts.ts';
import type { VoicePrincipal } from '../principal.ts';
import { type Activity, OUTPUT_RULES } from '../socket/rules.ts';
import { SessionSocket } from '../socket/session-socket.ts';
import type { LimitedSession } from '../socket/session-table.ts';
import { type Adapter, type RenderRequest, renderRequest } from '../streaming/adapter.ts';
import { cutText, OUTPUT_MODE, render } from './render.ts';
import type { OutputScope } from './scope.ts';

const MAX_TYPE = 64;
const MAX_MODE = 80;

/** What a session renders with. */
export interface OutputVoice {
  provider: string;
  model: string;
  voice: string;
  /** Hertz. */
  sampleRate: number;
  language: string;
}

export interface OutputSessionParts {
  id: string;
  principal: VoicePrincipal;
  scope: OutputScope;
  voice: OutputVoice;
  adapter: Adapter;
  /** SHA-256 (hex) of the resume token. */
  tokenHash: string;
  /** Milliseconds. */
  resumeTtl: number;
  artifacts: SessionArtifacts;
  clock: Clock;
  log: Log;
  /** Called once; `settled` resolves when the event log is on disk. */
  ended(session: OutputSession, settled: Promise<void>): void;
}

/** One session of voice output: one render, heard over any number of sockets in turn (contract 05 §12). */
export class OutputSession implements LimitedSession {
  readonly id: string;
  readonly principal: VoicePrincipal;
  readonly scope: OutputScope;
  readonly #parts: OutputSessionParts;
  readonly #socket: SessionSocket;
  readonly #end = new AbortController();
  #activity: Activity = 'idle';

  constructor(parts: OutputSessionParts) {
    const { id, principal, scope, voice, artifacts, resumeTtl, log } = parts;
    this.#parts = parts;
    this.id = id;
    this.principal = principal;
    this.scope = scope;
    const facts = { session_id: id, provider: voice.provider, model: voice.model, voice: voice.voice };
    const { profile, configScope, configPath } = scope;
    const origin = { profile, config_scope: configScope, config_path: configScope === 'relay' ? null : configPath };
    artifacts.record({ type: 'voice.output.session.created', ...facts, sample_rate: voice.sampleRate, ...origin });
    this.#socket = new SessionSocket({
      rules: OUTPUT_RULES,
      sessionId: id,
      tokenHash: parts.tokenHash,
      resumeTtl,
      clock: parts.clock,
      ready: () => ({
        ...facts,
        sample_rate: voice.sampleRate,
        event_log_path: artifacts.logPath,
        output_mode: OUTPUT_MODE,
        resume_supported: true,
        resume_ttl_ms: resumeTtl,
        ...origin,
      }),
      deliver: (message) => this.#received(message),
      made: (event) => artifacts.record(event),
      ended: (why) => this.#ended(why),
      failed: (error) => log.error(`a voice socket failed: ${describeError(error)}`),
    });
  }

  /** Path of the event log; empty without a host. */
  get logPath(): string {
    return this.#parts.artifacts.logPath;
  }

  get isOver(): boolean {
    return this.#socket.isOver;
  }

  get isAttached(): boolean {
    return this.#socket.isAttached;
  }

  get isBusy(): boolean {
    return this.#activity === 'busy';
  }

  open(transport: Transport): SocketEvents {
    return this.#socket.open(transport);
  }

  close(code: number, reason: string, why: string): void {
    this.#socket.close(code, reason, why);
  }

  #received(message: JsonObject): void {
    if (message.type === 'response.create') this.#create(message);
    else this.#refuse(`unsupported message type: ${visibleLine(String(message.type)).slice(0, MAX_TYPE)}`);
  }

  #create(message: JsonObject): void {
    const activity = this.#activity;
    const text = [message.text, message.prompt].find((value) => typeof value === 'string' && value.trim() !== '');
    if (activity !== 'idle') this.#refuse(`response already ${activity === 'busy' ? 'running' : 'completed'}`);
    else if (typeof text !== 'string') this.#refuse('response.create missing text');
    else {
      const request = this.#requestOf(cutText(text), message);
      if (request) void this.#render(request);
    }
  }

  #requestOf(text: string, message: JsonObject): RenderRequest | undefined {
    const { render_mode: mode, expression, provider_options: providerOptions } = message;
    const renderMode = typeof mode === 'string' && mode.trim() !== '' ? mode.trim().slice(0, MAX_MODE) : 'verbatim';
    try {
      return renderRequest(
        { ...this.scope.settings, ...this.#parts.voice },
        { text, renderMode, expression, providerOptions, signal: this.#end.signal },
      );
    } catch (error) {
      if (!(error instanceof RelayError)) throw error;
      this.#refuse(error.message);
      return undefined;
    }
  }

  async #render(request: RenderRequest): Promise<void> {
    const { voice, adapter, artifacts, clock, log } = this.#parts;
    this.#setActivity('busy');
    await render({
      provider: voice.provider,
      adapter,
      request,
      sink: this.#socket,
      artifacts,
      fallbackEnabled: this.scope.settings.fallbackEnabled,
      clock,
      log,
    });
    this.#setActivity('done');
  }

  #setActivity(activity: Activity): void {
    this.#activity = activity;
    this.#socket.setActivity(activity);
  }

  #refuse(message: string): void {
    this.#socket.publish({ type: 'voice.error', message });
  }

  #ended(why: string): void {
    const { artifacts } = this.#parts;
    this.#end.abort(new RelayError('gone', 'the voice session has ended'));
    artifacts.endAudio();
    artifacts.record({ type: 'voice.output.session.closed', session_id: this.id, reason: why });
    this.#parts.ended(this, artifacts.settled());
  }
}

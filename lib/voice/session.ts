import { describeError, RelayError } from '../errors.ts';
import { describeValue, type JsonObject } from '../kit/json.ts';
import { visibleLine } from '../kit/text.ts';
import type { SocketEvents, Transport } from '../socket/transport.ts';
import type { Effective } from './config.ts';
import { render } from './output/render.ts';
import type { VoicePrincipal } from './principal.ts';
import {
  type ChosenVoice,
  createVoiceSessions,
  type NewSession,
  originOf,
  type SessionsKind,
  type TableSession,
  type VoiceSessionsDeps,
} from './sessions.ts';
import type { StreamingSettings } from './settings.ts';
import type { Activity, Rules } from './socket/rules.ts';
import { SessionSocket } from './socket/session-socket.ts';
import type { SessionLimits } from './socket/session-table.ts';
import type { EventBody } from './socket/types.ts';
import { type Adapter, type RenderRequest, type RenderSettings, renderRequest } from './streaming/adapter.ts';
import type { Adapters } from './streaming/adapters.ts';

const MAX_TYPE = 64;
const MAX_MODE = 80;
/** Characters that identify a quoted text, and the minimum worth hiding. */
const QUOTED = 24;
const MIN_QUOTED = 4;

/** The differences between sessions of voice output and those of the lab. */
export interface RenderKind<S extends StreamingSettings>
  extends Pick<SessionsKind<S, VoiceSession<S>, void>, 'name' | 'path' | 'protocol' | 'use' | 'prefix'> {
  rules: Rules;
  /** Prefix of the types of the first and the last line of the event log. */
  loggedAs: string;
  /** Members of `voice.session.ready` beyond the common ones. */
  ready(deps: VoiceSessionDeps<S>): JsonObject;
  /** The settings that renders start from; the session's voice overrides them. */
  settings(scope: Effective<S>): RenderSettings;
  /** An event in the form for the event log. */
  logged?(event: JsonObject): JsonObject;
  /** Returns a new session's handler for messages that the socket does not handle itself. */
  behave(session: VoiceSession<S>): (message: JsonObject) => void;
}

export interface VoiceSessionDeps<S extends StreamingSettings> extends NewSession<S, VoiceSession<S>> {
  adapter: Adapter;
}

/** Settings with which a session renders a `response.create`. */
export interface RenderOptions {
  text: string;
  defaultMode: string;
  /** Events between the request and the audio; `voice.response.started` is the first. */
  before(request: RenderRequest): EventBody[];
  /** Members of the error of a failed render, besides `message` and `provider`. */
  failed?: JsonObject;
  /** Members of `voice.response.done` beyond the common ones. */
  done?: JsonObject;
  /** Activity of the session afterwards. */
  activityAfter: Activity;
}

/** One session of voice output or of the lab: its socket, its event log, and one render at a time (contract 05 §12, §14). */
export class VoiceSession<S extends StreamingSettings = StreamingSettings> implements TableSession {
  readonly id: string;
  readonly principal: VoicePrincipal;
  readonly scope: Effective<S>;
  readonly voice: ChosenVoice;
  readonly #deps: VoiceSessionDeps<S>;
  readonly #kind: RenderKind<S>;
  readonly #socket: SessionSocket;
  readonly #end = new AbortController();
  #activity: Activity = 'idle';
  /** Text of the last render. */
  #text = '';

  constructor(kind: RenderKind<S>, deps: VoiceSessionDeps<S>) {
    const { id, principal, scope, voice, artifacts, log } = deps;
    this.#deps = deps;
    this.#kind = kind;
    this.id = id;
    this.principal = principal;
    this.scope = scope;
    this.voice = voice;
    const facts = { session_id: id, ...factsOf(voice), sample_rate: voice.sampleRate };
    const origin = originOf(scope);
    artifacts.record({ type: `${kind.loggedAs}.created`, ...facts, ...origin });
    const received = kind.behave(this);
    this.#socket = new SessionSocket({
      rules: kind.rules,
      sessionId: id,
      tokenHash: deps.tokenHash,
      resumeTtl: deps.resumeTtl,
      clock: deps.clock,
      ready: () => ({ ...facts, event_log_path: artifacts.logPath, ...origin, ...kind.ready(deps) }),
      deliver: received,
      made: (event) => artifacts.record(withoutText(kind.logged?.(event) ?? event, this.#text)),
      ended: (why) => this.#ended(why),
      failed: (error) => log.error(`a voice socket failed: ${describeError(error)}`),
    });
  }

  /** Path of the event log; empty without a host. */
  get logPath(): string {
    return this.#deps.artifacts.logPath;
  }

  get isOver(): boolean {
    return this.#socket.isOver;
  }

  get isAttached(): boolean {
    return this.#socket.isAttached;
  }

  get activity(): Activity {
    return this.#activity;
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

  publish(event: EventBody): void {
    this.#socket.publish(event);
  }

  /** Answers a message that cannot be handled. */
  refuse(message: string): void {
    this.publish({ type: 'voice.error', message });
  }

  refuseType({ type }: JsonObject): void {
    this.refuse(`unsupported message type: ${visibleLine(describeValue(type)).slice(0, MAX_TYPE)}`);
  }

  /** Renders what a `response.create` asks for, or answers it with an error. */
  render(message: JsonObject, options: RenderOptions): void {
    this.#text = options.text;
    const request = this.#requestOf(message, options);
    if (request) void this.#render(request, options);
  }

  #requestOf(message: JsonObject, { text, defaultMode }: RenderOptions): RenderRequest | undefined {
    const { render_mode: mode, expression, provider_options: providerOptions, tool_scaffold: tools } = message;
    const renderMode = typeof mode === 'string' && mode.trim() !== '' ? mode.trim().slice(0, MAX_MODE) : defaultMode;
    const { signal } = this.#end;
    const { oauthPath, servers } = this.scope;
    const settings = this.#kind.settings(this.scope);
    try {
      return renderRequest(
        { ...settings, ...this.voice, language: this.voice.language ?? settings.language, oauthPath, servers },
        { text, renderMode, expression, providerOptions, toolScaffold: tools === true, signal },
      );
    } catch (error) {
      if (!(error instanceof RelayError)) throw error;
      this.refuse(error.message);
      return undefined;
    }
  }

  async #render(request: RenderRequest, options: RenderOptions): Promise<void> {
    const { voice, adapter, artifacts, clock, log } = this.#deps;
    this.#setActivity('busy');
    await render({ ...options, provider: voice.provider, adapter, request, sink: this.#socket, artifacts, clock, log });
    this.#setActivity(options.activityAfter);
  }

  #setActivity(activity: Activity): void {
    this.#activity = activity;
    this.#socket.setActivity(activity);
  }

  #ended(why: string): void {
    const { artifacts } = this.#deps;
    this.#end.abort(new RelayError('gone', 'the voice session has ended'));
    artifacts.endAudio();
    artifacts.recordEnd({ type: `${this.#kind.loggedAs}.closed`, session_id: this.id, reason: why });
    this.#deps.ended(this, artifacts.settled());
  }
}

/** An error for the event log, which must not contain the spoken text (contract 05 §15), even quoted. */
function withoutText(event: JsonObject, text: string): JsonObject {
  const begin = text.replace(/\s+/g, ' ').trim().slice(0, QUOTED);
  const { type, message } = event;
  if (type !== 'voice.error' || typeof message !== 'string' || begin.length < MIN_QUOTED) return event;
  const at = message.indexOf(begin);
  return at < 0 ? event : { ...event, message: `${message.slice(0, at)}<text>` };
}

const factsOf = ({ provider, model, voice }: ChosenVoice): JsonObject => ({ provider, model, voice });

const LIMITS: SessionLimits = { perPrincipal: 16, total: 128, evicts: 'idle', error: 'rate-limited' };

export interface RenderSessionsDeps<S extends StreamingSettings> extends VoiceSessionsDeps<S> {
  adapters: Adapters;
}

/** The sessions of voice output, or those of the lab (contract 05 §12, §14). */
export function createRenderSessions<S extends StreamingSettings>(
  kind: RenderKind<S>,
  { adapters, ...deps }: RenderSessionsDeps<S>,
) {
  const { name, path, protocol, use, prefix, rules } = kind;
  return createVoiceSessions<S, VoiceSession<S>, void>(
    {
      ...{ name, path, protocol, use, prefix },
      isResumable: rules.resumable,
      revokedCode: 4001,
      limits: LIMITS,
      read() {},
      make(session) {
        const adapter = adapters(session.voice.provider);
        if (!adapter) throw new RelayError('internal', `voice provider ${session.voice.provider} has no adapter`);
        return new VoiceSession(kind, { ...session, adapter });
      },
    },
    deps,
  );
}

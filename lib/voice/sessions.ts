import type { Config } from '../config.ts';
import { describeError, RelayError } from '../errors.ts';
import { base64url, randomBytes } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import type { JsonObject } from '../kit/json.ts';
import { sha256 } from '../kit/sha256.ts';
import { withTimeout } from '../kit/timeouts.ts';
import type { Log } from '../log.ts';
import type { SocketEvents, Transport } from '../socket/transport.ts';
import type { Artifacts, NewArtifacts, SessionArtifacts } from './artifacts.ts';
import type { Effective } from './config.ts';
import { MAX_ID, MAX_LANGUAGE, MAX_RATE, MIN_RATE } from './limits.ts';
import type { VoicePrincipal } from './principal.ts';
import { type ProviderUse, requireProvider } from './registry.ts';
import { textIn } from './section.ts';
import { realtimeAlias, type StreamingSettings } from './settings.ts';
import { type LimitedSession, type SessionLimits, SessionTable } from './socket/session-table.ts';

/** Milliseconds that a stopping relay waits for the last lines of the event logs. */
const SETTLE_TIMEOUT = 2000;

/** Provider, model and voice of a session. */
export interface ChosenVoice {
  provider: string;
  model: string;
  voice: string;
  /** Hertz. */
  sampleRate: number;
  /** Named by the client; otherwise the settings have it. */
  language?: string;
}

/** The caller that asks for a session. */
export interface SessionCaller {
  principal: VoicePrincipal;
  /** The bearer of the request, which the agent's API server may verify. Never logged or stored. */
  bearer?: string;
}

/** Parts of a new session. */
export interface NewSession<S extends StreamingSettings, V> {
  id: string;
  principal: VoicePrincipal;
  scope: Effective<S>;
  voice: ChosenVoice;
  /** SHA-256 (hex) of the resume token. */
  tokenHash: string;
  /** Milliseconds. */
  resumeTtl: number;
  artifacts: SessionArtifacts;
  clock: Clock;
  log: Log;
  /** Called once; `settled` resolves when the event log is on disk. */
  ended(session: V, settled: Promise<void>): void;
}

/** A session, as far as the table needs it. */
export interface TableSession extends LimitedSession {
  readonly scope: { readonly profile: string | null };
  /** Path of the event log; empty without a host. */
  readonly logPath: string;
  /** Takes over a socket of its principal. */
  open(transport: Transport): SocketEvents;
}

/** The differences between sessions of voice output, of the lab, and of the realtime agent. */
export interface SessionsKind<S extends StreamingSettings, V extends TableSession, R> {
  /** For errors. */
  name: string;
  /** Path of its sockets, without the id. */
  path: string;
  protocol: string;
  use: ProviderUse;
  /** Beginning of the names of its files. */
  prefix: NewArtifacts['prefix'];
  isResumable: boolean;
  /** Close code of sockets whose principal may no longer use them. */
  revokedCode: number;
  limits: SessionLimits;
  /** Reads the further members of a body. @throws RelayError `invalid` */
  read(body: JsonObject, caller: SessionCaller, scope: Effective<S>): R | Promise<R>;
  make(deps: NewSession<S, V>, request: Awaited<R>): V;
  /** Members of the answer to `POST session` beyond the common ones. */
  answer?(request: Awaited<R>): JsonObject;
}

export interface VoiceSessionsDeps<S extends StreamingSettings> {
  config: Pick<Config, 'voiceResumeTtlMs'>;
  /** The settings for a profile; null for none (contract 05 §4). */
  scope(profile: string | null): Promise<Effective<S>>;
  artifacts: Artifacts;
  /** Calls back once when a principal may no longer use these sessions. Returns the function that stops watching. */
  onPrincipalEnded(principal: VoicePrincipal, ended: (reason: string) => void): () => void;
  clock: Clock;
  log: Log;
}

/** The sessions of one kind (contract 05 §12, §14, contract 06 §3.3). */
export function createVoiceSessions<S extends StreamingSettings, V extends TableSession, R>(
  kind: SessionsKind<S, V, R>,
  deps: VoiceSessionsDeps<S>,
) {
  const { scope: scopeOf, artifacts, clock, log, config } = deps;
  const sessions = new SessionTable<V>(clock, kind.limits);
  const watches = new Map<V, () => void>();
  /** Event logs of closed sessions that are not on disk yet. */
  const closing = new Set<Promise<void>>();

  async function enabledScope(profile: string | null): Promise<Effective<S>> {
    const scope = await scopeOf(profile);
    if (!scope.settings.enabled) throw new RelayError('not-found', `${kind.name} is disabled`);
    return scope;
  }

  function ended(session: V, settled: Promise<void>): void {
    sessions.ended(session);
    watches.get(session)?.();
    watches.delete(session);
    const done = settled.catch((error) => log.warn(`an event log failed: ${describeError(error)}`));
    closing.add(done);
    void done.finally(() => closing.delete(done));
  }

  return {
    /** Open sessions. */
    count: (): number => sessions.size,
    /** Those that have a socket. */
    attached: (): number => sessions.attached,

    /**
     * Creates a session for the principal. Returns the body of the answer, with the resume token, which is kept as a
     * hash only.
     * @throws RelayError `not-found` while they are disabled, `invalid` for a bad body, the kind in the limits when
     * there are too many sessions.
     */
    async create(caller: SessionCaller, profile: string | null, body: JsonObject): Promise<JsonObject> {
      const { principal } = caller;
      const scope = await enabledScope(profile);
      const voice = chosenVoice(body, scope, kind.use);
      const request = await kind.read(body, caller, scope);
      // Before the session is created, so that a refused one leaves no event log.
      sessions.makeRoom(principal);
      const id = base64url(randomBytes(18));
      const resumeToken = base64url(randomBytes(32));
      const session = kind.make(
        {
          id,
          principal,
          scope,
          voice,
          tokenHash: sha256(resumeToken),
          resumeTtl: config.voiceResumeTtlMs,
          artifacts: artifacts.open({ prefix: kind.prefix, sessionId: id, scope }),
          clock,
          log,
          ended,
        },
        request,
      );
      sessions.add(session);
      watches.set(
        session,
        deps.onPrincipalEnded(principal, (reason) => session.close(kind.revokedCode, reason, 'closed')),
      );
      return {
        success: true,
        session_id: id,
        websocket_path: `${kind.path}/${id}`,
        ...(kind.isResumable && {
          resume_token: resumeToken,
          resume_supported: true,
          resume_ttl_ms: config.voiceResumeTtlMs,
        }),
        provider: voice.provider,
        model: voice.model,
        voice: voice.voice,
        sample_rate: voice.sampleRate,
        event_log_path: session.logPath,
        protocol: kind.protocol,
        ...originOf(scope),
        fallback_to_global: scope.fallbackToGlobal,
        ...kind.answer?.(request),
      };
    },

    /**
     * Checks that the principal may connect a socket to a session.
     * @throws RelayError `not-found` for an unknown session and while they are disabled, `gone` for a closed
     * session, `forbidden` for that of another principal.
     */
    async admit(id: string, principal: VoicePrincipal): Promise<void> {
      const { scope } = sessions.find(id, principal);
      await enabledScope(scope.profile);
    },

    /** Takes over a socket that was admitted. */
    open(id: string, principal: VoicePrincipal, socket: Transport): SocketEvents {
      try {
        return sessions.find(id, principal).open(socket);
      } catch {
        // The session has ended since the upgrade was admitted.
        socket.close(4008, 'session closed');
        return { message() {}, drained() {}, pinged() {}, closed() {} };
      }
    },

    /** Closes every socket, aborts every render, and completes the event logs. */
    async stop(): Promise<void> {
      sessions.closeAll(1001, 'server shutting down', 'shutdown');
      await withTimeout({ clock, timeout: SETTLE_TIMEOUT }, Promise.all(closing), () => {});
    },
  };
}

/**
 * The voice of a session: that of the settings, overridden by the body. A different provider comes with its own defaults.
 */
function chosenVoice(
  body: JsonObject,
  { settings, defaultsFor }: Effective<StreamingSettings>,
  use: ProviderUse,
): ChosenVoice {
  const named = textIn(body, 'provider', MAX_ID);
  const wanted = use === 'agent' && named !== undefined ? realtimeAlias(named) : named;
  const provider = requireProvider(wanted ?? settings.provider, use);
  const { id } = provider.info;
  const isOther = id !== settings.provider;
  const defaults = isOther ? { ...defaultsFor(provider), sampleRate: provider.defaultSampleRate } : settings;
  const sampleRate = body.sample_rate ?? defaults.sampleRate;
  if (!Number.isInteger(sampleRate) || (sampleRate as number) < MIN_RATE || (sampleRate as number) > MAX_RATE) {
    throw new RelayError('invalid', `sample_rate must be an integer from ${MIN_RATE} to ${MAX_RATE}`);
  }
  return {
    provider: id,
    model: textIn(body, 'model', MAX_ID) ?? defaults.model,
    voice: textIn(body, 'voice', MAX_ID) ?? defaults.voice,
    sampleRate: sampleRate as number,
    language: textIn(body, 'language', MAX_LANGUAGE),
  };
}

/** The origin of a session's settings, as shown in its answer and its events. */
export const originOf = ({ profile, configScope, configPath }: Effective<StreamingSettings>): JsonObject => ({
  profile,
  config_scope: configScope,
  config_path: configScope === 'relay' ? null : configPath,
});

import type { Config } from '../config.ts';
import { describeError, RelayError } from '../errors.ts';
import { base64url, randomBytes, sha256 } from '../kit/bytes.ts';
import type { Clock } from '../kit/clock.ts';
import type { JsonObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import type { SocketEvents, Transport } from '../socket/transport.ts';
import type { Artifacts } from './artifacts.ts';
import type { Effective } from './config.ts';
import type { VoicePrincipal } from './principal.ts';
import { type ProviderUse, requireProvider } from './registry.ts';
import { type ChosenVoice, originOf, type SessionKind, VoiceSession } from './session.ts';
import type { StreamingSettings } from './settings.ts';
import { SessionTable } from './socket/session-table.ts';
import type { Adapters } from './streaming/adapters.ts';

const MIN_RATE = 8000;
const MAX_RATE = 96_000;
const MAX_ID = 160;
const MAX_LANGUAGE = 24;
/** Milliseconds that a stopping relay waits for the last lines of the event logs. */
const SETTLE_TIMEOUT = 2000;

export interface VoiceSessionsParts<S extends StreamingSettings> {
  config: Pick<Config, 'voiceResumeTtlMs'>;
  /** The settings for a profile; null for none (contract 05 §4). */
  scope(profile: string | null): Promise<Effective<S>>;
  adapters: Adapters;
  artifacts: Artifacts;
  /** Calls back once when a principal may no longer use these sessions. Returns the function that stops watching. */
  onPrincipalEnded(principal: VoicePrincipal, ended: (reason: string) => void): () => void;
  clock: Clock;
  log: Log;
}

export type VoiceSessions = ReturnType<typeof createVoiceSessions>;

/** The sessions of voice output, or those of the lab (contract 05 §12, §14). */
export function createVoiceSessions<S extends StreamingSettings>(kind: SessionKind<S>, parts: VoiceSessionsParts<S>) {
  const { scope: scopeOf, adapters, artifacts, clock, log, config } = parts;
  const sessions = new SessionTable<VoiceSession<S>>(clock);
  const watches = new Map<VoiceSession<S>, () => void>();
  /** Event logs of closed sessions that are not on disk yet. */
  const closing = new Set<Promise<void>>();

  async function enabledScope(profile: string | null): Promise<Effective<S>> {
    const scope = await scopeOf(profile);
    if (!scope.settings.enabled) throw new RelayError('not-found', `${kind.name} is disabled`);
    return scope;
  }

  function ended(session: VoiceSession<S>, settled: Promise<void>): void {
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
     * @throws RelayError `not-found` while they are disabled, `invalid` for a bad body, `rate-limited` when the
     * principal has too many sessions that are busy.
     */
    async create(principal: VoicePrincipal, profile: string | null, body: JsonObject): Promise<JsonObject> {
      const scope = await enabledScope(profile);
      const voice = chosenVoice(body, scope, kind.use);
      const adapter = adapters(voice.provider);
      if (!adapter) throw new RelayError('internal', `voice provider ${voice.provider} has no adapter`);
      const id = base64url(randomBytes(18));
      const resumeToken = base64url(randomBytes(32));
      const session = new VoiceSession(kind, {
        id,
        principal,
        scope,
        voice,
        adapter,
        tokenHash: sha256(resumeToken),
        resumeTtl: config.voiceResumeTtlMs,
        artifacts: artifacts.open({ prefix: kind.prefix, sessionId: id, scope }),
        clock,
        log,
        ended,
      });
      try {
        sessions.add(session);
      } catch (error) {
        session.close(1013, 'too many voice sessions', 'evicted');
        throw error;
      }
      watches.set(
        session,
        parts.onPrincipalEnded(principal, (reason) => session.close(4001, reason, 'closed')),
      );
      return {
        success: true,
        session_id: id,
        websocket_path: `${kind.path}/${id}`,
        ...(kind.rules.resumable && {
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
      };
    },

    /**
     * Whether the principal may connect a socket to a session.
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
        // It has ended since the upgrade was admitted.
        socket.close(4008, 'session closed');
        return { message() {}, drained() {}, pinged() {}, closed() {} };
      }
    },

    /** Closes every socket, aborts every render, and completes the event logs. */
    async stop(): Promise<void> {
      sessions.closeAll(1001, 'server shutting down', 'shutdown');
      let cancel = () => {};
      const late = new Promise<void>((resolve) => {
        cancel = clock.after(SETTLE_TIMEOUT, resolve);
      });
      await Promise.race([Promise.all(closing), late]).finally(cancel);
    },
  };
}

/** Trimmed text of a body; undefined when it is absent or blank. */
function textOf(body: JsonObject, name: string, max: number): string | undefined {
  const value = body[name] ?? '';
  if (typeof value !== 'string') throw new RelayError('invalid', `${name} must be a string`);
  const text = value.trim();
  if (text.length > max) throw new RelayError('invalid', `${name} must have at most ${max} characters`);
  return text === '' ? undefined : text;
}

/** What a session renders with: the settings, overridden by the body. Another provider brings its own defaults. */
function chosenVoice(body: JsonObject, { settings }: Effective<StreamingSettings>, use: ProviderUse): ChosenVoice {
  const provider = requireProvider(textOf(body, 'provider', MAX_ID) ?? settings.provider, use);
  const { id } = provider.info;
  const isOther = id !== settings.provider;
  const defaults = isOther
    ? { model: provider.defaultModel, voice: provider.defaultVoice, sampleRate: provider.defaultSampleRate }
    : settings;
  const sampleRate = body.sample_rate ?? defaults.sampleRate;
  if (!Number.isInteger(sampleRate) || (sampleRate as number) < MIN_RATE || (sampleRate as number) > MAX_RATE) {
    throw new RelayError('invalid', `sample_rate must be an integer from ${MIN_RATE} to ${MAX_RATE}`);
  }
  return {
    provider: id,
    model: textOf(body, 'model', MAX_ID) ?? defaults.model,
    voice: textOf(body, 'voice', MAX_ID) ?? defaults.voice,
    sampleRate: sampleRate as number,
    language: textOf(body, 'language', MAX_LANGUAGE),
  };
}

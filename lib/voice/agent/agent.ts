import { isSessionId } from '../../chat/upstream.ts';
import type { Config } from '../../config.ts';
import { describeError, RelayError } from '../../errors.ts';
import type { Upstream } from '../../host/upstream.ts';
import type { JsonObject } from '../../kit/json.ts';
import { actorText } from '../../operations/actor.ts';
import type { ProfileFiles } from '../../profiles/profile-files.ts';
import type { Effective } from '../config.ts';
import type { VoicePrincipal } from '../principal.ts';
import {
  createVoiceSessions,
  type NewSession,
  type SessionCaller,
  type TableSession,
  type VoiceSessionsDeps,
} from '../sessions.ts';
import type { SessionLimits } from '../socket/session-table.ts';
import type { AgentConfig } from './core/state.ts';
import type { ConnectProvider } from './provider/provider.ts';
import type { RenderSpeech } from './provider/render.ts';
import type { AgentSessionDeps, UnreceivedAnswer } from './session.ts';
import { type AgentSettings, keepsAudio } from './settings.ts';
import { type ContextMessage, readContextMessages, readHistory } from './text/context.ts';
import { readProfileBlock } from './text/profile-block.ts';
import { TOOL_SURFACE } from './text/tools.ts';
import { credentialOf } from './upstream/credential.ts';
import { type AgentUpstream, createAgentUpstream } from './upstream/run.ts';

const MAX_CHAT_SESSION_ID = 200;
const MAX_MESSAGE = 280;
const LIMITS: SessionLimits = { perPrincipal: 8, total: 64, evicts: 'unattached', error: 'unavailable' };

/** Parameters from a client besides provider, model and voice (contract 06 §3.3). */
interface AgentRequest {
  /** The chat session to continue. */
  chatSessionId: string | null;
  /** True if nothing is spoken before the settled answer. */
  isFinalAnswerOnly: boolean;
  context: ContextMessage[];
  profileBlock: string;
  upstream: AgentUpstream;
}

export interface RealtimeAgentDeps extends VoiceSessionsDeps<AgentSettings> {
  config: Config;
  upstream: Upstream;
  /** Key of the agent's API server for paired callers, who have none; empty without one. */
  apiKey(): Promise<string>;
  /** Absent at the edge. */
  profileFiles?: Pick<ProfileFiles, 'config' | 'soul' | 'memory'>;
  /** Pushes a message to the phone, as `POST /phone/message` does (contract 04 §5.3). */
  pushMessage(message: JsonObject, by: string | undefined): Promise<unknown>;
  /** The providers, by their ids (contract 06 §9). */
  providers(id: string): ConnectProvider | undefined;
  /** Reads a text aloud without the provider's conversation (contract 06 §7.3). */
  renderSpeech: RenderSpeech;
  openSession(session: Omit<AgentSessionDeps<AgentSettings>, 'gate' | 'runIds'>): TableSession;
}

/** The realtime agent: sessions in which a provider hears and speaks, and the agent does the work (contract 06). */
export function createRealtimeAgent(deps: RealtimeAgentDeps) {
  const { config, upstream, apiKey, profileFiles, pushMessage, providers, renderSpeech, openSession, clock, log } =
    deps;
  /** Messages that are still being stored. */
  const pushing = new Set<Promise<void>>();

  function handOver({ text, runId, chatSessionId }: UnreceivedAnswer, principal: VoicePrincipal): void {
    const metadata = { source: 'realtime_agent', run_id: runId, chat_session_id: chatSessionId };
    const beginning = text.slice(0, MAX_MESSAGE).toWellFormed();
    const message = { title: 'Background task finished', text: beginning, metadata };
    const by =
      principal.kind === 'session' ? actorText({ kind: 'voice', session: principal.session, runId }) : undefined;
    const pushed = pushMessage({ ...message, surfacing: 'notification' }, by).then(
      () => {},
      (error) => log.warn(`the result of a background run could not be kept for the phone: ${describeError(error)}`),
    );
    pushing.add(pushed);
    void pushed.then(() => pushing.delete(pushed));
  }

  function upstreamOf({ principal, bearer = '' }: SessionCaller): AgentUpstream {
    const own = principal.kind === 'api' ? bearer : undefined;
    return createAgentUpstream({ config, credential: () => credentialOf(own, apiKey), upstream, clock, log });
  }

  const sessions = createVoiceSessions<AgentSettings, TableSession, AgentRequest>(
    {
      name: 'realtime agent voice',
      path: '/voice/realtime-agent',
      protocol: 'svc.voice.realtime_agent.v0',
      use: 'agent',
      prefix: 'realtime-agent',
      isResumable: true,
      revokedCode: 4401,
      limits: LIMITS,
      async read(body, caller, { profile }: Effective<AgentSettings>) {
        const chatSessionId = chatSessionIn(body);
        const isFinalAnswerOnly = finalAnswerOnlyIn(body);
        const upstream = upstreamOf(caller);
        const given = readContextMessages(body.context_messages);
        const isKnown = given.length > 0 || chatSessionId === null;
        const [context, profileBlock] = await Promise.all([
          isKnown ? given : readHistory(await upstream.history(chatSessionId)),
          readProfileBlock(profileFiles, profile, log),
        ]);
        return { chatSessionId, isFinalAnswerOnly, context, profileBlock, upstream };
      },
      make(session, request) {
        const { voice, scope } = session;
        const { provider, model, sampleRate } = voice;
        const connectProvider = providers(provider);
        if (!connectProvider) throw new RelayError('internal', `voice provider ${provider} has no adapter`);
        const headers = scope.headersFor(provider);
        const { oauthPath, servers } = scope;
        const speech = { provider, model, voice: voice.voice, sampleRate, headers, oauthPath, servers };
        const { context, profileBlock, upstream } = request;
        return openSession({
          ...session,
          ...{ context, profileBlock, upstream, connectProvider },
          handOver: (answer) => handOver(answer, session.principal),
          config: agentConfig(session, request, config),
          unattachedTtl: config.voiceUnattachedTtlMs,
          providerOptions: { headers, oauthPath, servers, tuning: scope.tuningFor(provider) },
          renderSpeech: (text, signal) => renderSpeech({ ...speech, text, signal }),
          keepsAudio: keepsAudio(scope.section),
        });
      },
      answer: ({ chatSessionId, context }) => ({
        chat_session_id: chatSessionId,
        context_message_count: context.length,
        experimental: true,
        tool_surface: [...TOOL_SURFACE],
      }),
    },
    deps,
  );
  return {
    ...sessions,
    /** Closes every session, hands over unheard answers, and completes the event logs. */
    async stop(): Promise<void> {
      await sessions.stop();
      await Promise.all(pushing);
    },
  };
}

/** Settings and timers of one session (contract 06 §2). */
function agentConfig(
  { id, voice, scope, artifacts, resumeTtl }: NewSession<AgentSettings, TableSession>,
  { chatSessionId, isFinalAnswerOnly }: AgentRequest,
  config: Config,
): AgentConfig {
  const { settings, profile } = scope;
  const { provider } = voice;
  return {
    sessionId: id,
    provider,
    model: voice.model,
    voice: voice.voice,
    sampleRate: voice.sampleRate,
    eventLogPath: artifacts.logPath,
    profile,
    chatSessionId,
    isFinalAnswerOnly,
    // The stub cannot talk meanwhile.
    promotes: provider !== 'stub' && settings.promotionEnabled && settings.backgroundDefaultMode === 'promote',
    promoteAfter: settings.promoteAfterMs,
    spokenHandoff: settings.spokenHandoff && !isFinalAnswerOnly,
    progressSpokenAfter: isFinalAnswerOnly ? 0 : settings.progressSpokenAfterMs,
    progressRepeat: settings.progressRepeatMs,
    resultDelivery: isFinalAnswerOnly ? 'speak_verbatim' : settings.resultDelivery,
    // Through `force_message`, which OpenAI does not have.
    speaksExactText: provider === 'xai_realtime',
    longToolHints: config.voiceLongToolHints,
    resumeTtl,
    backgroundDetachedMax: config.voiceBackgroundDetachedMaxMs,
    backgroundRunMax: config.voiceBackgroundRunMaxMs,
    progressInterval: config.voiceProgressIntervalMs,
    playbackDrain: config.voicePlaybackDrainMs,
    runLead: config.voiceRunLeadMs,
    floorWait: config.voiceFloorWaitMs,
    inputQuiet: config.voiceInputQuietMs,
    deliveryConfirm: config.voiceDeliveryConfirmMs,
    longToolQuickFinish: config.voiceLongToolQuickFinishMs,
    transcriptWait: config.voiceTranscriptWaitMs,
  };
}

function chatSessionIn({ chat_session_id: id }: JsonObject): string | null {
  if (id === undefined || id === null) return null;
  if (typeof id !== 'string') throw new RelayError('invalid', 'chat_session_id must be a string');
  if (id.trim() === '') return null;
  if (id.length > MAX_CHAT_SESSION_ID) {
    throw new RelayError('invalid', `chat_session_id must have at most ${MAX_CHAT_SESSION_ID} characters`);
  }
  if (isSessionId(id)) return id;
  throw new RelayError('invalid', 'chat_session_id must have no control characters, and be no path');
}

function finalAnswerOnlyIn({ final_answer_only: value }: JsonObject): boolean {
  if (value === undefined || value === null) return false;
  if (typeof value === 'boolean') return value;
  throw new RelayError('invalid', 'final_answer_only must be a boolean');
}

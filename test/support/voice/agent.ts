import { onTestFinished } from 'vitest';
import { bearer, pair, post, type Target, type TargetOptions } from '../relay.ts';
import { type AgentApi, type AgentApiOptions, startAgentApi } from './agent-api.ts';
import { connectVoice, type VoiceClient, type VoiceEvent } from './client.ts';
import { type Provider, startProvider } from './provider.ts';
import { type Script, type ScriptedTurn, scriptRealtime } from './realtime-provider.ts';

export const REALTIME_KEY = 'sk-realtime-key-of-the-provider';
export const AGENT_KEY = 'key-of-the-agents-api-server';

/** Waits of the relay that a test need not sit through. */
const BRISK = {
  RELAY_VOICE_RUN_LEAD_MS: '1',
  RELAY_VOICE_PLAYBACK_DRAIN_MS: '20',
  RELAY_VOICE_INPUT_QUIET_MS: '1',
  RELAY_VOICE_LONG_TOOL_QUICK_FINISH_MS: '20',
};

/** Variables of a relay whose realtime agent is a fake OpenAI, with a fake API server of the agent. */
export const agentEnv = (provider: Pick<Provider, 'url'>, api: Pick<AgentApi, 'url'>): Record<string, string> => ({
  OPENAI_REALTIME_API_KEY: REALTIME_KEY,
  OPENAI_REALTIME_URL: provider.url.replace('http', 'ws'),
  RELAY_REALTIME_VOICE_PROVIDER: 'openai_realtime',
  RELAY_REALTIME_VOICE_MODEL: 'gpt-realtime-2.1',
  RELAY_REALTIME_VOICE_VOICE: 'marin',
  RELAY_WEBAPI_URL: api.url,
  API_SERVER_KEY: AGENT_KEY,
  ...BRISK,
});

/** Body of `POST /voice/realtime-agent/session`. */
export interface AgentAnswer {
  session_id: string;
  websocket_path: string;
  resume_token: string;
  event_log_path: string;
  [member: string]: unknown;
}

export const requestAgent = (target: Target, token: string, body: unknown = {}): Promise<Response> => {
  const { method, body: text, headers } = post(body);
  return target.fetch('/voice/realtime-agent/session', {
    method,
    body: text,
    headers: { ...headers, ...bearer(token) },
  });
};

/** A new session of the realtime agent. */
export async function createAgent(target: Target, token: string, body?: unknown): Promise<AgentAnswer> {
  const response = await requestAgent(target, token, body);
  if (response.status !== 200) throw new Error(`session: ${response.status} ${await response.text()}`);
  return (await response.json()) as AgentAnswer;
}

export interface AgentSetup extends AgentApiOptions {
  /** Answers of the provider, in order. */
  turns?: ScriptedTurn[];
  transcripts?: (string | null)[];
  env?: Record<string, string>;
  /** Body of the request for the session. */
  body?: object;
}

export interface AgentStage {
  target: Target;
  api: AgentApi;
  provider: Provider;
  script: Script;
  token: string;
  prefix: string;
  session: AgentAnswer;
  /** Another socket of the session, which is terminated after the test. */
  connect(): Promise<VoiceClient>;
  /** First message of a client that comes back. */
  resume(cursors?: object): object;
}

/** A relay between a fake OpenAI and a fake API server of the agent, and a session on it. */
export async function setUpAgent(
  start: (options?: TargetOptions) => Promise<Target>,
  { turns, transcripts, env = {}, body = {}, onEnd = onTestFinished, ...options }: AgentSetup = {},
): Promise<AgentStage> {
  const provider = await startProvider(onEnd);
  const script = scriptRealtime(provider, { turns, transcripts });
  const api = await startAgentApi({ key: AGENT_KEY, onEnd, ...options });
  const target = await start({
    env: { ...agentEnv(provider, api), ...env },
  });
  const { token, prefix } = await pair(target);
  const session = await createAgent(target, token, body);
  return {
    target,
    api,
    provider,
    script,
    token,
    prefix,
    session,
    async connect() {
      const client = await connectVoice(target, session.websocket_path, token);
      onEnd(() => client.terminate());
      return client;
    },
    resume: (cursors = {}) => ({ type: 'session.resume', resume_token: session.resume_token, ...cursors }),
  };
}

/** The same, with a socket at its `voice.session.ready`. */
export async function openAgent(...setup: Parameters<typeof setUpAgent>) {
  const stage = await setUpAgent(...setup);
  const client = await stage.connect();
  client.send({ type: 'session.start' });
  const ready = await client.next('voice.session.ready');
  return { ...stage, client, ready };
}

/** Provider's call of `svc_run_task`. */
export const runTask = (text: string, args: object = {}, callId = `call-${text}`): ScriptedTurn => ({
  calls: [{ callId, name: 'svc_run_task', args: { text, ...args } }],
});

/** The types of events, without those that come with every message or at any time. */
export const typesOf = (events: readonly VoiceEvent[]): string[] =>
  events.map(({ type }) => type).filter((type) => type !== 'svc.run.progress');

/** The text of the response that is the last of these events. */
export const saidIn = (events: readonly VoiceEvent[]): string => {
  const id = events.at(-1)?.response_id;
  return events
    .filter(({ type, response_id }) => type === 'voice.response.delta' && response_id === id)
    .map(({ delta }) => delta)
    .join('');
};

/** Messages of a type that the provider's first conversation was sent. */
export const sentTo = <T extends object = Record<string, unknown>>({ conversations }: Script, type: string): T[] =>
  (conversations[0]?.sent(type) ?? []) as T[];

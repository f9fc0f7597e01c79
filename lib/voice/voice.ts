import type { Stores } from '../../storage/schema.ts';
import type { LocalOperator } from '../access/local-operator.ts';
import type { SessionBearers } from '../access/session-bearers.ts';
import type { Config } from '../config.ts';
import { describeError } from '../errors.ts';
import type { Host } from '../host/index.ts';
import type { Upstream } from '../host/upstream.ts';
import type { DialUpstream } from '../host/upstream-socket.ts';
import type { Clock } from '../kit/clock.ts';
import type { JsonObject } from '../kit/json.ts';
import type { Log } from '../log.ts';
import { createDenyList, secretPaths } from '../media/deny-list.ts';
import type { Gate } from '../operations/gate.ts';
import type { Security } from '../operator/security.ts';
import { readApiServer } from '../pairing/api-server.ts';
import type { ProfileFiles } from '../profiles/profile-files.ts';
import type { Sessions } from '../sessions/sessions.ts';
import { createRealtimeAgent } from './agent/agent.ts';
import { createProviders } from './agent/provider/index.ts';
import { createSpeechRenderer } from './agent/provider/render.ts';
import { AgentSession } from './agent/session.ts';
import { createArtifacts } from './artifacts.ts';
import { createBasicVoice } from './basic/basic.ts';
import { createVoiceConfig } from './config.ts';
import { createVoiceCredentials } from './credentials.ts';
import { createVoiceLab } from './lab/lab.ts';
import { createOauthStore } from './oauth-store.ts';
import { createVoiceOptions } from './options.ts';
import { createVoiceOutput } from './output/output.ts';
import { createVoiceCallers } from './principal.ts';
import { createVoiceScopes } from './scope.ts';
import { createAdapters } from './streaming/adapters.ts';

export interface VoiceDeps {
  /** Absent at the edge. */
  host?: Host;
  config: Config;
  clock: Clock;
  log: Log;
  /** The deployment's variables (edge). On a host, those of the host count. */
  env?: Readonly<Record<string, string | undefined>>;
  upstream: Upstream;
  dialUpstream: DialUpstream;
  sessions: Sessions;
  sessionBearers: SessionBearers;
  security: Security;
  localOperator: LocalOperator;
  stores: Stores;
  gate: Gate;
  /** Absent at the edge. */
  profileFiles?: ProfileFiles;
  /** Pushes a message to the phone, as `POST /phone/message` does (contract 04 §5.3). */
  pushMessage(message: JsonObject, by: string | undefined): Promise<unknown>;
}

/** Milliseconds for which the host's API key is cached, since strangers can cause it to be read. */
const API_KEY_REMEMBERED = 5_000;

/** Everything of contract 05. One member per part of it. */
export async function createVoice(deps: VoiceDeps) {
  const { host, config, clock, log, upstream, dialUpstream, sessions, security, localOperator, stores } = deps;
  const scopes = createVoiceScopes(host, config);
  const settings = createVoiceConfig({ host, config, scopes, log });
  const credentials = createVoiceCredentials({
    env: deps.env ?? host?.env ?? {},
    oauth:
      host &&
      createOauthStore({ files: host.files, clock, agentHome: config.agentHome, path: () => settings.oauthPath() }),
    directories: [config.home, config.agentHome, config.relayHome],
  });
  const options = createVoiceOptions({
    host,
    credentials,
    upstream,
    clock,
    log,
    cacheSeconds: config.providerOptionsCacheSeconds,
  });
  const isSecret = host && createDenyList(host, secretPaths(host, config));
  const basic = createBasicVoice({ host, config, isSecret, clock, log, upstream, credentials, settings });
  const apiKey = createApiKeyReader(deps);
  const callers = await createVoiceCallers({
    config,
    upstream,
    sessions,
    sessionBearers: deps.sessionBearers,
    security,
    localOperator,
    apiKey,
    store: stores.open('voice-callers'),
    clock,
    log,
  });
  const artifacts = createArtifacts({ host, clock, log });
  const streaming = {
    config,
    adapters: createAdapters({ host, upstream, dialUpstream, clock, credentials }),
    artifacts,
    clock,
    log,
  };
  const output = createVoiceOutput({
    ...streaming,
    scope: settings.output,
    onPrincipalEnded: (principal, ended) => callers.onPrincipalEnded(principal, 'voice:tts', ended),
  });
  const lab = createVoiceLab({
    ...streaming,
    scope: settings.realtime,
    onPrincipalEnded: (principal, ended) => callers.onPrincipalEnded(principal, 'voice:realtime', ended),
  });
  const runIds = new Set<string>();
  const agent = createRealtimeAgent({
    ...streaming,
    scope: settings.agent,
    onPrincipalEnded: (principal, ended) => callers.onPrincipalEnded(principal, 'voice:realtime', ended),
    upstream,
    apiKey,
    profileFiles: deps.profileFiles,
    pushMessage: deps.pushMessage,
    providers: createProviders({ dialUpstream, clock, credentials }),
    renderSpeech: createSpeechRenderer(streaming.adapters),
    openSession: (session) => new AgentSession({ ...session, gate: deps.gate, runIds }),
  });

  return {
    callers,
    config: settings,
    /** Contains secrets: for the domain, and for its status of them. */
    credentials,
    options,
    basic,
    output,
    lab,
    agent,
    /** True if the realtime agent is running this run. */
    isRun: (runId: string): boolean => runIds.has(runId),

    start() {
      basic.start();
      const used = Promise.all([settings.output(null), settings.realtime(null), settings.agent(null)]);
      used.then(artifacts.start).catch((error) => log.warn(`voice settings cannot be read: ${describeError(error)}`));
    },

    async stop(): Promise<void> {
      options.stop();
      artifacts.stop();
      await Promise.all([basic.stop(), output.stop(), lab.stop(), agent.stop()]);
    },
  };
}

function createApiKeyReader({ config, host, clock, log }: VoiceDeps): () => Promise<string> {
  let known: { key: Promise<string>; until: number } | undefined;
  return () => {
    const now = clock.monotonic();
    if (!known || known.until <= now) {
      const key = readApiServer(config, host, log).then((state) => state.key);
      known = { key, until: now + API_KEY_REMEMBERED };
    }
    return known.key;
  };
}

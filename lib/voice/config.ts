import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import type { JsonObject } from '../kit/json.ts';
import { visibleName } from '../kit/text.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';
import type { Log } from '../log.ts';
import { extraHeaders, realtimeAgent } from './agent/settings.ts';
import { type Tuning, tuningIn } from './agent/tuning.ts';
import { createConfigEditor } from './config-edit.ts';
import type { StreamingProvider } from './registry.ts';
import type { VoiceScopes } from './scope.ts';
import { basicSection, mappingOf, memberOf, nestedIn, readSection, textOf } from './section.ts';
import { overlaidServers, type ServerSections, serverDefaults } from './servers.ts';
import {
  checkChanges,
  type DefaultsFor,
  keysOf,
  keysToWrite,
  overlay,
  readEnvironment,
  readSettings,
  readTtsSettings,
  realtimeVoice,
  type SectionKind,
  type StreamingSettings,
  voiceOutput,
  withDefaults,
} from './settings.ts';

/** Settings of the streaming path for one request, and their origin (contract 05 §4). */
export interface Effective<S extends StreamingSettings> {
  settings: S;
  /** The section from files, with every key, including those of the realtime agent. Never for clients. */
  section: Mapping;
  /** The profile's file if it supplied values, else the relay-owned one; null without a host (edge). */
  configPath: string | null;
  /** The name that the client gave. */
  profile: string | null;
  /** `global`: the agent's root configuration, for a profile without a file. Only for the realtime agent. */
  configScope: 'relay' | 'profile' | 'global';
  fallbackToGlobal: boolean;
  /** Directory of event logs and recordings. */
  runDir: string;
  /** The token store of xAI that the profile sets, in place of the configured one. */
  oauthPath?: string;
  /** Keys, base URLs and further settings of the providers (contract 05 §18). Never for clients. */
  servers: ServerSections;
  /** Default model and voice of a provider, preferably from its section. */
  defaultsFor: DefaultsFor;
  /** Further headers for a realtime provider (contract 06 §9). They may be secret. */
  headersFor(provider: string): Record<string, string>;
  /** Optional settings of a realtime provider. */
  tuningFor(provider: string): Tuning;
}

/** The sections of the basic path for one request, and their origin (contract 05 §4, §5). */
export interface BasicSections {
  tts: Mapping;
  stt: Mapping;
  profile: string | null;
  configScope: 'global' | 'profile';
  /** The profile's file; null if the scope is global. */
  configPath: string | null;
  fallbackToGlobal: boolean;
}

/** The result of a `PATCH`. */
export interface Changed<S extends StreamingSettings> {
  effective: Effective<S>;
  /** Names of the settings that the client sent, sorted. */
  updated: string[];
  /** The file that was written. */
  configPath: string;
}

export interface VoiceConfigDeps {
  /** Absent at the edge. */
  host?: Host;
  config: Config;
  scopes: VoiceScopes;
  log: Pick<Log, 'warn'>;
}

/** Warnings about values in files that are remembered, to log each once. */
const MAX_WARNINGS = 64;

export type VoiceConfig = ReturnType<typeof createVoiceConfig>;

/**
 * Configuration of voice: `tts:`, `stt:`, `voice_output:` and `realtime_voice:` (contract 05 §4). Reads the files of the host
 * on each use; without one (edge), there are only defaults and variables.
 */
export function createVoiceConfig({ host, config, scopes, log }: VoiceConfigDeps) {
  const editor = host && createConfigEditor(host);
  const output = relayOwned(voiceOutput, config.voiceOutputConfig, config.voiceOutputRunDir);
  const realtime = relayOwned(realtimeVoice, config.realtimeVoiceConfig, config.realtimeVoiceRunDir);
  const agentRunDir = `${config.relayHome}/realtime-agent-runs`;
  const agent = {
    ...relayOwned(realtimeAgent, realtime.file, realtime.runDir),
    ...(realtime.runDir === realtime.defaultRunDir && { runDir: agentRunDir, defaultRunDir: agentRunDir }),
    // The same keys of the same section.
    changed: realtime.changed,
  };
  const warned = new Set<string>();

  /** One section of the relay's own file, with the variables that override it. */
  function relayOwned<S extends StreamingSettings>(kind: SectionKind<S>, file: string, runDir: string) {
    const environment = readEnvironment(kind, config);
    const defaultRunDir = `${config.relayHome}/${kind.name.replace('_', '-')}-runs`;
    /** Settings that a `PATCH` to this process changed, for which the file takes precedence over the variables. */
    const changed = new Set<string>();
    return { kind, file, environment, changed, runDir, defaultRunDir };
  }

  /** Warns once about each ignored value. The value itself might be a misplaced key, so it is not logged. */
  const warnOf =
    ({ name: section }: { name: string }, file: string) =>
    (name: string) => {
      const warning = `${section}.${name} in ${file} is not valid, and is ignored`;
      if (warned.has(warning) || warned.size >= MAX_WARNINGS) return;
      warned.add(warning);
      log.warn(warning);
    };
  type RelayOwned<S extends StreamingSettings> = ReturnType<typeof relayOwned<S>>;

  async function effective<S extends StreamingSettings>(
    { kind, file, environment, changed, runDir, defaultRunDir }: RelayOwned<S>,
    profile: string | null,
    settingsOf: (content: Mapping, file: string) => { settings: Partial<S>; section: Mapping },
  ): Promise<Effective<S>> {
    const content = await scopes.read(file);
    const own = mappingOf(content, kind.name);
    const written = readSettings(kind, own, warnOf(kind, file));
    const patched = Object.fromEntries(Object.entries(written).filter(([key]) => changed.has(key))) as Partial<S>;
    const relay = [written, environment, patched].reduce<S>(overlay, kind.defaults);
    const scope = await scopes.resolve(profile);
    const isRoot = scope.file === null && profile !== null && kind.fallsBackToRoot === true;
    const overlaying = isRoot ? config.agentConfig : scope.file;
    const found = overlaying === null ? undefined : settingsOf(scope.content, overlaying);
    const isOverlaid = found !== undefined && Object.keys(found.settings).length > 0;
    const section = { ...readSection(own, kind.canonical), ...(found && readSection(found.section, kind.canonical)) };
    const ownRunDir = runDir === defaultRunDir ? absolute(section.run_dir) : undefined;
    const servers = {
      tts: basicSection((await basicOf(profile)).tts),
      realtime: overlaidServers(mappingOf(content, 'realtime'), overlaying === null ? {} : scope.content.realtime),
    };
    const defaultsFor = (provider: StreamingProvider) => serverDefaults(provider, servers);
    const layers = [written, environment, patched, ...(isOverlaid ? [found.settings] : [])];
    return {
      settings: withDefaults(isOverlaid ? overlay(relay, found.settings) : relay, kind.defaults, layers, defaultsFor),
      servers,
      defaultsFor,
      section,
      configPath: host ? (isOverlaid ? overlaying : file) : null,
      profile,
      configScope: !isOverlaid ? 'relay' : isRoot ? 'global' : 'profile',
      fallbackToGlobal: profile !== null && (isRoot || !isOverlaid),
      runDir: ownRunDir ?? runDir,
      headersFor: (provider) =>
        extraHeaders([own, found?.section ?? {}].map((level) => nestedIn(level, provider, kind.canonical))),
      tuningFor: (provider) =>
        tuningIn(
          [own, found?.section ?? {}].map((level) => nestedIn(level, provider, kind.canonical)),
          (name) => warnOf(kind, overlaying ?? file)(`${provider}.${name}`),
        ),
      oauthPath: found && oauthPathIn(mappingOf(scope.content, 'realtime_voice')),
    };
  }

  /** An absolute path from a file, where `~/` is the home of the relay's user. */
  function absolute(value: unknown): string | undefined {
    const path = textOf(value)?.replace(/^~(?=\/)/, config.home);
    return path?.startsWith('/') ? path : undefined;
  }

  const oauthPathIn = (section: Mapping) => absolute(memberOf(section, ['xai_oauth_path', 'oauth_path']));

  const outputOf = (profile: string | null) =>
    effective(output, profile, (content, file) => {
      const section = mappingOf(content, 'voice_output');
      const isOwn = Object.keys(section).length > 0;
      const settings = isOwn ? readSettings(voiceOutput, section, warnOf(voiceOutput, file)) : undefined;
      return { settings: settings ?? readTtsSettings(content.tts), section };
    });

  const realtimeVoiceOf = <S extends StreamingSettings>(owned: RelayOwned<S>, profile: string | null) =>
    effective(owned, profile, (content, file) => {
      const section = mappingOf(content, 'realtime_voice');
      return { settings: readSettings(owned.kind, section, warnOf(owned.kind, file)), section };
    });
  const realtimeOf = (profile: string | null) => realtimeVoiceOf(realtime, profile);
  const agentOf = (profile: string | null) => realtimeVoiceOf(agent, profile);

  /** The file to write. */
  async function targetOf(profile: string | null, { file }: { file: string }): Promise<string> {
    if (profile === null) return file;
    const scope = await scopes.resolve(profile);
    const facts = scope.file === null ? null : await unlessUnreadable((host as Host).files.stat(scope.file));
    if (scope.file !== null && facts?.kind === 'file') return scope.file;
    throw new RelayError('not-found', `profile ${visibleName(profile)} has no configuration file`);
  }

  /**
   * Changes a section of the profile's file, or of the relay-owned one, at once (contract 05 §10, 06 §3.1).
   * @throws RelayError `invalid` for a bad body, `not-found` naming a profile without a file, `unsupported` without a
   * host, `internal` when the file cannot be parsed or written.
   */
  async function change<S extends StreamingSettings>(
    owned: RelayOwned<S>,
    profile: string | null,
    body: JsonObject,
    read: (profile: string | null) => Promise<Effective<S>>,
  ): Promise<Changed<S>> {
    const changes = checkChanges(owned.kind, body);
    if (!editor) throw new RelayError('unsupported', 'this relay runs without a host, so its voice settings are fixed');
    const configPath = await targetOf(profile, owned);
    await editor.edit(configPath, owned.kind.name, async (section) =>
      keysToWrite(owned.kind, changes, section, await read(profile)),
    );
    if (profile === null) for (const key of keysOf(owned.kind, changes)) owned.changed.add(key);
    return { effective: await read(profile), updated: [...changes.keys()].sort(), configPath };
  }

  async function basicOf(profile: string | null): Promise<BasicSections> {
    const { file, content } = await scopes.resolve(profile);
    const isOwn = file !== null && (isMapping(content.tts) || isMapping(content.stt));
    const root = file === null ? content : await scopes.root();
    const section = (name: 'tts' | 'stt') => mappingOf(isOwn && isMapping(content[name]) ? content : root, name);
    return {
      tts: section('tts'),
      stt: section('stt'),
      profile,
      configScope: isOwn ? 'profile' : 'global',
      configPath: isOwn ? file : null,
      fallbackToGlobal: profile !== null && !isOwn,
    };
  }

  return {
    basic: basicOf,
    output: outputOf,
    realtime: realtimeOf,
    /** Settings of the realtime agent, which shares its section with the lab (contract 06 §2.1). */
    agent: agentOf,
    changeOutput: (profile: string | null, body: JsonObject) => change(output, profile, body, outputOf),
    changeRealtime: (profile: string | null, body: JsonObject) => change(realtime, profile, body, realtimeOf),
    changeAgent: (profile: string | null, body: JsonObject) => change(agent, profile, body, agentOf),

    /** The configured token store of xAI. */
    async oauthPath(): Promise<string> {
      const configured = config.realtimeVoiceXaiOauthPath;
      if (configured !== `${config.relayHome}/auth/xai-oauth.json`) return configured;
      return oauthPathIn(mappingOf(await scopes.read(realtime.file), 'realtime_voice')) ?? configured;
    },
  };
}

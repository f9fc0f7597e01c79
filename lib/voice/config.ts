import type { Config } from '../config.ts';
import { RelayError } from '../errors.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import type { JsonObject } from '../kit/json.ts';
import { visibleName } from '../kit/text.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';
import { createConfigEditor } from './config-edit.ts';
import type { VoiceScopes } from './scope.ts';
import { mappingOf, memberOf, readSection, textOf } from './section.ts';
import {
  checkChanges,
  keysOf,
  keysToWrite,
  type OutputSettings,
  overlay,
  type RealtimeSettings,
  readEnvironment,
  readSettings,
  readTtsSettings,
  realtimeVoice,
  type SectionKind,
  type StreamingSettings,
  voiceOutput,
} from './settings.ts';

/** Settings of the streaming path for one request, and where they are from (contract 05 §4). */
export interface Effective<S extends StreamingSettings> {
  settings: S;
  /** The section as files have it, with every key, such as those of the realtime agent. Never for clients. */
  section: Mapping;
  /** The profile's file if it supplied values, else the relay-owned one; null without a host (edge). */
  configPath: string | null;
  /** The name that the client gave. */
  profile: string | null;
  configScope: 'relay' | 'profile';
  fallbackToGlobal: boolean;
  /** Directory of event logs and recordings. */
  runDir: string;
  /** The token store of xAI that the profile names instead of the configured one. */
  oauthPath?: string;
}

/** The sections of the basic path for one request, and where they are from (contract 05 §4, §5). */
export interface BasicSections {
  tts: Mapping;
  stt: Mapping;
  profile: string | null;
  configScope: 'global' | 'profile';
  /** The profile's file; null when the scope is global. */
  configPath: string | null;
  fallbackToGlobal: boolean;
}

/** The result of a `PATCH`. */
export interface Changed<S extends StreamingSettings> {
  effective: Effective<S>;
  /** Names of the settings that the client gave, sorted. */
  updated: string[];
  /** The file that was written. */
  configPath: string;
}

/** Configuration of voice: `tts:`, `stt:`, `voice_output:` and `realtime_voice:` (contract 05 §4). Read on each use. */
export interface VoiceConfig {
  basic(profile: string | null): Promise<BasicSections>;
  output(profile: string | null): Promise<Effective<OutputSettings>>;
  realtime(profile: string | null): Promise<Effective<RealtimeSettings>>;
  /**
   * Changes a section of the profile's file, or of the relay-owned one, at once (contract 05 §10).
   * @throws RelayError `invalid` for a bad body, `not-found` naming a profile without a file, `unsupported` without a
   * host, `internal` when the file cannot be parsed or written.
   */
  changeOutput(profile: string | null, body: JsonObject): Promise<Changed<OutputSettings>>;
  changeRealtime(profile: string | null, body: JsonObject): Promise<Changed<RealtimeSettings>>;
  /** The configured token store of xAI. */
  oauthPath(): Promise<string>;
}

export interface VoiceConfigParts {
  /** Absent at the edge. */
  host?: Host;
  config: Config;
  scopes: VoiceScopes;
}

export function createVoiceConfig({ host, config, scopes }: VoiceConfigParts): VoiceConfig {
  const editor = host && createConfigEditor(host);
  const output = relayOwned(voiceOutput, config.voiceOutputConfig, config.voiceOutputRunDir);
  const realtime = relayOwned(realtimeVoice, config.realtimeVoiceConfig, config.realtimeVoiceRunDir);

  /** One section of the relay's own file, with the variables that override it. */
  function relayOwned<S extends StreamingSettings>(kind: SectionKind<S>, file: string, runDir: string) {
    const environment = readEnvironment(kind, config);
    const defaultRunDir = `${config.relayHome}/${kind.name.replace('_', '-')}-runs`;
    /** Settings that a `PATCH` of this process changed: for these, the file comes before the variables. */
    const changed = new Set<string>();
    return { kind, file, environment, changed, runDir, defaultRunDir };
  }
  type RelayOwned<S extends StreamingSettings> = ReturnType<typeof relayOwned<S>>;

  async function effective<S extends StreamingSettings>(
    { kind, file, environment, changed, runDir, defaultRunDir }: RelayOwned<S>,
    profile: string | null,
    settingsOf: (content: Mapping) => { settings: Partial<S>; section: Mapping },
  ): Promise<Effective<S>> {
    const own = mappingOf(await scopes.read(file), kind.name);
    const written = readSettings(kind, own);
    const patched = Object.fromEntries(Object.entries(written).filter(([key]) => changed.has(key))) as Partial<S>;
    const relay = [written, environment, patched].reduce<S>(overlay, kind.defaults);
    const scope = await scopes.resolve(profile);
    const found = scope.file === null ? undefined : settingsOf(scope.content);
    const isOverlaid = found !== undefined && Object.keys(found.settings).length > 0;
    const section = { ...readSection(own, kind.canonical), ...(found && readSection(found.section, kind.canonical)) };
    const ownRunDir = runDir === defaultRunDir ? absolute(section.run_dir) : undefined;
    return {
      settings: isOverlaid ? overlay(relay, found.settings) : relay,
      section,
      configPath: host ? (isOverlaid ? scope.file : file) : null,
      profile,
      configScope: isOverlaid ? 'profile' : 'relay',
      fallbackToGlobal: profile !== null && !isOverlaid,
      runDir: ownRunDir ?? runDir,
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
    effective(output, profile, (content) => {
      const section = mappingOf(content, 'voice_output');
      if (Object.keys(section).length > 0) return { settings: readSettings(voiceOutput, section), section };
      return { settings: readTtsSettings(content.tts), section };
    });

  const realtimeOf = (profile: string | null) =>
    effective(realtime, profile, (content) => {
      const section = mappingOf(content, 'realtime_voice');
      return { settings: readSettings(realtimeVoice, section), section };
    });

  /** The file to write. */
  async function targetOf(profile: string | null, { file }: { file: string }): Promise<string> {
    if (profile === null) return file;
    const scope = await scopes.resolve(profile);
    const facts = scope.file === null ? null : await unlessUnreadable((host as Host).files.stat(scope.file));
    if (scope.file !== null && facts?.kind === 'file') return scope.file;
    throw new RelayError('not-found', `profile ${visibleName(profile)} has no configuration file`);
  }

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
      keysToWrite(owned.kind, changes, section, (await read(profile)).settings),
    );
    if (profile === null) for (const key of keysOf(owned.kind, changes)) owned.changed.add(key);
    return { effective: await read(profile), updated: [...changes.keys()].sort(), configPath };
  }

  return {
    output: outputOf,
    realtime: realtimeOf,
    changeOutput: (profile, body) => change(output, profile, body, outputOf),
    changeRealtime: (profile, body) => change(realtime, profile, body, realtimeOf),

    async oauthPath() {
      const configured = config.realtimeVoiceXaiOauthPath;
      if (configured !== `${config.relayHome}/auth/xai-oauth.json`) return configured;
      return oauthPathIn(mappingOf(await scopes.read(realtime.file), 'realtime_voice')) ?? configured;
    },

    async basic(profile) {
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
    },
  };
}

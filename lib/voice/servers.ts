import { RelayError } from '../errors.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';
import { isOwners, type StreamingProvider } from './registry.ts';
import { basicProvider, basicSection, mappingOf, nestedIn, numberOf, readSectionFor, textOf } from './section.ts';

/** The sections with keys, base URLs and further settings of providers (contract 05 §18). Never for clients. */
export interface ServerSections {
  /** `tts:`, for renderers. */
  tts?: Mapping;
  /** `realtime:`, which has a mapping for each realtime provider. */
  realtime?: Mapping;
}

const MAX_ARGUMENTS = 64;
const MAX_ARGUMENT = 4096;
/** Seconds of `timeout` (contract 05 §8). */
const MIN_TIMEOUT = 5;
const MAX_TIMEOUT = 600;

/**
 * The `realtime:` mapping of two layers. A server set by the upper layer does not get the key of the lower one, which
 * belongs to another server.
 */
export function overlaidServers(below: Mapping, above: unknown): Mapping {
  const layers = [below, isMapping(above) ? above : {}];
  const names = new Set(layers.flatMap(Object.keys).map(basicProvider));
  return Object.fromEntries(
    [...names].map((name) => {
      const [lower = {}, upper = {}] = layers.map((layer) => nestedIn(layer, name, basicProvider));
      return [name, textOf(upper.base_url) === undefined ? { ...lower, ...upper } : upper];
    }),
  );
}

/** The settings of a streaming provider in these sections: `tts.openai` for `openai_tts`, and so on. */
export function serverSettings(provider: string, { tts = {}, realtime = {} }: ServerSections): Mapping {
  const [name = '', kind] = provider.split('_');
  if (kind === 'realtime') return nestedIn(realtime, name, basicProvider);
  return kind === 'tts' ? readSectionFor(basicSection(tts), name) : {};
}

/** Default model and voice of a provider: those of its section, else its own defaults. */
export function serverDefaults(provider: StreamingProvider, sections: ServerSections) {
  const { info, defaultModel, defaultVoice } = provider;
  const own = serverSettings(info.id, sections);
  const isProgram = info.id === 'local_tts' && own.command !== undefined;
  return {
    model: textOf(own.model) ?? textOf(own.model_id) ?? (isProgram ? PROGRAM_MODEL : defaultModel),
    voice: textOf(own.voice) ?? textOf(own.voice_id) ?? (isProgram ? PROGRAM_VOICE : defaultVoice),
  };
}

/** A provider with its configured lists, if it is the owner's own, since those are private. */
export function withOwn(provider: StreamingProvider, sections: ServerSections): StreamingProvider {
  if (!isOwners(provider)) return provider;
  const { model, voice } = serverDefaults(provider, sections);
  return {
    ...provider,
    info: { ...provider.info, models: [model], voices: [voice] },
    defaultModel: model,
    defaultVoice: voice,
  };
}

/** Shown for a program without a configured model. */
export const PROGRAM_MODEL = 'command';
export const PROGRAM_VOICE = 'default';

/** True if the owner's own server or program is configured for a use. */
export const isConfigured = (provider: string, sections: ServerSections): boolean => {
  const own = serverSettings(provider, sections);
  return textOf(own.base_url) !== undefined || own.command !== undefined;
};

/** The program of `tts.local` or `stt.local` and its arguments, placeholders not filled in (contract 05 §18). */
export function commandOf(kind: 'tts' | 'stt', section: Mapping): string[] | undefined {
  const { command, base_url: url } = mappingOf(section, 'local');
  if (command === undefined || command === null) return undefined;
  const name = `${kind}.local`;
  if (textOf(url) !== undefined) throw refusal(`${name} has both base_url and command: keep one of them`);
  const parts = Array.isArray(command) && command.every(isPlain) ? command.map(String) : [];
  const isUsable = parts[0]?.trim() && parts.length <= MAX_ARGUMENTS && parts.every(isArgument);
  if (!isUsable) throw refusal(`${name}.command must be a list of a program and its arguments`);
  return parts;
}

const refusal = (problem: string) => new RelayError('internal', problem, { extra: { provider: 'local' } });

const isPlain = (value: unknown): boolean => ['string', 'number'].includes(typeof value);

const isArgument = (text: string): boolean => text.length <= MAX_ARGUMENT && !text.includes('\0');

/** Milliseconds from `timeout` (seconds) in a provider's settings; undefined without one. */
export function timeoutOf({ timeout }: Mapping): number | undefined {
  const seconds = numberOf(timeout);
  return seconds === undefined ? undefined : Math.min(Math.max(seconds, MIN_TIMEOUT), MAX_TIMEOUT) * 1000;
}

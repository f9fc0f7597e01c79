import { agentRoot, type Config } from '../../config.ts';
import { RelayError } from '../../errors.ts';
import { unlessUnreadable } from '../../host/errors.ts';
import type { Host } from '../../host/index.ts';
import { createByteBuffer } from '../../kit/byte-buffer.ts';
import { isObject, type JsonObject } from '../../kit/json.ts';
import type { Mapping } from '../../kit/yaml.ts';
import type { Log } from '../../log.ts';
import type { DenyList } from '../../media/deny-list.ts';
import { NO_PROGRAMS } from '../command.ts';
import type { VoiceConfig } from '../config.ts';
import type { Credential, VoiceCredentials } from '../credentials.ts';
import { MAX_ID, MAX_TEXT } from '../limits.ts';
import { booleanOf, textOf } from '../section.ts';
import { PROGRAM_MODEL, PROGRAM_VOICE, timeoutOf } from '../servers.ts';
import { speakByCommand } from '../speech-command.ts';
import { type CallDeps, callProvider, providerFailure, withProvider } from './call.ts';
import { chooseTts, type LocalChoice } from './choice.ts';
import { sanitize } from './sanitize.ts';
import { sectionOf, settingsFor } from './section-of.ts';
import { splitText } from './split.ts';
import { audioIn, maxTextOf, programSpeed, type Speech, ttsRequest } from './tts.ts';

/** Milliseconds for all requests of one text. */
const TIMEOUT = 60_000;
/** Bytes of one reply, and of the audio of one text. */
const MAX_AUDIO = 16 * 1024 * 1024;
/** Maximum bytes of a program's speech, which may be uncompressed. */
const MAX_PROGRAM_AUDIO = 64 * 1024 * 1024;
const MAX_PERSONA = 4000;
const MAX_PERSONA_FILE = 64 * 1024;

/** A body of `POST /voice/synthesize`, checked. */
export interface SynthesizeRequest {
  /** Sanitised. */
  text: string;
  profile: string | null;
  overrides: Overrides;
}

/** Choices of a client for one text. */
export interface Overrides {
  provider?: 'gemini' | 'xai';
  voice?: string;
  model?: string;
  language?: string;
  audioTags?: boolean;
  persona?: string;
}

/** @throws RelayError `invalid` per contract 05 §7. */
export function parseSynthesize(body: JsonObject, profile: string | null): SynthesizeRequest {
  if (typeof body.text !== 'string') throw new RelayError('invalid', 'text must be a string');
  const text = body.text.toWellFormed().trim();
  if (text === '') throw new RelayError('invalid', 'text is empty');
  // A character has one or two code units, so most texts need no counting.
  if (text.length > MAX_TEXT && [...text].length > MAX_TEXT) {
    throw new RelayError('invalid', `text is longer than ${MAX_TEXT} characters`);
  }
  const spoken = sanitize(text);
  if (spoken === '') throw new RelayError('invalid', 'text is empty after sanitizing: it has nothing to speak');
  return { text: spoken, profile, overrides: parseOverrides(body) };
}

/** The overrides at the top level, unless those in `enhanced` or `gemini` replace them. */
function parseOverrides(body: JsonObject): Overrides {
  const from = isObject(body.enhanced) ? body.enhanced : isObject(body.gemini) ? body.gemini : body;
  const provider = textOf(from.provider)?.toLowerCase();
  return {
    provider: provider === 'gemini' || provider === 'xai' ? provider : undefined,
    voice: idOf(from, 'voice'),
    model: idOf(from, 'model'),
    language: idOf(from, 'language'),
    audioTags: booleanOf(from.audio_tags),
    persona: textOf(from.persona_prompt) ?? textOf(from.style) ?? textOf(from.persona),
  };
}

function idOf(from: JsonObject, name: string): string | undefined {
  const id = textOf(from[name]);
  if (id !== undefined && id.length > MAX_ID)
    throw new RelayError('invalid', `${name} is longer than ${MAX_ID} characters`);
  return id;
}

export interface SynthesizeDeps extends CallDeps {
  host?: Host;
  config: Pick<Config, 'agentConfig'>;
  /** True if a real path is in a location of secrets. Absent at the edge. */
  isSecret?: DenyList;
  log: Log;
  credentials: VoiceCredentials;
  settings: Pick<VoiceConfig, 'basic'>;
}

/**
 * Speaks a text with the provider of its profile; the result is MP3. A long text takes several requests, one after the
 * other.
 * @throws RelayError `internal`, with `provider` if one was chosen; the reason of the signal once it aborts.
 */
export async function synthesize(
  deps: SynthesizeDeps,
  { text, profile, overrides }: SynthesizeRequest,
  signal: AbortSignal,
): Promise<{ audio: Uint8Array<ArrayBuffer>; provider: string }> {
  const { section, file } = await sectionOf(deps.settings, 'tts', profile);
  if (booleanOf(section.enabled) === false)
    throw new RelayError('internal', 'speech is disabled: tts.enabled is false');
  const choice = await chooseTts(deps.credentials, section, deps.host !== undefined, overrides.provider);
  const { provider } = choice;
  const settings = overridden(provider, settingsFor(section, provider), overrides);
  const timeout = timeoutOf(settings) ?? TIMEOUT;
  if ('command' in choice) {
    const { command } = choice;
    const speak = (bounded: AbortSignal) => spokenByCommand(deps, { command, text, settings, section }, bounded);
    return { audio: await withProvider(deps, { provider, timeout, signal }, speak), provider };
  }
  const { key } = choice;
  const persona = provider === 'gemini' ? await personaOf(deps, settings, file) : undefined;
  const pieces = splitText(text, maxTextOf(provider)).filter((piece) => piece.trim() !== '');
  const speak = (piece: string) => ({ text: piece, settings, section, persona });
  const audio = await withProvider(deps, { provider, timeout, signal }, async (bounded) => {
    const spoken = createByteBuffer(MAX_AUDIO);
    for (const piece of pieces) {
      if (!spoken.push(await spokenBy(deps, { provider, key, speech: speak(piece), signal: bounded }))) {
        throw providerFailure(`${provider} sent more than ${MAX_AUDIO / 1024 / 1024} MiB`);
      }
    }
    return spoken.bytes();
  });
  return { audio, provider };
}

interface OneRequest {
  provider: string;
  key: Credential;
  speech: Speech;
  signal: AbortSignal;
}

async function spokenBy({ upstream }: SynthesizeDeps, { provider, key, speech, signal }: OneRequest) {
  const reply = await callProvider(upstream, ttsRequest(provider, speech, key), { provider, limit: MAX_AUDIO, signal });
  return audioIn(provider, reply, speech, signal);
}

/** Has a program of this host speak. Returns MP3. */
async function spokenByCommand(
  { host }: SynthesizeDeps,
  { command, text, settings, section }: Omit<Speech, 'persona'> & Pick<LocalChoice, 'command'>,
  signal: AbortSignal,
) {
  if (!host) throw providerFailure(NO_PROGRAMS);
  const speech = {
    command,
    text,
    voice: textOf(settings.voice) ?? textOf(settings.voice_id) ?? PROGRAM_VOICE,
    model: textOf(settings.model) ?? PROGRAM_MODEL,
    language: textOf(settings.language) ?? textOf(section.language) ?? '',
    speed: programSpeed({ settings, section }),
  };
  const spoken = createByteBuffer(MAX_PROGRAM_AUDIO);
  for await (const bytes of speakByCommand(host, speech, signal)) spoken.push(bytes);
  const audio = await audioIn('local', { contentType: '', bytes: spoken.bytes() }, { settings }, signal);
  if (audio.length > MAX_AUDIO) throw providerFailure(`local spoke more than ${MAX_AUDIO / 1024 / 1024} MiB`);
  return Uint8Array.from(audio);
}

/** The settings with the overrides that the provider accepts. None of them can name a server. */
function overridden(provider: string, settings: Mapping, overrides: Overrides): Mapping {
  const { voice, model, language, audioTags, persona } = overrides;
  const chosen: Mapping =
    provider === 'gemini'
      ? { voice, model, audio_tags: audioTags, persona_prompt: persona }
      : provider === 'xai'
        ? { voice, auto_speech_tags: audioTags, language }
        : {};
  return { ...settings, ...Object.fromEntries(Object.entries(chosen).filter(([, value]) => value !== undefined)) };
}

/**
 * The direction for Gemini: from the request, else the configuration, else the configured file. Its content goes to the
 * provider, so a file of secrets is not read.
 */
async function personaOf(
  { host, config, isSecret, log }: SynthesizeDeps,
  settings: Mapping,
  configFile: string | null,
): Promise<string | undefined> {
  const cut = (text: string | null | undefined) => textOf(text)?.slice(0, MAX_PERSONA).toWellFormed();
  const own = cut(textOf(settings.persona_prompt));
  const file = textOf(settings.persona_prompt_file);
  if (own !== undefined || file === undefined || !host) return own;
  const directory = configFile === null ? agentRoot(config) : configFile.slice(0, configFile.lastIndexOf('/'));
  const path = file.startsWith('/') ? file : `${directory}/${file}`;
  const real = await unlessUnreadable(host.files.realPath(path));
  const isReadable = real !== null && (await isSecret?.(real)) !== true;
  const text = isReadable ? await unlessUnreadable(host.files.readText(real, MAX_PERSONA_FILE)) : null;
  if (text === null) log.warn('the file that tts.gemini.persona_prompt_file names cannot be read');
  return cut(text);
}

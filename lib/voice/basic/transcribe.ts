import { RelayError } from '../../errors.ts';
import type { Host } from '../../host/index.ts';
import type { Mapping } from '../../kit/yaml.ts';
import { NO_PROGRAMS } from '../command.ts';
import type { VoiceConfig } from '../config.ts';
import type { Credential, VoiceCredentials } from '../credentials.ts';
import { booleanOf, mappingOf, textOf } from '../section.ts';
import { timeoutOf } from '../servers.ts';
import { type CallDeps, callProvider, ProviderRefusal, withProvider } from './call.ts';
import { chooseStt, type LocalChoice } from './choice.ts';
import type { Clip } from './clips.ts';
import { runLocalCommand } from './local-command.ts';
import { sectionOf, settingsFor } from './section-of.ts';
import { otherBase, sttRequest, sttTimeout, transcriptIn } from './stt.ts';

const LOCAL_TIMEOUT = 300_000;
const MAX_REPLY = 1024 * 1024;

export interface TranscribeDeps extends CallDeps {
  host?: Host;
  credentials: VoiceCredentials;
  settings: Pick<VoiceConfig, 'basic'>;
}

export interface Transcript {
  /** Trimmed; empty for silence. */
  text: string;
  provider: string;
}

/**
 * Transcribes a clip with the provider of a profile.
 * @throws RelayError `internal`, with `provider` if one was chosen; the reason of the signal once it aborts.
 */
export async function transcribe(
  deps: TranscribeDeps,
  clip: Clip,
  profile: string | null,
  signal: AbortSignal,
): Promise<Transcript> {
  const { section } = await sectionOf(deps.settings, 'stt', profile);
  if (booleanOf(section.enabled) === false) {
    throw new RelayError('internal', 'transcription is disabled: stt.enabled is false');
  }
  const choice = await chooseStt(deps.credentials, section, deps.host !== undefined);
  const language = languageOf(deps.credentials, section, choice.provider);
  if ('command' in choice) return runLocally(deps, { choice, clip, section, language, signal });

  const { provider, key } = choice;
  const settings = { settings: settingsFor(section, provider), section, language };
  const bounds = { provider, timeout: sttTimeout(provider, settings, key), signal };
  const text = await withProvider(deps, bounds, async (bounded) => {
    const limits = { provider, limit: MAX_REPLY, signal: bounded };
    const call = (at: Credential) => callProvider(deps.upstream, sttRequest(provider, clip, settings, at), limits);
    const other = otherBase(provider, key);
    const reply = await call(key).catch((error) => {
      if (other && error instanceof ProviderRefusal && error.status === 404) return call(other);
      throw error;
    });
    return transcriptIn(provider, reply);
  });
  return { text, provider };
}

/** The most specific language hint for the provider (contract 05 §8). */
function languageOf(credentials: VoiceCredentials, section: Mapping, provider: string): string | undefined {
  const own = mappingOf(section, provider);
  const code = provider === 'elevenlabs' ? textOf(own.language_code) : undefined;
  return textOf(own.language) ?? code ?? textOf(section.language) ?? credentials.variable('SVC_LOCAL_STT_LANGUAGE');
}

interface LocalRun {
  choice: LocalChoice;
  clip: Clip;
  section: Mapping;
  language: string | undefined;
  signal: AbortSignal;
}

async function runLocally(deps: TranscribeDeps, { choice, clip, section, language, signal }: LocalRun) {
  const { provider, command, name } = choice;
  const { host } = deps;
  const { files } = clip;
  if (!host || !files) throw new RelayError('internal', NO_PROGRAMS, { extra: { provider } });
  const own = { ...mappingOf(section, 'local'), ...(provider === 'local_command' && mappingOf(section, provider)) };
  const facts = {
    language: language ?? textOf(own.language) ?? '',
    model: textOf(own.model) ?? textOf(section.model) ?? 'base',
  };
  const bounds = { provider, timeout: timeoutOf(own) ?? LOCAL_TIMEOUT, signal };
  const text = await withProvider(deps, bounds, (bounded) =>
    runLocalCommand(host, { command, name, clip, files, ...facts, signal: bounded }),
  );
  return { text, provider };
}

import { RelayError } from '../../errors.ts';
import type { Mapping } from '../../kit/yaml.ts';
import { NO_PROGRAMS } from '../command.ts';
import type { Credential, VoiceCredentials } from '../credentials.ts';
import { mappingOf, textOf } from '../section.ts';
import { commandOf } from '../servers.ts';
import { wordsOf } from './local-command.ts';
import { isSttProvider, STT_ORDER } from './stt.ts';
import { isTtsProvider, TTS_ORDER } from './tts.ts';

/** The provider of a call, and its key. */
export interface Choice {
  provider: string;
  key: Credential;
}

/** A program of this host that speaks or transcribes. */
export interface LocalChoice {
  provider: 'local' | 'local_command';
  /** The program and its arguments, with placeholders. */
  command: readonly string[];
  /** Where it is configured, for errors. */
  name: string;
}

const LOCAL_COMMAND = 'SVC_LOCAL_STT_COMMAND';

const noKey = (hint: string, provider?: string): RelayError =>
  new RelayError('internal', `no API key available: ${hint}`, provider ? { extra: { provider } } : {});

/**
 * The provider that speaks: the named one and no other, else the first with a key (contract 05 §7). A server that needs no
 * key has to be named (§18).
 * @throws RelayError `internal` naming the problem.
 */
export async function chooseTts(
  credentials: Pick<VoiceCredentials, 'basic'>,
  section: Mapping,
  hasHost: boolean,
  override?: string,
): Promise<Choice | LocalChoice> {
  const named = override ?? textOf(section.provider);
  const program = named === 'local' ? programOf('tts', section, hasHost) : undefined;
  if (program) return program;
  return named === undefined
    ? firstChoice(credentials, 'tts', section)
    : namedChoice(credentials, 'tts', section, named);
}

/**
 * The provider that transcribes: the named one and no other, else the local command, else the first with a key (contract 05
 * §6). A server that needs no key has to be named (§18). Without a host there is no local command.
 * @throws RelayError `internal` naming the problem.
 */
export async function chooseStt(
  credentials: Pick<VoiceCredentials, 'basic' | 'variable'>,
  section: Mapping,
  hasHost: boolean,
): Promise<Choice | LocalChoice> {
  const named = textOf(section.provider);
  const template = hasHost ? credentials.variable(LOCAL_COMMAND) : undefined;
  const program = named === 'local' ? programOf('stt', section, hasHost) : undefined;
  if (program) return program;
  // In earlier versions, `local` meant the command of the variable.
  const isServer = named === 'local' && (textOf(mappingOf(section, 'local').base_url) ?? textOf(section.base_url));
  if (named === 'local_command' || (named === 'local' && !isServer && template !== undefined)) {
    if (template === undefined) throw noKey(`${LOCAL_COMMAND} is not set`, 'local_command');
    return templateChoice(template);
  }
  if (named !== undefined) return namedChoice(credentials, 'stt', section, named);
  return template === undefined ? firstChoice(credentials, 'stt', section) : templateChoice(template);
}

const templateChoice = (template: string): LocalChoice => ({
  provider: 'local_command',
  command: wordsOf(template),
  name: LOCAL_COMMAND,
});

/** The program that the section configures for `local`. Without a host there are no programs. */
function programOf(kind: Kind, section: Mapping, hasHost: boolean): LocalChoice | undefined {
  const command = commandOf(kind, section);
  if (!command) return undefined;
  if (!hasHost) throw new RelayError('internal', NO_PROGRAMS, { extra: { provider: 'local' } });
  return { provider: 'local', command, name: `${kind}.local.command` };
}

type Kind = 'tts' | 'stt';

async function firstChoice(
  credentials: Pick<VoiceCredentials, 'basic'>,
  kind: Kind,
  section: Mapping,
): Promise<Choice> {
  for (const provider of kind === 'tts' ? TTS_ORDER : STT_ORDER) {
    const key = await credentials.basic(kind, provider, section);
    if (key?.secret) return { provider, key };
  }
  throw noKey(`set the key of a provider that ${kind === 'tts' ? 'speaks' : 'transcribes'}`);
}

async function namedChoice(
  credentials: Pick<VoiceCredentials, 'basic'>,
  kind: Kind,
  section: Mapping,
  named: string,
): Promise<Choice> {
  const shown = named.slice(0, 40);
  const isKnown = kind === 'tts' ? isTtsProvider(named) : isSttProvider(named);
  if (!isKnown) throw noKey(`${kind}.provider names ${shown}, which this relay does not know`);
  const key = await credentials.basic(kind, named, section);
  if (!key && named === 'local') throw noKey(`${kind}.local needs a base_url, with an api_key if it is public`, named);
  if (!key) throw noKey(`${named} has none`, named);
  return { provider: named, key };
}

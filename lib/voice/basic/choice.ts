import { RelayError } from '../../errors.ts';
import type { Mapping } from '../../kit/yaml.ts';
import type { Credential, VoiceCredentials } from '../credentials.ts';
import { textOf } from '../section.ts';
import { isSttProvider, STT_ORDER } from './stt.ts';
import { isTtsProvider, TTS_ORDER } from './tts.ts';

/** The provider of a call, and the key that it is called with. */
export interface Choice {
  provider: string;
  key: Credential;
}

/** A program of this host that transcribes. */
export interface LocalChoice {
  provider: 'local_command';
  template: string;
}

const LOCAL_COMMAND = 'SVC_LOCAL_STT_COMMAND';

const noKey = (hint: string, provider?: string): RelayError =>
  new RelayError('internal', `no API key available: ${hint}`, provider ? { extra: { provider } } : {});

/**
 * The provider that speaks: the one that is named, never another, else the first with a key (contract 05 §7). A server that
 * needs no key has to be named (§18).
 * @throws RelayError `internal` naming the problem.
 */
export async function chooseTts(
  credentials: Pick<VoiceCredentials, 'basic'>,
  section: Mapping,
  override?: string,
): Promise<Choice> {
  const named = override ?? textOf(section.provider);
  if (named !== undefined) return namedChoice(credentials, { kind: 'tts', section, named, isKnown: isTtsProvider });
  for (const provider of TTS_ORDER) {
    const key = await credentials.basic('tts', provider, section);
    if (key?.secret) return { provider, key };
  }
  throw noKey('set the key of a provider that speaks');
}

/**
 * The provider that transcribes: the one that is named, never another, else the local command, else the first with a key
 * (contract 05 §6). A server that needs no key has to be named (§18). Without a host there is no local command.
 * @throws RelayError `internal` naming the problem.
 */
export async function chooseStt(
  credentials: Pick<VoiceCredentials, 'basic' | 'variable'>,
  section: Mapping,
  hasHost: boolean,
): Promise<Choice | LocalChoice> {
  const named = textOf(section.provider);
  const template = hasHost ? credentials.variable(LOCAL_COMMAND) : undefined;
  if (named === 'local' || named === 'local_command') {
    if (template === undefined) throw noKey(`${LOCAL_COMMAND} is not set`, 'local_command');
    return { provider: 'local_command', template };
  }
  if (named !== undefined) return namedChoice(credentials, { kind: 'stt', section, named, isKnown: isSttProvider });
  if (template !== undefined) return { provider: 'local_command', template };
  for (const provider of STT_ORDER) {
    const key = await credentials.basic('stt', provider, section);
    if (key?.secret) return { provider, key };
  }
  throw noKey('set the key of a provider that transcribes');
}

interface Named {
  kind: 'tts' | 'stt';
  section: Mapping;
  named: string;
  isKnown(name: string): boolean;
}

async function namedChoice(
  credentials: Pick<VoiceCredentials, 'basic'>,
  { kind, section, named, isKnown }: Named,
): Promise<Choice> {
  const shown = named.slice(0, 40);
  if (!isKnown(named)) throw noKey(`${kind}.provider names ${shown}, which this relay does not know`);
  const key = await credentials.basic(kind, named, section);
  if (!key) throw noKey(`${named} has none`, named);
  return { provider: named, key };
}

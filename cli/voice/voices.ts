import type { Command } from 'cac';
import { asObject } from '../../lib/kit/json.ts';
import { keepAlive } from '../keep-alive.ts';
import { asText, flag, type Options, option } from '../options.ts';
import {
  aligned,
  type CommandContext,
  CommandError,
  createStyle,
  line,
  printable,
  printableText,
  printableTexts,
  printJson,
  UsageError,
} from '../output.ts';
import { RELAY_OPTION } from '../remote-relay.ts';
import { findPlayer, INSTALL_PLAYER, type Player } from './player.ts';
import { profileOption, type VoiceRelay, withVoiceRelay } from './relay.ts';
import { asSpeed, speak } from './speech.ts';

/** Maximum voices that are played without naming them, since a provider may charge for each. */
const MAX_PLAYED = 12;
/** Maximum voices of one provider that are shown. */
const MAX_SHOWN = 40;
const STUB = 'stub';

/** The voices of one provider. A type, so that it is a JSON value. */
type ProviderVoices = {
  id: string;
  /** True if the settings choose this provider. */
  is_chosen: boolean;
  models: string[];
  languages: string[];
  voices: { id: string; label: string | null; is_chosen: boolean }[];
  /** Source of the lists, and why they may be incomplete. */
  status: string;
  message: string | null;
};

/** `svc voice voices`: the voices of each provider, and how they sound. */
export function define(command: Command): void {
  command
    .option('--provider <id>', 'the voices of this provider only, such as local or openai_tts')
    .option('--play', 'play a sentence with each voice that is named, or with the first of the chosen provider')
    .option('--text <text>', 'the sentence to play')
    .option('--language <code>', 'the language of the sentence')
    .option('--speed <factor>', 'how fast it is spoken, 0.25 to 4; 1 is normal')
    .option('--profile <name>', "use the voice settings of one of the agent's profiles")
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} voices`)
    .example((name) => `${name} voices --provider local`)
    .example((name) => `${name} voices nova coral --provider openai_tts --play`)
    .example((name) => `${name} voices de --play --text "Guten Tag" --language de`)
    .action(run);
}

async function run(ids: string[], options: Options, context: CommandContext): Promise<void> {
  const profile = profileOption(options);
  const named = option(options, '--provider', asText)?.trim();
  const isPlaying = flag(options, '--play');
  if (!isPlaying && ids.length > 0) throw new UsageError('voices are named with --play only');
  const player = isPlaying ? await findPlayer(context.env, INSTALL_PLAYER) : undefined;
  const providers = await withVoiceRelay(options, context, ['voice:tts'], async (relay) => {
    const found = await voicesOf(relay, profile, named);
    if (!flag(options, '--json') && !isPlaying) print(found, context);
    if (player) await playAll(relay, { found, ids, profile, player, options, context });
    return found;
  });
  if (flag(options, '--json')) printJson(context.stdout, { player: player?.name ?? null, providers }, 2);
}

/** The voices of the providers that the relay lists, or of the named one. */
async function voicesOf(relay: VoiceRelay, profile: string | undefined, named?: string): Promise<ProviderVoices[]> {
  const query = profile === undefined ? '' : `?profile=${encodeURIComponent(profile)}`;
  const get = (path: string) => relay.call({ method: 'GET', path: `/voice/output/${path}${query}` });
  const settings = await get('config');
  const listed = (Array.isArray(settings.providers) ? settings.providers : [])
    .map((each) => printableText(asObject(each)?.id))
    .filter((id) => id !== '' && id !== STUB);
  return Promise.all(
    (named === undefined ? listed : [named]).map(async (id): Promise<ProviderVoices> => {
      const answer = await get(`providers/${encodeURIComponent(id)}/options`);
      const provider = asObject(answer.provider) ?? {};
      const dynamic = asObject(answer.dynamic) ?? {};
      const labels = asObject(provider.voice_labels) ?? {};
      const isChosen = settings.provider === answer.provider_id;
      return {
        id: printableText(answer.provider_id),
        is_chosen: isChosen,
        models: printableTexts(provider.models),
        languages: printableTexts(provider.languages),
        voices: printableTexts(provider.voices).map((voice) => ({
          id: voice,
          label: printableText(labels[voice]) || null,
          is_chosen: isChosen && voice === settings.voice,
        })),
        status: printableText(dynamic.status),
        message: printableText(dynamic.message) || null,
      };
    }),
  );
}

interface Playing {
  found: readonly ProviderVoices[];
  ids: readonly string[];
  profile?: string;
  player: Player;
  options: Options;
  context: CommandContext;
}

/** Plays the named voices, else the first ones, of the named or the chosen provider. */
async function playAll(relay: VoiceRelay, { found, ids, profile, player, options, context }: Playing): Promise<void> {
  const provider = found.find((each) => each.is_chosen) ?? found[0];
  if (!provider) throw new CommandError('the relay lists no provider', 'See: svc voice doctor');
  const voices = ids.length > 0 ? [...ids] : provider.voices.slice(0, MAX_PLAYED).map(({ id }) => id);
  const left = provider.voices.length - voices.length;
  const isQuiet = flag(options, '--json');
  const stop = () => player.stop();
  relay.signal.addEventListener('abort', stop, { once: true });
  try {
    for (const voice of voices) {
      if (!isQuiet) line(context.stdout, `${provider.id}  ${printable(voice)}`);
      const request = {
        text: option(options, '--text', asText)?.trim() || `Hello, this is the voice ${voice.replace(/[_-]/g, ' ')}.`,
        profile,
        provider: provider.id,
        voice,
        language: option(options, '--language', asText),
        speed: option(options, '--speed', asSpeed),
      };
      try {
        await speak(relay, request, (part) => player.play(part));
        await keepAlive(player.finish());
      } finally {
        player.stop();
      }
    }
  } finally {
    relay.signal.removeEventListener('abort', stop);
  }
  if (!isQuiet && ids.length === 0 && left > 0) line(context.stdout, `${left} more: name those that you want to hear.`);
}

function print(found: readonly ProviderVoices[], context: CommandContext): void {
  const style = createStyle(context.stdout, context.env);
  for (const { id, is_chosen: isChosen, voices, status, message } of found) {
    const state = status === 'auth_missing' ? 'has no key' : (message ?? '');
    line(context.stdout, `${style.bold(id)}${isChosen ? ' (chosen)' : ''}${state && `: ${state}`}`);
    const rows = voices.slice(0, MAX_SHOWN).map((voice): [string, string] => {
      const label = voice.label === null || voice.label.toLowerCase() === voice.id.toLowerCase() ? '' : voice.label;
      return [voice.id, `${label}${voice.is_chosen ? ' (chosen)' : ''}`.trim()];
    });
    for (const text of aligned(rows)) line(context.stdout, text.trimEnd());
    if (voices.length > MAX_SHOWN) line(context.stdout, `  and ${voices.length - MAX_SHOWN} more: --json has them all`);
  }
}

import { readConfig } from '../../lib/config.ts';
import type { Host } from '../../lib/host/index.ts';
import { createNodeHost } from '../../lib/host/node/index.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { createLog } from '../../lib/log.ts';
import { type Check, fail, ok, warn } from '../../lib/operator/doctor/check.ts';
import { createVoiceConfig } from '../../lib/voice/config.ts';
import { createVoiceCredentials } from '../../lib/voice/credentials.ts';
import { discoverLocal, type Listed } from '../../lib/voice/discovery.ts';
import { type EffectivePath, effectivePaths, type VoicePath } from '../../lib/voice/effective.ts';
import { createOauthStore } from '../../lib/voice/oauth-store.ts';
import { askRealtime, askStt, askTts, type PathState, type ProbeDeps } from '../../lib/voice/own-servers.ts';
import { createVoiceScopes } from '../../lib/voice/scope.ts';
import { PROGRAM_VOICE } from '../../lib/voice/servers.ts';
import { loadEnvironment } from '../environment.ts';
import { type CommandContext, printable } from '../output.ts';
import { createProbe } from './probe.ts';

/** Provider of each path according to the files and variables of this machine. */
export type Paths = Record<VoicePath, EffectivePath>;

/** A path to check, and the location of its settings. */
interface Asked {
  id: VoicePath;
  path: EffectivePath;
  /** File that configures it, for advice. */
  file: string;
}

/** The settings as seen by this command. */
interface Seen {
  paths: Paths;
  /** The agent's root configuration. */
  agentConfig: string;
  /** Checks the owner's own server or program of a path. */
  ask(asked: Asked, signal: AbortSignal): Promise<Check>;
}

/**
 * Runs `use` with the targets of each path of a relay on this machine, according to the files and variables that this
 * command sees.
 */
export async function withPaths<T>(
  profile: string | undefined,
  context: CommandContext,
  use: (seen: Seen) => Promise<T>,
): Promise<T> {
  const environment = loadEnvironment(context.env);
  const { config } = readConfig(environment.env, environment.directories);
  const host = createNodeHost({ agentHome: config.agentHome, env: environment.env });
  try {
    const scopes = createVoiceScopes(host, config);
    const settings = createVoiceConfig({ host, config, scopes, log: createLog('ERROR', () => {}) });
    const oauth = createOauthStore({
      files: host.files,
      clock: systemClock,
      agentHome: config.agentHome,
      path: () => settings.oauthPath(),
    });
    const credentials = createVoiceCredentials({ env: environment.env, oauth });
    const paths = await effectivePaths({ config: settings, credentials }, profile ?? null);
    const ask = (asked: Asked, signal: AbortSignal) => examine(host, asked, signal);
    return await use({ paths, agentConfig: config.agentConfig, ask });
  } finally {
    await host.yaml.close();
  }
}

/** Checks the owner's own server or program of a path. One finding, with its cause and the remedy. */
async function examine(host: Host, { id, path, file }: Asked, signal: AbortSignal): Promise<Check> {
  const check = `${id} server`;
  const key = keyOf(id, path);
  if (path.command) {
    const [program = ''] = path.command;
    if ((await host.children.find(program)) !== null)
      return ok(check, `the program ${printable(program)} is installed`);
    const next = `Install it, or correct ${key}.command in ${file}.`;
    return fail(check, `the program ${printable(program)} was not found`, next);
  }
  const url = path.baseUrl ?? '';
  const probe = createProbe(signal);
  const ask = (at: string) => askPath(probe, id, at, path);
  const state = await ask(url);
  if (state.is === 'there' && !state.needsKey) return listed(probe, check, { id, path, file });
  if (state.is === 'missing') {
    const other = await elsewhere(url, id, ask);
    // The relay itself uses this path.
    if (other?.endsWith('/inference')) return ok(check, `${other} answers`);
    const next = other
      ? `Set ${key}.base_url in ${file} to ${other}`
      : `Check that it is a server for this, and that ${key}.base_url in ${file} is right; it usually ends in /v1.`;
    return fail(check, `${url} answers, and has no ${WORDS[id]}`, next);
  }
  return fail(check, ...trouble(state, { url, key, file, hasKey: path.secret !== '' }));
}

const WORDS: Readonly<Record<VoicePath, string>> = {
  speech: '/audio/speech',
  output: '/audio/speech',
  transcription: '/audio/transcriptions',
  realtime: '/realtime',
};

function askPath(probe: ProbeDeps, id: VoicePath, url: string, { secret, model }: EffectivePath): Promise<PathState> {
  if (id === 'transcription') return askStt(probe, url, secret);
  return id === 'realtime' ? askRealtime(probe, url, model ?? '', secret) : askTts(probe, url, secret);
}

/** The URL at which a server has the path that is missing at `url`. */
async function elsewhere(
  url: string,
  id: VoicePath,
  ask: (url: string) => Promise<PathState>,
): Promise<string | undefined> {
  const { origin } = new URL(url);
  const guesses = [`${url}/v1`, `${origin}/v1`, origin, ...(id === 'transcription' ? [`${origin}/inference`] : [])];
  for (const guess of new Set(guesses)) if (guess !== url && (await ask(guess)).is === 'there') return guess;
  return undefined;
}

/** The cause of a server problem, and the remedy. */
function trouble(
  state: Exclude<PathState, { is: 'missing' }>,
  { url, key, file, hasKey }: { url: string; key: string; file: string; hasKey: boolean },
): [summary: string, next: string] {
  if (state.is === 'unreachable') {
    return [`${url}: ${printable(state.reason)}`, `Start the server, or correct ${key}.base_url in ${file}.`];
  }
  if (state.is === 'failed') return [`${url} answers HTTP ${state.status}`, "See the server's own log."];
  return hasKey
    ? [`${url} refuses the key`, `Correct ${key}.api_key in ${file}.`]
    : [`${url} wants a key`, `Set ${key}.api_key in ${file}.`];
}

/** True if a server that answers has the model and the voice, as far as it lists them. */
async function listed(probe: ProbeDeps, check: string, { id, path, file }: Asked): Promise<Check> {
  const { baseUrl, secret, model, voice } = path;
  const url = baseUrl ?? '';
  const { models, voices } = await discoverLocal(probe, { secret, baseUrl: url, source: 'none' });
  const lacks = (items: readonly Listed[], wanted: string | null) =>
    wanted !== null && items.length > 0 && !items.some(({ id: each }) => each === wanted);
  const some = (items: readonly Listed[]) =>
    items
      .slice(0, 5)
      .map(({ id: each }) => printable(each))
      .join(', ');
  const key = keyOf(id, path);
  if (lacks(models, model)) {
    const next = `Set ${key}.model in ${file} to one that it has: ${some(models)}`;
    return warn(check, `${url} answers, and does not list the model ${printable(model ?? '')}`, next);
  }
  // A mixture such as `af_bella+af_sky` is a voice of Kokoro that is in no list.
  if (id !== 'transcription' && voice !== PROGRAM_VOICE && !voice?.includes('+') && lacks(voices, voice)) {
    const next = `Set ${key}.voice in ${file} to one that it has: ${some(voices)}`;
    return warn(check, `${url} answers, and does not list the voice ${printable(voice ?? '')}`, next);
  }
  return ok(check, `${url} answers`);
}

/** The mapping that configures a path. */
function keyOf(id: VoicePath, { provider }: EffectivePath): string {
  const name = (provider ?? 'local').replace(/_(?:tts|realtime|command)$/, '');
  return `${{ speech: 'tts', output: 'tts', transcription: 'stt', realtime: 'realtime' }[id]}.${name}`;
}

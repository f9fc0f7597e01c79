import { setMaxListeners } from 'node:events';
import type { Command } from 'cac';
import { type Config, readConfig } from '../../lib/config.ts';
import type { Host } from '../../lib/host/index.ts';
import { createNodeHost } from '../../lib/host/node/index.ts';
import { createLog } from '../../lib/log.ts';
import { createVoiceConfig } from '../../lib/voice/config.ts';
import { createConfigEditor } from '../../lib/voice/config-edit.ts';
import { type FoundServer, findAt, type ServerKind, USUAL_PORTS, usualUrl } from '../../lib/voice/own-servers.ts';
import { createVoiceScopes } from '../../lib/voice/scope.ts';
import { type LocalChoice, localChanges, realtimeChanges } from '../../lib/voice/setup.ts';
import { ask, confirm } from '../confirm.ts';
import { type Environment, loadEnvironment } from '../environment.ts';
import { keepAlive } from '../keep-alive.ts';
import { asHttpUrl, asPort, asText, flag, type Options, option } from '../options.ts';
import {
  aligned,
  type CommandContext,
  CommandError,
  createStyle,
  line,
  printable,
  printJson,
  UsageError,
} from '../output.ts';
import { onSignals } from '../signals.ts';
import { findPlayer, INSTALL_PLAYER, type Player } from './player.ts';
import { createProbe } from './probe.ts';
import { type FoundProgram, findPrograms } from './programs.ts';
import { createProgress } from './progress.ts';
import { profileOption } from './relay.ts';
import { type Tried, tryChoices } from './trial.ts';

const MAX_PORTS = 16;
const NONE = 'none';
const NO_TERMINAL = 'there is no terminal to ask on: choose with --tts and --stt, and write with --yes';

type Found = FoundServer | FoundProgram;
type Choices = Partial<Record<ServerKind, { found: Found; local: LocalChoice }>>;

/** `svc voice setup`: finds the speech servers and programs of this machine, tries them, and configures them (05 §18). */
export function define(command: Command): void {
  command
    .option('--yes', 'write without asking; the best of what was found, or what the other flags say')
    .option('--tts <choice>', 'what speaks: the base URL of a server, piper, espeak-ng, or none')
    .option('--stt <choice>', 'what transcribes: the base URL of a server, or none')
    .option('--realtime <url>', 'the base URL of a realtime server for the agent; without it none is chosen')
    .option('--model <id>', 'the model that speaks')
    .option('--voice <id>', 'the voice')
    .option('--stt-model <id>', 'the model that transcribes')
    .option('--language <code>', 'the language that is spoken, such as de')
    .option('--key <key>', 'the key of the servers that are named by their URL')
    .option('--port <ports>', 'look at these ports of this machine too, separated by commas')
    .option('--profile <name>', "write into the configuration of one of the agent's profiles")
    .option('--play', 'play the sentence that is spoken to try the choice')
    .option('--no-try', 'write without trying')
    .option('--json', 'print one JSON document; with --yes it also writes')
    .example((name) => `${name} setup`)
    .example((name) => `${name} setup --json   # what there is`)
    .example((name) => `${name} setup --yes --tts espeak-ng --voice de --stt none`)
    .example((name) => `${name} setup --yes --tts http://127.0.0.1:8880/v1 --voice af_heart --play`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<number> {
  const end = new AbortController();
  // Many requests run at the same time.
  setMaxListeners(0, end.signal);
  const endSignals = onSignals(() => end.abort(), context);
  const environment = loadEnvironment(context.env);
  const { config } = readConfig(environment.env, environment.directories);
  const host = createNodeHost({ agentHome: config.agentHome, env: environment.env });
  try {
    return await keepAlive(setUp({ host, config, environment, signal: end.signal, options, context }));
  } catch (error) {
    if (end.signal.aborted) throw new CommandError('stopped', 'Nothing was changed. Run it again.');
    throw error;
  } finally {
    endSignals();
    await host.yaml.close();
  }
}

interface Deps {
  host: Host;
  config: Config;
  environment: Environment;
  signal: AbortSignal;
  options: Options;
  context: CommandContext;
}

async function setUp(deps: Deps): Promise<number> {
  const { options, context, signal } = deps;
  const [isJson, isSure] = [flag(options, '--json'), flag(options, '--yes')];
  const progress = createProgress(context, isJson);
  progress.step('Looking for speech servers and programs on this machine.');
  const found = await search(deps).finally(() => progress.end());
  signal.throwIfAborted();
  if (!isJson) printFound(found, context);
  const isGuided = !isJson && !isSure;
  const choices = await choose(found, deps, isGuided);
  if (!choices.tts && !choices.stt && !choices.realtime) return nothing(found, isJson, context);
  let tried: Tried | undefined;
  if ((isSure || isGuided) && options.try !== false) {
    tried = await attempt(choices, deps, await playerFor(choices, deps, isGuided));
    if (tried.problem !== undefined)
      throw new CommandError(tried.problem, tried.next ?? 'Choose another one, or --no-try.');
    if (!isJson) printTried(tried, context);
  }
  if (isGuided && !(await confirm(context, 'Write this configuration?', NO_TERMINAL))) {
    line(context.stdout, 'Nothing was changed.');
    return 0;
  }
  const written = isSure || isGuided ? await write(choices, deps) : [];
  if (isJson) printJson(context.stdout, { found, chosen: shown(choices), tried: tried ?? null, written }, 2);
  else printWritten(choices, written, deps);
  return 0;
}

/** The servers at the usual ports and those in flags, and the programs. Each server is probed once. */
async function search({ host, environment: { env }, signal, options }: Deps): Promise<Found[]> {
  const probe = createProbe(signal);
  const ports = new Set<number>([...USUAL_PORTS, ...(option(options, '--port', asPorts) ?? [])]);
  const named = ['--tts', '--stt', '--realtime'] as const;
  const urls = named.flatMap((name) => urlOption(options, name) ?? []);
  const key = option(options, '--key', asText)?.trim() ?? '';
  const usual = [...ports].map(usualUrl);
  const others = [...new Set(urls)].filter((url) => !usual.includes(url) || key !== '');
  const [servers, asked, programs] = await Promise.all([
    Promise.all(usual.map((url) => findAt(probe, url))),
    Promise.all(others.map((url) => findAt(probe, url, key))),
    findPrograms(host, env, languageOf(options, env), signal),
  ]);
  const known = new Map<string, Found>();
  for (const each of [...servers.flat(), ...asked.flat()]) known.set(`${each.kind} ${each.url}`, each);
  return [...known.values(), ...programs];
}

function asPorts(text: string): number[] {
  const ports = text.split(',').map((port) => asPort(port.trim()));
  if (ports.length > MAX_PORTS) throw new UsageError(`--port: at most ${MAX_PORTS} ports`);
  return ports;
}

/** The base URL of a flag; undefined for a word or without the flag. */
const urlOption = (options: Options, name: '--tts' | '--stt' | '--realtime'): string | undefined =>
  option(options, name, (text) => (/^https?:/i.test(text) ? asHttpUrl(text) : undefined));

/** `de` of `--language` or of the locale. */
function languageOf(options: Options, env: Environment['env']): string {
  const named = option(options, '--language', asText)?.trim();
  const locale = env.LC_ALL || env.LC_MESSAGES || env.LANG || '';
  return named || (/^([a-z]{2,3})(?:[_.@]|$)/.exec(locale)?.[1] ?? 'en');
}

async function choose(found: Found[], deps: Deps, isGuided: boolean): Promise<Choices> {
  const { options } = deps;
  const choices: Choices = {};
  for (const kind of ['tts', 'stt', 'realtime'] as const) {
    const fitting = found.filter((each) => each.kind === kind);
    const given = option(options, `--${kind}`, asText)?.trim();
    const chosen = given === undefined ? await unnamed(kind, fitting, deps, isGuided) : namedOne(kind, given, fitting);
    if (chosen) choices[kind] = { found: chosen, local: localOf(chosen, deps) };
  }
  return choices;
}

/** The choice named by a flag. A server that does not answer is an error, since it could not be tried. */
function namedOne(kind: ServerKind, given: string, fitting: readonly Found[]): Found | undefined {
  if (given.toLowerCase() === NONE) return undefined;
  const url = given.replace(/\/+$/, '');
  const origin = URL.canParse(url) ? new URL(url).origin : undefined;
  const found =
    fitting.find((each) => each.url === url || ('program' in each && each.program === given)) ??
    // The server of whisper.cpp has an unusual path.
    fitting.find((each) => each.url !== null && each.url === `${origin}/inference`);
  if (found) return found;
  const words: Record<ServerKind, string> = { tts: 'speaks', stt: 'transcribes', realtime: 'opens a realtime session' };
  throw new CommandError(
    `nothing ${words[kind]} at ${printable(given)}`,
    'Start the server, or correct the URL, which usually ends in /v1. See what there is with: svc voice setup --json',
  );
}

/** The best of the found choices, or a person's choice. A realtime server is never chosen automatically. */
async function unnamed(kind: ServerKind, fitting: Found[], { context }: Deps, isGuided: boolean) {
  const usable = fitting.filter((each) => !('needs_key' in each && each.needs_key));
  const [first] = usable;
  if (!isGuided || usable.length === 0) return kind === 'realtime' ? undefined : first;
  const names: Record<ServerKind, string> = { tts: 'speak', stt: 'transcribe', realtime: 'talk in realtime' };
  line(context.stdout, `What should ${names[kind]}?`);
  for (const [index, each] of usable.entries()) line(context.stdout, `  ${index + 1}  ${nameOf(each)}`);
  line(context.stdout, '  0  none of them');
  const usual = kind === 'realtime' ? 0 : 1;
  const answer = (await ask(context, `Number [${usual}]:`, NO_TERMINAL)) || String(usual);
  const number = Number(answer);
  if (!/^\d{1,2}$/.test(answer) || number > usable.length)
    throw new CommandError(`there is no choice ${printable(answer)}`);
  return usable[number - 1];
}

/** The members of `local` for a choice. */
function localOf(found: Found, { options, environment: { env } }: Deps): LocalChoice {
  const text = (name: `--${string}`) => option(options, name, asText)?.trim() || undefined;
  const isTts = found.kind === 'tts';
  const voice = isTts ? text('--voice') : undefined;
  const language = text('--language');
  if ('program' in found) {
    const { command, sample_rate: rate, voice: usual } = found;
    return defined({ command, sample_rate: rate ?? undefined, voice: voice ?? usual ?? undefined, language });
  }
  const model = text(isTts ? '--model' : '--stt-model') ?? (found.kind === 'realtime' ? undefined : found.models[0]);
  const key = text('--key');
  const isNamed = urlOption(options, `--${found.kind}`) !== undefined;
  const suggested = isTts ? (voice ?? suggestedVoice(found.voices, languageOf(options, env))) : undefined;
  return defined({ base_url: found.url, api_key: isNamed ? key : undefined, model, voice: suggested, language });
}

/** Kokoro's voices begin with a letter for the language: `a` and `b` for English, and so on. */
const suggestedVoice = (voices: readonly string[], language: string): string | undefined =>
  (language === 'en' ? voices.find((voice) => voice === 'af_heart') : undefined) ??
  voices.find(
    (voice) => voice.toLowerCase().startsWith(`${language}-`) || voice.toLowerCase().startsWith(`${language}_`),
  ) ??
  voices[0];

const defined = (members: Record<string, unknown>): LocalChoice =>
  Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined)) as LocalChoice;

/** The player of `--play`, or on a terminal, after asking. */
async function playerFor({ tts }: Choices, { options, context }: Deps, isGuided: boolean): Promise<Player | undefined> {
  if (flag(options, '--play')) return findPlayer(context.env, INSTALL_PLAYER);
  if (!isGuided || !tts) return undefined;
  const player = await findPlayer(context.env).catch(() => undefined);
  return player && (await confirm(context, `Play a sentence with ${player.name}?`, NO_TERMINAL)) ? player : undefined;
}

function attempt({ tts, stt }: Choices, { host, signal, options, context }: Deps, player?: Player): Promise<Tried> {
  const progress = createProgress(context, flag(options, '--json'));
  const language = option(options, '--language', asText)?.trim();
  const trial = { tts: tts?.local, stt: stt?.local, language, host, player, progress, signal };
  return tryChoices(trial).finally(() => progress.end());
}

/** Writes the choices; returns the changed files. */
async function write({ tts, stt, realtime }: Choices, { host, config, options }: Deps): Promise<string[]> {
  const editor = createConfigEditor(host);
  const scopes = createVoiceScopes(host, config);
  const log = createLog('ERROR', () => {});
  const settings = createVoiceConfig({ host, config, scopes, log });
  const profile = profileOption(options) ?? null;
  const { file } = await scopes.resolve(profile);
  if (profile !== null && file === null) {
    throw new CommandError(`the profile ${printable(profile)} has no configuration file`, 'See: svc relay profiles');
  }
  const written = new Set<string>();
  const change = async (path: string, plan: Parameters<typeof editor.change>[1]) => {
    if (await editor.change(path, plan)) written.add(path);
  };
  const agentFile = file ?? config.agentConfig;
  if (tts || stt) {
    await change(agentFile, (content) => [
      ...(tts ? localChanges(content, 'tts', tts.local) : []),
      ...(stt ? localChanges(content, 'stt', stt.local) : []),
    ]);
  }
  if (tts && (await settings.output(profile)).settings.provider !== 'local_tts') {
    written.add((await settings.changeOutput(profile, { provider: 'local' })).configPath);
  }
  if (realtime) {
    const { configPath } = await settings.changeAgent(profile, { provider: 'local' });
    written.add(configPath);
    await change(configPath, (content) => realtimeChanges(content, realtime.local));
  }
  return [...written];
}

const shown = (choices: Choices) =>
  Object.fromEntries(
    Object.entries(choices).map(([kind, { local }]) => [
      kind,
      'api_key' in local ? { ...local, api_key: '<hidden>' } : local,
    ]),
  );

function nameOf(found: Found): string {
  const where = 'program' in found ? found.program : found.url;
  const models = found.models.slice(0, 3).join(', ');
  return [where, models && `models ${models}`, found.voices.length > 0 && `${found.voices.length} voices`]
    .filter(Boolean)
    .map((part) => printable(String(part)))
    .join(', ');
}

function printFound(found: readonly Found[], context: CommandContext): void {
  const style = createStyle(context.stdout, context.env);
  if (found.length === 0) return;
  line(context.stdout, style.bold('On this machine'));
  const words: Record<ServerKind, string> = { stt: 'transcribes', tts: 'speaks', realtime: 'realtime' };
  const rows = found.map((each): [string, string] => [
    words[each.kind],
    `${nameOf(each)}${'needs_key' in each && each.needs_key ? ' (wants a key: name it with its URL and --key)' : ''}`,
  ]);
  for (const text of aligned(rows)) line(context.stdout, text);
}

function printTried({ tts, stt }: Tried, { stdout }: CommandContext): void {
  if (tts) {
    const kind = `${tts.seconds.toFixed(1)} s of speech`;
    line(stdout, `Spoke ${kind}: first audio after ${tts.first_audio_ms} ms, all of it after ${tts.total_ms} ms.`);
  }
  if (stt) line(stdout, `Transcribed it in ${stt.total_ms} ms: ${printable(stt.text) || '(nothing was recognised)'}`);
}

function printWritten(choices: Choices, written: readonly string[], { context, environment }: Deps): void {
  const { stdout } = context;
  for (const [kind, { local }] of Object.entries(choices)) {
    const facts = Object.entries(local).filter(([key]) => key !== 'api_key');
    const text = facts.map(([key, value]) => `${key} ${Array.isArray(value) ? value.join(' ') : value}`).join(', ');
    line(stdout, `${kind}.local: ${printable(text)}`);
  }
  if (written.length === 0) line(stdout, 'The configuration says so already: nothing was changed.');
  for (const file of written) line(stdout, `Wrote ${printable(file)}`);
  const override = choices.tts && environment.env.RELAY_VOICE_OUTPUT_PROVIDER?.trim();
  if (override && !/^local/i.test(override)) {
    line(stdout, `RELAY_VOICE_OUTPUT_PROVIDER is ${printable(override)}, and comes before the file: remove it.`);
  }
  line(
    stdout,
    `Next: ${choices.tts ? 'svc voice say "Hello"' : 'svc voice doctor'}   (a running relay needs no restart)`,
  );
}

function nothing(found: readonly Found[], isJson: boolean, { stdout }: CommandContext): number {
  if (isJson) {
    printJson(stdout, { found, chosen: {}, tried: null, written: [] }, 2);
    return 0;
  }
  if (found.length > 0) {
    line(stdout, 'Nothing was chosen, and nothing was changed.');
    return 0;
  }
  line(
    stdout,
    `No speech server answers on the ports ${USUAL_PORTS.join(', ')} of this machine, and no program speaks.`,
  );
  line(
    stdout,
    'Start one, such as Kokoro-FastAPI or whisper.cpp, name its port with --port, or: apt install espeak-ng',
  );
  return 1;
}

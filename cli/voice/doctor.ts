import type { Command } from 'cac';
import { asObject } from '../../lib/kit/json.ts';
import { type Check, fail, ok, warn } from '../../lib/operator/doctor/check.ts';
import { keyNames } from '../../lib/voice/credentials.ts';
import type { EffectivePath, VoicePath } from '../../lib/voice/effective.ts';
import { isOwners, isRenderer, type StreamingProvider, streamingProviders } from '../../lib/voice/registry.ts';
import { createResampler } from '../../lib/voice/streaming/resample.ts';
import { wavFile } from '../../lib/voice/streaming/wav.ts';
import { formData } from '../../lib/web/form-data.ts';
import { printChecks } from '../checks.ts';
import { asText, flag, negated, type Options, option } from '../options.ts';
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
} from '../output.ts';
import { RELAY_OPTION } from '../remote-relay.ts';
import { type Paths, withPaths } from './paths.ts';
import { createProgress, type Progress } from './progress.ts';
import { profileOption, type VoiceRelay, withVoiceRelay } from './relay.ts';
import { type Speech, speak } from './speech.ts';

const SAMPLE = 'Voice works.';
const WORD = 'Hello';
/** Milliseconds for one call of the basic path, since a slow machine may load its model first. */
const CALL_TIMEOUT = 120_000;
const MAX_MP3 = 16 * 1024 * 1024;
/** Hertz of the relay's speech, and of audio that every server transcribes. */
const SPOKEN_RATE = 24_000;
const WRITTEN_RATE = 16_000;
/** The provider that needs neither key nor network. */
const STUB = 'stub';
/** `auth_source` of a server that is called without a key. */
const NO_KEY = 'none';
/** How a deployment gets a key. */
const SECRET = "with 'npx wrangler secret put'";

type Body = Record<string, unknown>;

/** The key of a streaming provider, by name and never by value. */
interface KeyRow {
  provider: string;
  key: 'present' | 'missing' | 'none';
  /** Source of the key, or the variables that may contain it. */
  names: string[];
  /** Error of the provider when its voices were requested. */
  problem?: string;
}

/** Milliseconds of one call. */
interface Latency {
  totalMs: number;
}

interface Findings {
  basic: Body;
  output: Body;
  realtime: Body;
  keys: KeyRow[];
  /** Provider of each path, if this command sees the same settings as the relay. */
  paths: Partial<Paths>;
  /** Answers of the owner's own servers and programs. */
  servers: Check[];
  /** Result of calls of the basic path to these. */
  spoken?: Latency | CommandError;
  written?: (Latency & { text: string }) | CommandError;
  /** Renders of the stub and of the chosen provider. */
  relay?: Speech | CommandError;
  provider?: Speech | CommandError;
}

/** `svc voice doctor`: the providers that voice would use, and their latency. */
export function define(command: Command): void {
  command
    .option('--profile <name>', "check the voice settings of one of the agent's profiles")
    .option('--provider <id>', 'measure another provider than the one in the settings')
    .option('--no-speech', 'do not have the provider say anything, which it may charge for')
    .option(...RELAY_OPTION)
    .option('--json', 'print one JSON document')
    .example((name) => `${name} doctor`)
    .example((name) => `${name} doctor --profile work --provider elevenlabs_tts`)
    .example((name) => `${name} doctor --no-speech --json`)
    .action(run);
}

async function run(options: Options, context: CommandContext): Promise<number> {
  const profile = profileOption(options);
  const given = option(options, '--provider', asText);
  const progress = createProgress(context, flag(options, '--json'));
  const grants = ['voice:config', 'voice:tts', 'voice:stt', 'voice:realtime'] as const;
  const { name, isLocal, findings, provider } = await withVoiceRelay(options, context, grants, async (relay) => {
    try {
      const findings = await examine(relay, profile, progress);
      const provider = given ?? printableText(findings.output.provider);
      if (relay.isLocal) await askServers(relay, findings, { profile, provider, context, progress });
      await measure(relay, findings, { profile, provider, isSilent: negated(options, '--speech'), progress });
      return { name: relay.name, isLocal: relay.isLocal, findings, provider };
    } finally {
      progress.end();
    }
  });
  const checks = verdicts(findings, provider, isLocal ? 'in <agent home>/.env, and restart the relay' : SECRET);
  if (flag(options, '--json')) printJson(context.stdout, report(name, findings, provider, checks), 2);
  else print(name, findings, checks, context);
  return checks.some(({ status }) => status === 'error') ? 1 : 0;
}

async function examine(relay: VoiceRelay, profile: string | undefined, progress: Progress): Promise<Findings> {
  progress.step('Reading the settings.');
  const query = profile === undefined ? '' : `?profile=${encodeURIComponent(profile)}`;
  const get = (path: string) => relay.call({ method: 'GET', path: `${path}${query}` });
  const [basic, output, realtime] = await Promise.all([
    get('/voice/config'),
    get('/voice/output/config'),
    get('/voice/realtime/config'),
  ]);
  progress.step('Asking which keys the relay has.');
  const keys = await Promise.all(
    listedIn(realtime).map(({ info, ...provider }) => {
      const family = isRenderer({ info, ...provider }) ? 'output' : 'realtime';
      return keyRow(info.id, family === 'output' ? output : realtime, () =>
        get(`/voice/${family}/providers/${encodeURIComponent(info.id)}/options`),
      );
    }),
  );
  return { basic, output, realtime, keys, paths: {}, servers: [] };
}

/** The providers, of which the owner's own are listed only if configured. */
function listedIn({ providers }: Body): StreamingProvider[] {
  const ids = (Array.isArray(providers) ? providers : []).map((each) => asObject(each)?.id);
  return streamingProviders.filter((provider) => !isOwners(provider) || ids.includes(provider.info.id));
}

interface Asking {
  profile?: string;
  provider: string;
  context: CommandContext;
  progress: Progress;
}

/** Checks the owner's servers and programs, each once, and compares this command's settings with the relay's. */
async function askServers(
  { signal }: VoiceRelay,
  findings: Findings,
  { profile, provider, context, progress }: Asking,
) {
  const { basic, output, realtime } = findings;
  const reported = { speech: asObject(basic.tts), transcription: asObject(basic.stt), output, realtime };
  await withPaths(profile, context, async ({ paths, agentConfig, ask }) => {
    const agentFile = printableText(basic.config_path) || agentConfig;
    const files = { speech: agentFile, transcription: agentFile, output: agentFile, realtime: sourceOf(realtime) };
    const asked = new Set<string>();
    for (const id of ['speech', 'transcription', 'output', 'realtime'] as const) {
      const path = paths[id];
      const { provider: says, enabled, available } = reported[id] ?? {};
      // With variables other than the relay's, this command would check another server.
      const isOther = typeof says === 'string' && says !== path.provider;
      if (isOther || (available === true && path.problem !== null)) continue;
      findings.paths[id] = path;
      const kind = id === 'output' ? 'speech' : id;
      const target = path.command
        ? `${kind} ${path.command[0]}`
        : `${kind} ${path.baseUrl} ${path.model} ${path.voice}`;
      const isUsed = enabled !== false && (id !== 'output' || provider === path.provider);
      if (!isUsed || !path.isOwn || path.problem !== null || asked.has(target)) continue;
      asked.add(target);
      progress.step(`Asking ${printable(path.baseUrl ?? path.command?.[0] ?? '')}.`);
      findings.servers.push(await ask({ id, path, file: files[id] }, signal));
    }
  });
}

const isDown = ({ servers }: Findings, id: VoicePath): boolean =>
  servers.some((check) => check.id === `${id} server` && check.status === 'error');

/** The key of one provider: from the settings' `auth`, or as the relay used it for a request to the provider. */
async function keyRow(provider: string, { auth }: Body, options: () => Promise<Body>): Promise<KeyRow> {
  const wanted = [...keyNames(provider)];
  if (wanted.length === 0) return { provider, key: 'none', names: [] };
  const known = asObject(auth) ?? {};
  const [family = ''] = provider.split('_');
  const present = printableTexts(known[`${family}_env_names`]);
  if (typeof known.xai_oauth_source === 'string' && family === 'xai') present.unshift('OAuth');
  const dynamic = asObject((await options()).dynamic) ?? {};
  if (typeof dynamic.auth_source === 'string' && present.length === 0) {
    // An owner's server, which needs none.
    if (dynamic.auth_source === NO_KEY) return { provider, key: 'none', names: [] };
    present.push(dynamic.auth_source);
  }
  if (present.length === 0) return { provider, key: 'missing', names: wanted };
  const problem =
    dynamic.status === 'error' ? printableText(dynamic.message) || 'it does not list its voices' : undefined;
  return { provider, key: 'present', names: present, problem };
}

interface Measurement {
  profile?: string;
  provider: string;
  isSilent: boolean;
  progress: Progress;
}

/** Measures the relay itself, then a usable provider, if any. */
async function measure(relay: VoiceRelay, findings: Findings, { profile, provider, isSilent, progress }: Measurement) {
  if (findings.output.enabled !== true) return;
  const recording: Buffer[] = [];
  const say = (id: string) => {
    progress.step(`Measuring the time to the first audio of ${printable(id)}.`);
    return orError(relay, () =>
      speak(relay, { text: SAMPLE, profile, provider: id }, ({ pcm }) => void (id === provider && recording.push(pcm))),
    );
  };
  findings.relay = await say(STUB);
  const key = findings.keys.find((row) => row.provider === provider)?.key;
  const isUsable = key !== 'missing' && !isDown(findings, 'output') && !isDown(findings, 'speech');
  if (!isSilent && provider !== STUB && isUsable) findings.provider = await say(provider);
  if (!isSilent) await measureBasic(relay, findings, { profile, progress, pcm: Buffer.concat(recording) });
}

/** Sends one word through the basic path if that is free: with the owner's servers and programs. */
async function measureBasic(
  relay: VoiceRelay,
  findings: Findings,
  { profile, progress, pcm }: { profile?: string; progress: Progress; pcm: Buffer },
) {
  const { speech, transcription } = findings.paths;
  if (speech?.isOwn && speech.problem === null && !isDown(findings, 'speech')) {
    progress.step('Measuring the time of one word.');
    findings.spoken = await orError(relay, async () => {
      const began = performance.now();
      const call = { method: 'POST', path: '/voice/synthesize', body: { text: WORD, profile } } as const;
      await relay.fetch({ ...call, timeout: CALL_TIMEOUT, maxAnswer: MAX_MP3 });
      return { totalMs: Math.round(performance.now() - began) };
    });
  }
  if (transcription?.isOwn && transcription.problem === null && !isDown(findings, 'transcription') && pcm.length > 0) {
    progress.step('Measuring the time of a transcription.');
    findings.written = await orError(relay, async () => {
      const wav = wavFile(createResampler(SPOKEN_RATE, WRITTEN_RATE)(pcm), WRITTEN_RATE);
      const file = { name: 'audio', filename: 'word.wav', contentType: 'audio/wav', size: wav.length };
      const form = formData([], { ...file, content: once(wav) });
      const query = profile === undefined ? '' : `?profile=${encodeURIComponent(profile)}`;
      const began = performance.now();
      const call = { method: 'POST', path: `/voice/transcribe${query}`, form, timeout: CALL_TIMEOUT } as const;
      const { text } = await relay.call(call);
      return { text: printableText(text), totalMs: Math.round(performance.now() - began) };
    });
  }
}

async function* once(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

/** Result of `work`, or the reason of its failure. @throws any error other than an answer of the relay. */
async function orError<T>(relay: VoiceRelay, work: () => Promise<T>): Promise<T | CommandError> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof CommandError && !relay.signal.aborted) return error;
    throw error;
  }
}

/** `place` completes the advice to set a key. */
function verdicts(findings: Findings, provider: string, place: string): Check[] {
  const { basic, output, realtime, keys, paths } = findings;
  const checks = [
    basicCheck('speech', basic, 'tts', { place, path: paths.speech }),
    basicCheck('transcription', basic, 'stt', { place, path: paths.transcription }),
  ];
  const key = keys.find((row) => row.provider === provider);
  const chosen = provider === output.provider ? output : { provider };
  const outputFacts = `${settingsOf(chosen)}${provider === output.provider ? placeOf(paths.output) : ''}, settings of ${sourceOf(output)}`;
  if (output.enabled !== true) {
    checks.push(warn('voice output', `switched off in ${sourceOf(output)}`, 'Switch it on: set voice_output.enabled.'));
  } else if (key?.key === 'missing') {
    const next = `Set ${key.names.join(' or ')} ${place}. Or choose another provider.`;
    checks.push(fail('voice output', `${provider} has no key`, next));
  } else if (key?.problem !== undefined) {
    const next = `Check ${key.names.join(' and ')}, and that the relay reaches the provider.`;
    checks.push(warn('voice output', `${outputFacts}; ${key.problem}`, next));
  } else checks.push(ok('voice output', outputFacts));
  if (findings.relay) checks.push(latencyCheck('relay', findings.relay));
  if (findings.provider) checks.push(latencyCheck('first audio', findings.provider));
  checks.push(realtimeCheck(realtime, keys, { place, path: paths.realtime }));
  checks.push(...findings.servers);
  if (findings.spoken) checks.push(callCheck('one word', findings.spoken, ''));
  if (findings.written) {
    const { written } = findings;
    const text = written instanceof CommandError ? '' : written.text || '(nothing was recognised)';
    checks.push(callCheck('its transcription', written, `: ${text}`));
  }
  return checks;
}

function realtimeCheck(realtime: Body, keys: readonly KeyRow[], { place, path }: Place): Check {
  const facts = `${settingsOf(realtime)}${placeOf(path)}, settings of ${sourceOf(realtime)}`;
  if (realtime.enabled !== true) return ok('realtime', `${facts}, switched off`);
  const key = keys.find(({ provider }) => provider === realtime.provider);
  if (key?.key !== 'missing') return ok('realtime', facts);
  return warn('realtime', `${printableText(realtime.provider)} has no key`, `Set ${key.names.join(' or ')} ${place}.`);
}

/** One half of the basic path (contract 05 §5). */
function basicCheck(id: string, body: Body, half: 'tts' | 'stt', { place, path }: Place): Check {
  const facts = asObject(body[half]) ?? {};
  const missing = printableTexts(asObject(body.requirements)?.missing);
  const chosen = printableText(facts.provider) || 'chosen by key';
  const effective = path && path.problem === null && { model: path.model, voice: path.voice };
  if (facts.available === true) {
    return ok(id, `${settingsOf({ ...facts, ...effective, provider: chosen })}${placeOf(path)}, ${basicSource(body)}`);
  }
  // One line per unusable half, speech first.
  const why = half === 'tts' ? missing[0] : missing.at(-1);
  return warn(
    id,
    `cannot be used: ${why ?? 'no provider'}`,
    `Set a key ${place}; or ${half}.provider and its api_key in ${basicFile(body)}.`,
  );
}

function latencyCheck(id: string, result: Speech | CommandError): Check {
  if (result instanceof CommandError)
    return fail(id, result.message, result.next ?? "See the relay's log for details.");
  const { provider, voice, firstAudioMs, totalMs } = result;
  return ok(id, `${firstAudioMs} ms to the first audio, ${totalMs} ms in all (${provider}, voice ${voice})`);
}

function callCheck(id: string, result: Latency | CommandError, more: string): Check {
  if (result instanceof CommandError)
    return fail(id, result.message, result.next ?? "See the relay's log for details.");
  return ok(id, `${result.totalMs} ms${more}`);
}

/** Where to set a key, and the target of a path. */
interface Place {
  place: string;
  path?: EffectivePath;
}

/** The server or the program of a path, if this command knows it. */
function placeOf(path: EffectivePath | undefined): string {
  if (path?.command) return `, program ${printable(path.command.join(' '))}`;
  return path?.baseUrl ? `, at ${printable(path.baseUrl)}` : '';
}

const settingsOf = ({ provider, model, voice, voice_id: voiceId }: Body): string =>
  [
    printableText(provider),
    printableText(model) && `model ${printableText(model)}`,
    (printableText(voice) || printableText(voiceId)) && `voice ${printableText(voice) || printableText(voiceId)}`,
  ]
    .filter(Boolean)
    .join(', ');

const sourceOf = ({ config_path: path, profile, fallback_to_global: isFallback }: Body): string =>
  `${printableText(path) || 'no file'}${isFallback === true ? ` (the profile ${printableText(profile)} has none)` : ''}`;

const basicFile = ({ config_path: path }: Body): string => printableText(path) || "the agent's configuration";

const basicSource = (body: Body): string =>
  `settings of ${basicFile(body)}${body.fallback_to_global === true ? ` (the profile ${printableText(body.profile)} has none)` : ''}`;

function report(
  name: string,
  { basic, output, realtime, keys, paths, servers, ...measured }: Findings,
  provider: string,
  checks: Check[],
) {
  const figures = (result: Speech | CommandError | undefined) =>
    result === undefined
      ? null
      : result instanceof CommandError
        ? { error: result.message }
        : { first_audio_ms: result.firstAudioMs, total_ms: result.totalMs };
  const file = ({ config_path: path, config_scope: scope }: Body) => ({ config_path: path, config_scope: scope });
  const pick = ({ enabled, provider, model, voice }: Body) => ({ enabled, provider, model, voice });
  const where = (path: EffectivePath | undefined) => ({
    base_url: path?.baseUrl ?? null,
    ...(path?.command && { command: path.command }),
    ...(path && { model: path.model, voice: path.voice }),
  });
  const call = (result: Latency | CommandError | undefined) =>
    result instanceof CommandError ? { error: result.message } : result ? { total_ms: result.totalMs } : null;
  return {
    schema_version: 1,
    relay: name,
    profile: basic.profile ?? null,
    speech: { ...asObject(basic.tts), ...where(paths.speech), ...file(basic) },
    transcription: { ...asObject(basic.stt), ...where(paths.transcription), ...file(basic) },
    output: { ...pick(output), ...where(paths.output), ...file(output) },
    realtime: { ...pick(realtime), ...where(paths.realtime), ...file(realtime) },
    keys,
    latency: {
      measured_provider: provider,
      stub: figures(measured.relay),
      provider: figures(measured.provider),
      speech: call(measured.spoken),
      transcription: call(measured.written),
    },
    checks: checks.map(({ id, status, summary }) => ({ id, status, summary })),
  };
}

function print(name: string, { keys }: Findings, checks: Check[], context: CommandContext): void {
  const style = createStyle(context.stdout, context.env);
  line(context.stdout, style.bold(`Voice of the relay on ${name}`));
  const words = {
    present: (names: string[]) => names.join(', '),
    missing: (names: string[]) => `${style.yellow('missing:')} ${names.join(' or ')}`,
    none: () => 'needs no key',
  };
  line(context.stdout, 'Keys of streaming providers, by name');
  const rows = keys.map(({ provider, key, names, problem }): [string, string] => [
    provider,
    `${words[key](names)}${problem === undefined ? '' : ` (${problem})`}`,
  ]);
  for (const text of aligned(rows, '  ', context.stdout.isTTY ? context.stdout.columns : undefined)) {
    line(context.stdout, text);
  }
  line(context.stdout);
  printChecks(checks, context);
}

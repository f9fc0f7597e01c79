import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { unlessUnreadable } from '../../lib/host/errors.ts';
import type { Host } from '../../lib/host/index.ts';
import { programVoices } from '../../lib/voice/program-voices.ts';

/** A program of this machine that speaks, and how to call it (contract 05 §18). A type, so that it is a JSON value. */
export type FoundProgram = {
  url: null;
  kind: 'tts';
  program: string;
  command: string[];
  /** Hertz of its raw samples; null for a WAV. */
  sample_rate: number | null;
  models: string[];
  voices: string[];
  /** The voice for `{voice}`; null if the command contains it. */
  voice: string | null;
};

/** Milliseconds for a program to list its options. */
const HELP_TIMEOUT = 5000;
const MAX_LEVELS = 4;
const MAX_ENTRIES = 2000;
/** Hertz if a voice of piper does not specify it. */
const PIPER_RATE = 22_050;

type Env = Record<string, string | undefined>;

/** The programs that speak: piper if it has a voice, and espeak-ng. `language` is a code such as `de`. */
export async function findPrograms(
  host: Host,
  env: Env,
  language: string,
  signal: AbortSignal,
): Promise<FoundProgram[]> {
  const found = await Promise.all([findPiper(host, env, language), findEspeak(host, language, signal)]);
  return found.flatMap((program) => program ?? []);
}

async function findEspeak(host: Host, language: string, signal: AbortSignal): Promise<FoundProgram | undefined> {
  const program = (await host.children.find('espeak-ng')) === null ? 'espeak' : 'espeak-ng';
  if ((await host.children.find(program)) === null) return undefined;
  const voices = (await programVoices(host, [program], signal)).map(({ id }) => id);
  // A code without a region is a voice too, though it is not listed.
  const isKnown = voices.some((id) => id === language || id.startsWith(`${language}-`));
  const command = [program, '--stdin', '--stdout', '-v', '{voice}', '-s', '{words_per_minute}'];
  return {
    url: null,
    kind: 'tts',
    program,
    command,
    sample_rate: null,
    models: [],
    voices,
    voice: isKnown ? language : 'en',
  };
}

/** Debian's `piper` configures mice, so the program must know raw output. */
async function findPiper(host: Host, env: Env, language: string): Promise<FoundProgram | undefined> {
  if ((await host.children.find('piper')) === null) return undefined;
  const run = { file: 'piper', args: ['--help'], env: { PATH: env.PATH ?? '' }, cwd: '/' };
  const { stdout, stderr } = await host.children.run(run, HELP_TIMEOUT);
  const raw = /--output[-_]raw/.exec(stdout + stderr)?.[0];
  if (raw === undefined) return undefined;
  const home = env.HOME ?? '/root';
  const folders = [`${home}/.local/share/piper`, `${home}/.local/share/piper-voices`, `${home}/piper`];
  const shared = ['/usr/share/piper-voices', '/usr/local/share/piper-voices', '/usr/local/share/piper'];
  const models: string[] = [];
  const budget = { left: MAX_ENTRIES };
  for (const place of [...folders, ...shared]) await collectVoices(place, MAX_LEVELS, budget, models);
  const model = models.find((path) => path.slice(path.lastIndexOf('/') + 1).startsWith(language)) ?? models[0];
  if (model === undefined) return undefined;
  return {
    url: null,
    kind: 'tts',
    program: 'piper',
    command: ['piper', '-m', model, raw, '--length_scale', '{length_scale}'],
    sample_rate: await rateOf(host, model),
    models: [],
    voices: models,
    voice: null,
  };
}

/** Adds the voices of piper below a folder: `x.onnx` with `x.onnx.json` beside it. */
async function collectVoices(folder: string, levels: number, budget: { left: number }, found: string[]): Promise<void> {
  const entries = (await unlessUnreadable(readdir(folder, { withFileTypes: true }))) ?? [];
  const names = new Set(entries.map(({ name }) => name));
  for (const entry of entries) {
    if (budget.left-- <= 0) return;
    const path = join(folder, entry.name);
    if (entry.name.endsWith('.onnx') && names.has(`${entry.name}.json`)) found.push(path);
    else if (entry.isDirectory() && levels > 1) await collectVoices(path, levels - 1, budget, found);
  }
}

async function rateOf({ files }: Host, model: string): Promise<number> {
  const text = await unlessUnreadable(files.readText(`${model}.json`, 1024 * 1024));
  const rate = /"sample_rate"\s*:\s*(\d{4,5})/.exec(text ?? '')?.[1];
  return rate === undefined ? PIPER_RATE : Number(rate);
}

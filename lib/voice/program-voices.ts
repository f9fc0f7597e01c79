import { decodeUtf8 } from '../kit/text.ts';
import { type CommandHost, createRunDirectory, runCommand } from './command.ts';
import type { Listed } from './discovery.ts';

const MAX_OUTPUT = 64 * 1024;
const MAX_VOICES = 500;
/** `Pty Language Age/Gender VoiceName File ...`, as espeak-ng prints it; `_` stands for a space in a name. */
const ESPEAK_VOICE = /^\s*\d+\s+(\S+)\s+\S+\s+(\S+)\s/;

/** The voices of a program that can list them, which is espeak-ng; empty for others. Never rejects. */
export async function programVoices(
  host: CommandHost,
  [program = '']: readonly string[],
  signal: AbortSignal,
): Promise<Listed[]> {
  if (!/(?:^|\/)espeak(?:-ng)?$/.test(program)) return [];
  try {
    const directory = await createRunDirectory(host);
    try {
      let text = '';
      const run = { command: [program, '--voices'], directory, name: program, signal };
      for await (const bytes of runCommand(host, run)) {
        text += decodeUtf8(bytes);
        if (text.length > MAX_OUTPUT) break;
      }
      return espeakVoices(text);
    } finally {
      await host.files.removeAll(directory).catch(() => {});
    }
  } catch {
    return [];
  }
}

/** The voices in the output of `espeak-ng --voices`, by the language code that `-v` takes. */
export function espeakVoices(text: string): Listed[] {
  const voices = text.split('\n').flatMap((line): Listed[] => {
    const [, id, name] = ESPEAK_VOICE.exec(line) ?? [];
    return id === undefined || name === undefined ? [] : [{ id, label: name.replaceAll('_', ' ') }];
  });
  return [...new Map(voices.map((voice) => [voice.id, voice])).values()].slice(0, MAX_VOICES);
}

import { unlessUnreadable } from '../host/errors.ts';
import type { HostFiles } from '../host/index.ts';
import { decodeUtf8Strict } from '../kit/text.ts';
import { type ParsedMapping, parseMapping } from '../kit/yaml.ts';

const CONFIG_CAP = 256 * 1024;
/** Characters of configuration files that are kept beside what they parse to. */
const KEPT_CAP = 8 * 1024 * 1024;

export type ConfigFile = ParsedMapping | { ok: false; problem: string; missing: true };

/** Reads the configuration of a profile, or says in one phrase why it cannot, without a word of its content. */
export type ConfigReader = (path: string) => Promise<ConfigFile>;

/**
 * A reader that lets `turn` pass before it parses, since parsing holds the thread. Throws only when the machine is short
 * of file handles or memory.
 */
export function createConfigReader(
  files: HostFiles,
  turn: () => Promise<void> = async () => {},
  memory: ParseMemory = createParseMemory(),
): ConfigReader {
  return async (path) => {
    if (!(await unlessUnreadable(files.stat(path)))) return { ok: false, problem: 'no config.yaml', missing: true };
    const bytes = await unlessUnreadable(files.read(path, CONFIG_CAP + 1));
    if (!bytes) return { ok: false, problem: 'config.yaml cannot be read' };
    if (bytes.length > CONFIG_CAP) return { ok: false, problem: `config.yaml is over ${CONFIG_CAP} bytes` };
    const text = decodeUtf8Strict(bytes);
    if (text === null) return { ok: false, problem: 'config.yaml is not UTF-8' };
    if (!memory.knows(text)) await turn();
    const parsed = memory.parse(text);
    return parsed.ok ? parsed : { ok: false, problem: `config.yaml is ${parsed.problem}` };
  };
}

/**
 * `parseMapping` that remembers what it parsed since the last but one `round()`: a scan finds most files as the scan
 * before did, and parsing is what costs it most. What it returns is shared and not to be changed.
 */
export interface ParseMemory {
  /** Whether there was no round yet. */
  isNew(): boolean;
  round(): void;
  parse(text: string): ParsedMapping;
  /** Whether `parse` has the answer at hand. */
  knows(text: string): boolean;
}

export function createParseMemory(): ParseMemory {
  let before = new Map<string, ParsedMapping>();
  let now = new Map<string, ParsedMapping>();
  let kept = 0;
  let isNew = true;
  return {
    isNew: () => isNew,
    round() {
      isNew = false;
      before = now;
      now = new Map();
      kept = 0;
    },
    parse(text) {
      const parsed = now.get(text) ?? before.get(text) ?? parseMapping(text);
      if (!now.has(text) && kept + text.length <= KEPT_CAP) {
        kept += text.length;
        now.set(text, parsed);
      }
      return parsed;
    },
    knows: (text) => now.has(text) || before.has(text),
  };
}

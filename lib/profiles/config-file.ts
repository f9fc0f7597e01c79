import { unlessUnreadable } from '../host/errors.ts';
import type { Host, HostYaml } from '../host/index.ts';
import { decodeUtf8Strict } from '../kit/text.ts';
import type { ParsedMapping } from '../kit/yaml.ts';

const MAX_CONFIG = 256 * 1024;
/** Characters of configuration text used as cache keys. */
const MAX_CACHED = 8 * 1024 * 1024;

export type ConfigFile = ParsedMapping | { ok: false; problem: string; missing: true };

/** Reads a profile's configuration, or returns the problem in a short phrase that quotes nothing of the file. */
export type ConfigReader = (path: string) => Promise<ConfigFile>;

/** A reader that parses through `cache`. Throws only if the machine is short of file handles or memory. */
export function createConfigReader(
  { files, yaml }: Pick<Host, 'files' | 'yaml'>,
  cache: ParseCache = createParseCache({ rolls: true }),
): ConfigReader {
  return async (path) => {
    if (!(await unlessUnreadable(files.stat(path)))) return { ok: false, problem: 'no config.yaml', missing: true };
    const bytes = await unlessUnreadable(files.read(path, MAX_CONFIG + 1));
    if (!bytes) return { ok: false, problem: 'config.yaml cannot be read' };
    if (bytes.length > MAX_CONFIG) return { ok: false, problem: `config.yaml is over ${MAX_CONFIG} bytes` };
    const text = decodeUtf8Strict(bytes);
    if (text === null) return { ok: false, problem: 'config.yaml is not UTF-8' };
    const parsed = await cache.parse(text, yaml);
    return parsed.ok ? parsed : { ok: false, problem: `config.yaml is ${parsed.problem}` };
  };
}

export type ParseCache = ReturnType<typeof createParseCache>;

/**
 * A cache of parsed texts of the current round and the previous one, since most files are unchanged between two scans, and
 * parsing is the main cost of a scan. Results are shared and must not be changed. With `rolls`, a full round is followed by
 * the next one, for a caller that begins none itself.
 */
export function createParseCache({ rolls = false } = {}) {
  let before = new Map<string, ParsedMapping>();
  let now = new Map<string, ParsedMapping>();
  let cached = 0;
  function round(): void {
    before = now;
    now = new Map();
    cached = 0;
  }

  return {
    /** Begins a round, and drops the texts that the last one did not use. */
    round,
    async parse(text: string, yaml: Pick<HostYaml, 'parseMapping'>): Promise<ParsedMapping> {
      const parsed = now.get(text) ?? before.get(text) ?? (await yaml.parseMapping(text));
      if (rolls && !now.has(text) && cached + text.length > MAX_CACHED) round();
      if (!now.has(text) && cached + text.length <= MAX_CACHED) {
        cached += text.length;
        now.set(text, parsed);
      }
      return parsed;
    },
  };
}

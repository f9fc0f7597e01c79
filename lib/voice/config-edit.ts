import { RelayError } from '../errors.ts';
import { errnoOf, unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { createSemaphore } from '../kit/semaphore.ts';
import { decodeUtf8Strict } from '../kit/text.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';

const MAX_CONFIG = 256 * 1024;
const NEW_FILE_MODE = 0o600;
/** Edits that may wait for their turn. */
const MAX_WAITING = 64;
const ATTEMPTS = 3;

/** The keys to write, given the present section. */
type Keys = (present: Mapping) => Promise<Mapping>;

export interface ConfigEditor {
  /**
   * Sets scalar keys of a section, creating the section or the file when it is missing. Comments, order, every other
   * key and the file's mode stay; a link stays one, and its target is changed. One edit runs at a time, and `keys` is
   * called within it.
   * @throws RelayError `internal`, with the file untouched, when it cannot be parsed or written.
   */
  edit(path: string, section: string, keys: Keys): Promise<void>;
}

/** Edits configuration files in place (contract 05 §10). */
export function createConfigEditor({ files, yaml }: Pick<Host, 'files' | 'yaml'>): ConfigEditor {
  const turns = createSemaphore(1, MAX_WAITING);

  /** Makes one edit; false when the file was changed by another program in the meantime. */
  async function attempt(path: string, section: string, keys: Keys): Promise<boolean> {
    const target = (await unlessUnreadable(files.realPath(path))) ?? path;
    const before = await files.read(target, MAX_CONFIG + 1);
    if (before && before.length > MAX_CONFIG) throw refusal(`larger than ${MAX_CONFIG} bytes`);
    // A byte-order mark stays.
    const text = before ? decodeUtf8Strict(before, { keepBom: true }) : '';
    if (text === null) throw refusal('not UTF-8');
    const parsed = await yaml.parseMapping(text);
    if (!parsed.ok) throw refusal(parsed.problem);
    const present = Object.hasOwn(parsed.mapping, section) ? parsed.mapping[section] : null;
    if (present !== null && !isMapping(present)) throw refusal(`${section} is not a mapping`);
    const changes = Object.entries(await keys(present ?? {})).filter(([key, value]) => present?.[key] !== value);
    if (changes.length === 0) return true;
    const edited = await yaml.edit(
      text,
      changes.map(([key, value]) => ({ path: [section, key], value })),
    );
    if (!edited.ok) throw refusal(edited.problem);
    const mode = (await files.stat(target))?.mode ?? NEW_FILE_MODE;
    if (!isEqual(await files.read(target, MAX_CONFIG + 1), before)) return false;
    await files.writeAtomic(target, utf8ToBytes(edited.text), mode);
    return true;
  }

  return {
    edit: (path, section, keys) =>
      turns.run(new AbortController().signal, async () => {
        for (let left = ATTEMPTS; left > 0; left--) if (await attempt(path, section, keys).catch(named)) return;
        throw refusal('changed by another program again and again');
      }),
  };
}

const refusal = (problem: string, cause?: unknown) =>
  new RelayError('internal', `the configuration file was not changed, because it is ${problem}`, { cause });

/** Names what the file system refuses, such as a full disk; its own message has the path. */
function named(error: unknown): never {
  const code = errnoOf(error);
  throw code === '' ? error : refusal(`not readable or not writable (${code})`, error);
}

const isEqual = (a: Uint8Array | null, b: Uint8Array | null): boolean =>
  a === b || (a !== null && b !== null && a.length === b.length && a.every((byte, index) => byte === b[index]));

import { RelayError } from '../errors.ts';
import { errnoOf, unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { createTurns } from '../kit/semaphore.ts';
import { decodeUtf8Strict } from '../kit/text.ts';
import { isMapping, type Mapping, type YamlChange } from '../kit/yaml.ts';

const MAX_CONFIG = 256 * 1024;
const NEW_FILE_MODE = 0o600;
/** Maximum queued edits. */
const MAX_WAITING = 64;
const ATTEMPTS = 3;

/** The keys to write, given the present section. */
type Keys = (present: Mapping) => Promise<Mapping>;
/** Returns the changes to make, from the present content. @throws RelayError to make none. */
type Plan = (content: Mapping) => YamlChange[] | Promise<YamlChange[]>;

/** Edits configuration files in place (contract 05 §10). */
export function createConfigEditor({ files, yaml }: Pick<Host, 'files' | 'yaml'>) {
  const inTurn = createTurns(MAX_WAITING);

  /** Makes one edit; undefined if another program changed the file meanwhile. */
  async function attempt(path: string, plan: Plan): Promise<boolean | undefined> {
    const target = (await unlessUnreadable(files.realPath(path))) ?? path;
    const before = await files.read(target, MAX_CONFIG + 1);
    if (before && before.length > MAX_CONFIG) throw refusal(`larger than ${MAX_CONFIG} bytes`);
    // A byte-order mark stays.
    const text = before ? decodeUtf8Strict(before, { keepBom: true }) : '';
    if (text === null) throw refusal('not UTF-8');
    const parsed = await yaml.parseMapping(text);
    if (!parsed.ok) throw refusal(parsed.problem);
    const edited = await yaml.edit(text, await plan(parsed.mapping));
    if (!edited.ok) throw refusal(edited.problem);
    if (edited.text === text) return false;
    const mode = (await files.stat(target))?.mode ?? NEW_FILE_MODE;
    if (!isEqual(await files.read(target, MAX_CONFIG + 1), before)) return undefined;
    await files.writeAtomic(target, utf8ToBytes(edited.text), mode);
    return true;
  }

  /** Like `edit`, for any values of the file; `undefined` removes a key. Returns whether the file was written. */
  const change = (path: string, plan: Plan): Promise<boolean> =>
    inTurn(async () => {
      for (let left = ATTEMPTS; left > 0; left--) {
        const isWritten = await attempt(path, plan).catch(named);
        if (isWritten !== undefined) return isWritten;
      }
      throw refusal('changed by another program again and again');
    });

  return {
    change,

    /**
     * Sets scalar keys of a section, creating the section or the file when it is missing. Comments, order, all other keys and
     * the file's mode stay; for a link, the target is changed. Edits run one at a time, and `keys` is called within its edit.
     * @throws RelayError `internal`, with the file unchanged, if it cannot be parsed or written.
     */
    async edit(path: string, section: string, keys: Keys): Promise<void> {
      await change(path, async (content) => {
        const present = sectionIn(content, section);
        return Object.entries(await keys(present)).map(([key, value]) => ({ path: [section, key], value }));
      });
    },
  };
}

/** A section of a file; empty if it is missing. @throws RelayError if it is not a mapping. */
export function sectionIn(content: Mapping, section: string): Mapping {
  const present = Object.hasOwn(content, section) ? content[section] : null;
  if (present !== null && !isMapping(present)) throw refusal(`${section} is not a mapping`);
  return present ?? {};
}

const refusal = (problem: string, cause?: unknown) =>
  new RelayError('internal', `the configuration file was not changed, because it is ${problem}`, { cause });

/** Names the error of the file system, such as a full disk, since its own message contains the path. */
function named(error: unknown): never {
  const code = errnoOf(error);
  throw code === '' ? error : refusal(`not readable or not writable (${code})`, error);
}

const isEqual = (a: Uint8Array | null, b: Uint8Array | null): boolean =>
  a === b || (a !== null && b !== null && a.length === b.length && a.every((byte, index) => byte === b[index]));

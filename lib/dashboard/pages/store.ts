import { RelayError } from '../../errors.ts';
import type { Host } from '../../host/index.ts';
import type { OpenBytes, OpenFailure } from '../../host/media.ts';
import { utf8ToBytes } from '../../kit/bytes.ts';
import { type Clock, seconds } from '../../kit/clock.ts';
import { createTurns } from '../../kit/semaphore.ts';
import { byCodePoint, decodeUtf8Strict } from '../../kit/text.ts';
import { MAX_DOCUMENT } from './document.ts';
import {
  type Draft,
  drafted,
  expectDigest,
  type PageEntry,
  type PageSummary,
  parseEntry,
  promoted,
  readPageId,
  summaryOf,
} from './entry.ts';

const MAX_ENTRIES = 64;
const MODE = 0o600;
/** Bytes of a document of maximum size and its entry, with every character of a title escaped. */
const MAX_FILE = MAX_DOCUMENT + 64 * 1024;
const MAX_WAITING = 64;
const MAX_ATTEMPTS = 5;
const SUFFIX = '.json';

export interface PageStore {
  /** All pages, by id. Omits files that are not pages in the form in which they are written. */
  list(): Promise<PageSummary[]>;
  /** Throws RelayError `invalid` for an impossible id, `not-found` for an unknown one. */
  get(id: string): Promise<PageEntry>;
  /** Creates or replaces a draft. Throws RelayError `conflict` for a published page and beyond 64 pages. */
  draft(id: string, draft: Draft): Promise<PageEntry>;
  /** Publishes a page. Throws RelayError `conflict` if its digest differs. */
  promote(id: string, expectedDigest: string): Promise<PageEntry>;
  /** Removes a page, and returns its id. Throws RelayError `conflict` if its digest differs. */
  remove(id: string, expectedDigest: string): Promise<string>;
}

export interface PageStoreDeps {
  host: Pick<Host, 'agentHome' | 'files' | 'media'>;
  clock: Clock;
}

/** A file as last read. `tag` changes with its content; the summary is null if it is not a page. */
interface Seen {
  tag: string;
  summary: PageSummary | null;
}

/**
 * The mobile page store: one file per page below `<agent_home>/mobile-plugins` (contract 07 §4.4). Files are opened
 * without following a link, in a directory that is not a link either. Changes run one at a time.
 */
export function createPageStore({ host: { agentHome, files, media }, clock }: PageStoreDeps): PageStore {
  const inTurn = createTurns(MAX_WAITING);
  /** Files of the last list, by id. */
  let seen: ReadonlyMap<string, Seen> = new Map();
  /** Counts the changes of this process. */
  let generation = 0;

  /** The real path of the directory. Throws if it is a link. */
  async function directory(): Promise<string> {
    const expected = `${(await files.realPath(agentHome)) ?? agentHome}/mobile-plugins`;
    const real = await files.realPath(expected);
    if (real !== null && real !== expected) throw linked();
    if (real === null && (await isDangling(expected))) throw linked();
    return expected;
  }

  /** True if a name is a dangling link, through which a write would create the target. */
  async function isDangling(path: string): Promise<boolean> {
    const name = path.slice(path.lastIndexOf('/') + 1);
    const entries = await files.list(path.slice(0, -name.length - 1));
    return entries?.some((entry) => entry.name === name && entry.kind === 'link') ?? false;
  }

  const unreadNow = (cause: unknown): never => {
    throw new RelayError('unavailable', 'the page cannot be read now: try again later', { cause });
  };

  const pathOf = (folder: string, id: string) => `${folder}/${id}${SUFFIX}`;

  /** Opens a file. A file that is replaced at that moment is reported as missing, so it is opened again. */
  async function openFile(path: string): Promise<OpenBytes | OpenFailure> {
    for (let attempt = 1; ; attempt++) {
      const file = await media.open(path).catch(unreadNow);
      if (file !== 'missing' || attempt === MAX_ATTEMPTS || (await files.stat(path)) === null) return file;
    }
  }

  async function parse(file: OpenBytes, id: string): Promise<PageEntry | 'damaged'> {
    if (file.size > MAX_FILE) return 'damaged';
    const text = decodeUtf8Strict(await file.head(file.size));
    return (text === null ? null : parseEntry(text, id)) ?? 'damaged';
  }

  /** Null without the file. */
  async function read(folder: string, id: string): Promise<PageEntry | 'damaged' | null> {
    const file = await openFile(pathOf(folder, id));
    if (file === 'missing') return null;
    if (typeof file === 'string') return 'damaged';
    return parse(file, id).finally(() => file.close());
  }

  /**
   * Reads a file only if it has changed, since every phone requests the list every five seconds. Null if it is not a
   * page.
   */
  async function readEntry(folder: string, id: string): Promise<Seen | null> {
    // The list leaves out a page that cannot be read now, rather than fail.
    const file = await openFile(pathOf(folder, id)).catch(() => 'unreadable' as const);
    if (typeof file === 'string') return null;
    try {
      const before = seen.get(id);
      if (before?.tag === file.tag) return before;
      const entry = await parse(file, id);
      return { tag: file.tag, summary: entry === 'damaged' ? null : summaryOf(entry) };
    } finally {
      await file.close();
    }
  }

  /** Ids of all files, sorted, whatever they contain. */
  async function ids(folder: string): Promise<string[]> {
    const entries = (await files.list(folder)) ?? [];
    return entries
      .flatMap(({ name }) => (name.endsWith(SUFFIX) ? [name.slice(0, -SUFFIX.length)] : []))
      .filter(isPageId)
      .sort(byCodePoint);
  }

  async function present(folder: string, id: string): Promise<PageEntry> {
    const entry = await read(folder, id);
    if (entry === null || entry === 'damaged') throw new RelayError('not-found', 'there is no such page');
    return entry;
  }

  async function write(folder: string, entry: PageEntry): Promise<PageEntry> {
    await files.writeAtomic(pathOf(folder, entry.id), utf8ToBytes(JSON.stringify(entry)), MODE);
    return entry;
  }

  const change = <T>(work: (folder: string) => Promise<T>): Promise<T> =>
    inTurn(async () => {
      try {
        return await work(await directory());
      } finally {
        // Two changes within one tick of the file system's clock may leave the same tag.
        seen = new Map();
        generation++;
      }
    });

  return {
    async list() {
      const folder = await directory();
      const began = generation;
      const found = new Map<string, Seen>();
      // One at a time: 64 documents of half a MiB each need not be in memory at once.
      for (const id of (await ids(folder)).slice(0, MAX_ENTRIES)) {
        const entry = await readEntry(folder, id);
        if (entry) found.set(id, entry);
      }
      if (generation === began) seen = found;
      return [...found.values()].flatMap(({ summary }) => summary ?? []);
    },
    get: async (id) => present(await directory(), readPageId(id)),
    draft(text, draft) {
      const id = readPageId(text);
      return change(async (folder) => {
        const before = await read(folder, id);
        if (before === 'damaged') {
          throw new RelayError(
            'conflict',
            'the stored page is damaged or a link; its file must be removed on the host',
          );
        }
        if (before === null && (await ids(folder)).length >= MAX_ENTRIES) {
          throw new RelayError('conflict', `there are ${MAX_ENTRIES} pages already; remove one first`);
        }
        return write(folder, drafted(id, draft, before, seconds(clock)));
      });
    },
    promote(text, expected) {
      const id = readPageId(text);
      return change(async (folder) => {
        const before = await present(folder, id);
        expectDigest(before, expected);
        const after = promoted(before, seconds(clock));
        return after === before ? before : write(folder, after);
      });
    },
    remove(text, expected) {
      const id = readPageId(text);
      return change(async (folder) => {
        expectDigest(await present(folder, id), expected);
        await files.remove(pathOf(folder, id));
        return id;
      });
    },
  };
}

const linked = () => new RelayError('conflict', 'the directory of the pages is a link, which is not followed');

function isPageId(text: string): boolean {
  try {
    return readPageId(text) === text;
  } catch {
    return false;
  }
}

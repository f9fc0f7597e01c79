import { createStore, del, get, promisifyRequest, set } from 'idb-keyval';

/** Content shared by another app. Stored in this browser until it is used, discarded, or a day old. */
export interface Share {
  /** Title, text and address. */
  text: string;
  files: readonly File[];
  /** Names of files that exceeded the limits. */
  refused: readonly string[];
  /** Epoch ms. */
  at: number;
}

/** Names of the form's fields, as in the manifest. */
const FIELDS = { texts: ['title', 'text', 'url'], files: 'files' } as const;

const MAX_FILES = 20;
/** Bytes of all files; by default the relay accepts as much in one file. */
const MAX_BYTES = 100 * 1024 * 1024;
const MAX_TEXT = 256 * 1024;
const MAX_NAME = 255;
const MAX_AGE = 86_400_000;

const database = () => createStore('svc shares', 'shares');
/** Several relays may share an origin, each below a separate path. */
const keyOf = (base: string): string => new URL(base).pathname;

/** The parts of a share that are stored. */
export function shareOf(form: FormData): Share {
  const lines = FIELDS.texts.flatMap((name) => form.get(name) ?? []).filter((value) => typeof value === 'string');
  // Many apps put the address into the text as well.
  const isRepeated = (line: string, at: number) =>
    lines.some((other, n) => n !== at && other.includes(line) && (other !== line || n < at));
  const texts = lines.filter((line, at) => line.trim() !== '' && !isRepeated(line, at));
  const files: File[] = [];
  const refused: string[] = [];
  let size = 0;
  for (const file of form.getAll(FIELDS.files)) {
    // A form without a file contains an empty one without a name.
    if (typeof file === 'string' || (file.name === '' && file.size === 0)) continue;
    if (files.length < MAX_FILES && size + file.size <= MAX_BYTES) {
      files.push(file);
      size += file.size;
    } else if (refused.length < MAX_FILES) refused.push(file.name.slice(0, MAX_NAME));
  }
  return { text: texts.join('\n').slice(0, MAX_TEXT), files, refused, at: Date.now() };
}

export const isEmpty = ({ text, files, refused }: Share): boolean =>
  text === '' && files.length === 0 && refused.length === 0;

export const removeShare = (base: string): Promise<void> => del(keyOf(base), database());

/** Stores a share, replacing an older one; an empty one only removes that. */
export const storeShare = (base: string, share: Share): Promise<void> =>
  isEmpty(share) ? removeShare(base) : set(keyOf(base), share, database());

/** Stores what is left of a share, unless a later one has taken its place: a tab knows the one from its own start. */
export const storeRest = (base: string, share: Share): Promise<void> =>
  database()('readwrite', async (store) => {
    const stored: Share | undefined = await promisifyRequest(store.get(keyOf(base)));
    if (stored && stored.at !== share.at) return;
    if (isEmpty(share)) store.delete(keyOf(base));
    else store.put(share, keyOf(base));
    await promisifyRequest(store.transaction);
  });

/** The latest share, unless it was removed or is too old. */
export async function readShare(base: string): Promise<Share | null> {
  const share = await get<Share>(keyOf(base), database());
  if (!share || Date.now() - share.at <= MAX_AGE) return share ?? null;
  await del(keyOf(base), database());
  return null;
}

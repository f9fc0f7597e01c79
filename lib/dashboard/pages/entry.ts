import { RelayError } from '../../errors.ts';
import { type JsonObject, parseObject } from '../../kit/json.ts';
import { sha256 } from '../../kit/sha256.ts';
import { canonicalJson, type Json } from '../../pairing/canonical-json.ts';
import { checkDocument } from './document.ts';

/** A page of the store (contract 07 §4.4). Times are epoch seconds. */
export interface PageEntry {
  id: string;
  title: string;
  description: string;
  status: 'draft' | 'published';
  lifecycle: Lifecycle;
  document: JsonObject;
  created_at: number;
  updated_at: number;
  published_at: number | null;
  /** 1 for a new page, incremented with each change. */
  revision: number;
  digest: string;
}

/** An entry without its document, as lists show it. */
export type PageSummary = Omit<PageEntry, 'document'>;

export type Lifecycle = 'session' | 'persistent';

/** A client's input for a draft. */
export type Draft = Pick<PageEntry, 'title' | 'description' | 'document' | 'lifecycle'>;

const PAGE_ID = /^[a-z0-9][a-z0-9._-]{0,63}$/;
const MAX_TITLE = 120;
const MAX_DESCRIPTION = 1000;
const LIFECYCLES: readonly unknown[] = ['session', 'persistent'] satisfies Lifecycle[];
const STATUSES: readonly unknown[] = ['draft', 'published'] satisfies PageEntry['status'][];

const invalid = (message: string) => new RelayError('invalid', message);

/** The id of a page in its stored form. Throws RelayError `invalid`. */
export function readPageId(text: string): string {
  const id = text.trim().toLowerCase();
  if (PAGE_ID.test(id)) return id;
  throw invalid("the id must be 1 to 64 of a-z, 0-9, '.', '_' and '-', and begin with a letter or a digit");
}

/** Counts code points, so that an emoji is one character. */
const isText = (value: unknown, min: number, max: number): value is string =>
  typeof value === 'string' && value.isWellFormed() && [...value].length <= max && value.trim().length >= min;

/** Reads the body of `PUT /plugins/{id}/draft`. Throws RelayError `invalid` naming the member. */
export function readDraft(body: JsonObject): Draft {
  const { title, description = '', lifecycle = 'session', document } = body;
  if (!isText(title, 1, MAX_TITLE)) throw invalid(`title must be a text of 1 to ${MAX_TITLE} characters`);
  if (!isText(description, 0, MAX_DESCRIPTION)) {
    throw invalid(`description must be a text of at most ${MAX_DESCRIPTION} characters`);
  }
  if (!LIFECYCLES.includes(lifecycle)) throw invalid(`lifecycle must be ${LIFECYCLES.join(' or ')}`);
  return { title, description, lifecycle: lifecycle as Lifecycle, document: checkDocument(document) };
}

/** Reads `expected_digest` of a body. Throws RelayError `invalid`. */
export function readExpectedDigest({ expected_digest: digest }: JsonObject): string {
  if (typeof digest === 'string' && digest !== '') return digest;
  throw invalid('expected_digest is required: the digest of the page as it was read');
}

type Unsigned = Omit<PageEntry, 'digest'>;

/** `sha256:` and the hash of the canonical JSON of everything that a person approves. Times are not part of it. */
function digestOf({ id, title, description, status, lifecycle, document, revision }: Unsigned): string {
  const approved = { id, title, description, status, lifecycle, document: document as Json, revision };
  return `sha256:${sha256(canonicalJson(approved))}`;
}

const withDigest = (entry: Unsigned): PageEntry => ({ ...entry, digest: digestOf(entry) });

/**
 * The entry after storing a draft. `now` is in epoch seconds.
 * @throws RelayError `conflict` for a published page, which has to be removed first.
 */
export function drafted(id: string, draft: Draft, present: PageEntry | null, now: number): PageEntry {
  if (present?.status === 'published') throw new RelayError('conflict', 'the page is published; remove it first');
  return withDigest({
    id,
    ...draft,
    status: 'draft',
    created_at: present?.created_at ?? now,
    updated_at: now,
    published_at: null,
    revision: (present?.revision ?? 0) + 1,
  });
}

/** The entry after its promotion; a published one is unchanged. `now` is in epoch seconds. */
export function promoted(present: PageEntry, now: number): PageEntry {
  if (present.status === 'published') return present;
  return withDigest({
    ...present,
    status: 'published',
    lifecycle: 'persistent',
    updated_at: now,
    published_at: now,
    revision: present.revision + 1,
  });
}

/** Throws RelayError `conflict` unless the page has the digest that the caller has seen. */
export function expectDigest(present: PageEntry, expected: string): void {
  if (present.digest !== expected) throw new RelayError('conflict', 'the page has changed since it was read');
}

export function summaryOf({ document: _, ...summary }: PageEntry): PageSummary {
  return summary;
}

const isTime = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value) && value >= 0;

/** Reads a stored entry; null if it has another id or differs from the form in which entries are written. */
export function parseEntry(text: string, id: string): PageEntry | null {
  const stored = parseObject(text);
  if (!stored || stored.id !== id) return null;
  const { title, description, lifecycle, status, created_at, updated_at, published_at, revision, digest } = stored;
  if (!STATUSES.includes(status) || !isTime(created_at) || !isTime(updated_at)) return null;
  if (published_at !== null && !isTime(published_at)) return null;
  if (!Number.isSafeInteger(revision) || (revision as number) < 1) return null;
  try {
    const draft = readDraft({ title, description, lifecycle, document: stored.document });
    const entry = withDigest({
      id,
      ...draft,
      status: status as PageEntry['status'],
      created_at,
      updated_at,
      published_at,
      revision: revision as number,
    });
    return entry.digest === digest ? entry : null;
  } catch {
    return null;
  }
}

const HOST = {
  schema_version: 1,
  id: 'svc-relay',
  display_name: 'Relay',
  description: 'Pages that the agent has made for this phone.',
  min_host_api: 1,
  default_enabled: false,
};

/** The manifest by which a phone finds the pages. */
export const manifestOf = (entries: PageSummary[]) => ({
  ...HOST,
  contributions: entries.map(({ id, title, description, lifecycle, status, revision, digest }) => ({
    id,
    surface: 'page',
    title: status === 'draft' ? `Draft: ${title}` : title,
    description,
    lifecycle,
    status,
    revision,
    digest,
    document: { method: 'GET', path: `mobile/pages/${id}` },
  })),
  requested_capabilities: [
    {
      id: 'plugin.api.write',
      reason: 'To publish or remove a page from the phone.',
      required: false,
    },
  ],
  updates: { poll_seconds: 5 },
});

/** The body of `GET /pages/{id}`: the document with the revision of its entry. */
export const pageOf = ({ document, revision }: PageEntry): JsonObject => ({ ...document, host_revision: revision });

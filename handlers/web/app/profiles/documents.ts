import type { Skill } from '../../../../lib/profiles/skills.ts';
import { ApiError } from '../../shared/api.ts';
import type { App } from '../context.ts';

/** A file of a profile as stored at the relay. */
export interface Document {
  content: string;
  /** Null if the file does not exist. */
  etag: string | null;
  /** True if only the beginning of a long file is here, which must not replace the whole file. */
  truncated: boolean;
}

export interface MemoryEntry extends Document {
  filename: string;
  size_bytes: number;
}

/** SOUL.md, or a file of `memories/` by its name. */
export interface DocumentName {
  profile: string;
  /** Null for SOUL.md. */
  memory: string | null;
}

/** Unsaved text, and the version that it is based on. */
export interface Draft {
  content: string;
  etag: string | null;
}

export type SaveResult = { kind: 'saved'; etag: string } | { kind: 'conflict'; theirs: Document };

const pathOf = (profile: string): string => `api/profiles/${encodeURIComponent(profile)}`;

/** The relay's profile routes (contract 07 §1.5), and drafts in this browser. */
export function createDocuments({ api, pageStore }: App) {
  const draftKey = ({ profile, memory }: DocumentName) => `draft ${profile}/${memory ?? ''}`;

  /** @throws ApiError, or Error if the profile no longer exists. */
  async function ask<T>(profile: string, path: string, signal?: AbortSignal): Promise<T> {
    try {
      return await api.call<T>(`${pathOf(profile)}/${path}`, { signal });
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) throw new Error('There is no such profile.');
      throw error;
    }
  }

  async function memory(profile: string, signal?: AbortSignal): Promise<MemoryEntry[]> {
    return (await ask<{ entries: MemoryEntry[] }>(profile, 'memory', signal)).entries;
  }

  async function read({ profile, memory: filename }: DocumentName, signal?: AbortSignal): Promise<Document> {
    if (filename !== null) {
      const found = (await memory(profile, signal)).find((entry) => entry.filename === filename);
      return found ?? { content: '', etag: null, truncated: false };
    }
    type Answer = { content: string; etag?: string; truncated?: boolean };
    const { content, etag = null, truncated = false } = await ask<Answer>(profile, 'soul', signal);
    return { content, etag, truncated };
  }

  return {
    memory,
    read,

    async skills(profile: string, signal?: AbortSignal): Promise<Skill[]> {
      return (await ask<{ skills: Skill[] }>(profile, 'skills', signal)).skills;
    },

    /** The picture of a profile; null if it has none. */
    async avatar(profile: string, signal?: AbortSignal): Promise<Blob | null> {
      const response = await api.fetchRaw(`${pathOf(profile)}/avatar?missing=204`, { signal });
      return response.status === 200 ? response.blob() : null;
    },

    /**
     * Saves a draft unless the file has changed since the draft began.
     * @throws ApiError, with 412 if it is new, and its name that of a file that the relay does not show
     */
    async save(name: DocumentName, { content, etag }: Draft): Promise<SaveResult> {
      const { profile, memory: filename } = name;
      const path = filename === null ? 'soul' : `memory/${encodeURIComponent(filename)}`;
      const headers: Record<string, string> = etag === null ? { 'if-none-match': '*' } : { 'if-match': etag };
      try {
        const request = { method: 'PUT', body: { content }, headers } as const;
        const saved = await api.call<{ etag: string }>(`${pathOf(profile)}/${path}`, request);
        return { kind: 'saved', etag: saved.etag };
      } catch (error) {
        if (!(error instanceof ApiError) || error.status !== 412) throw error;
        const theirs = await read(name);
        if (etag === null && theirs.etag === null && !theirs.truncated) throw error;
        // Saved by an earlier request, whose answer was lost.
        if (theirs.etag !== null && !theirs.truncated && theirs.content === content) {
          return { kind: 'saved', etag: theirs.etag };
        }
        return { kind: 'conflict', theirs };
      }
    },

    draft: (name: DocumentName): Promise<Draft | undefined> => pageStore.read<Draft>(draftKey(name)),
    keepDraft: (name: DocumentName, draft: Draft | undefined): Promise<unknown> =>
      pageStore.change<Draft | undefined>(draftKey(name), () => draft),
  };
}

/** True if a memory document may have this name (contract 07 §1.5). */
export const isMemoryName = (name: string): boolean =>
  /^[A-Za-z0-9_-][A-Za-z0-9._-]*\.md$/.test(name) &&
  name.length <= 128 &&
  !name.includes('..') &&
  name.toLowerCase() !== 'soul.md';

import { RelayError } from '../errors.ts';
import type { HostFiles } from '../host/index.ts';
import { splitUrl } from '../kit/addresses.ts';
import { utf8ToBytes } from '../kit/bytes.ts';
import { type Clock, seconds } from '../kit/clock.ts';
import { parseObject } from '../kit/json.ts';

const MAX_FILE = 16 * 1024;
const MAX_URL = 2048;

/** `updated_at` is in epoch seconds; null before the first change. */
export interface PinnedUrl {
  url: string | null;
  updated_at: number | null;
}

/** The URL under which the operator publishes the relay (contract 07 §4.1). */
export interface PublicUrl {
  /** A damaged file counts as absent. */
  read(): Promise<PinnedUrl>;
  /** Pins a URL, or clears it. */
  write(url: string | null): Promise<PinnedUrl>;
}

/**
 * Reads a public URL: `http(s)://host[:port]`, kept as written except for a trailing slash; empty or null clears it.
 * @throws RelayError `invalid` for any other value.
 */
export function readPublicUrl(value: unknown): string | null {
  if (value == null) return null;
  const text = typeof value === 'string' ? value.trim().replace(/\/$/, '') : '-';
  if (text === '') return null;
  const parts = text.length <= MAX_URL && URL.canParse(text) ? splitUrl(text) : null;
  const isBare = parts !== null && /^https?$/.test(parts.scheme) && parts.rest === '' && !text.includes('@');
  if (isBare) return text;
  throw new RelayError('invalid', 'url must be http:// or https:// and a host, with a port if need be, and no path');
}

const pathOf = (agentHome: string): string => `${agentHome}/relay-remote.json`;

/** Reads the pinned URL. A damaged file counts as absent. */
export async function readPinnedUrl({ files, agentHome }: { files: HostFiles; agentHome: string }): Promise<PinnedUrl> {
  const stored = parseObject((await files.readText(pathOf(agentHome), MAX_FILE)) ?? '');
  try {
    const updatedAt = stored?.updated_at;
    return {
      url: readPublicUrl(stored?.url),
      updated_at: typeof updatedAt === 'number' && Number.isFinite(updatedAt) ? updatedAt : null,
    };
  } catch {
    return { url: null, updated_at: null };
  }
}

/** The pinned URL, in `<agent_home>/relay-remote.json`. */
export function createPublicUrl(deps: { files: HostFiles; agentHome: string; clock: Clock }): PublicUrl {
  const { files, agentHome, clock } = deps;
  return {
    read: () => readPinnedUrl(deps),
    async write(url) {
      const pinned = { url, updated_at: seconds(clock) };
      await files.writeAtomic(pathOf(agentHome), utf8ToBytes(JSON.stringify(pinned)), 0o600);
      return pinned;
    },
  };
}

import type { HostFiles } from '../host/index.ts';
import { cleanBase } from '../kit/addresses.ts';
import type { Clock } from '../kit/clock.ts';
import { at, isObject, type JsonObject } from '../kit/json.ts';
import { isPrintable } from '../kit/text.ts';
import { readObject } from '../profiles/secrets.ts';
import { textOf } from './section.ts';

const PROVIDER = 'xai-oauth';
const MAX_FILE = 1024 * 1024;
const MAX_POOL = 64;
/** Milliseconds for which a token must still be valid to be used. */
const MIN_LEFT = 120_000;
const DEFAULT_LIFETIME_SECONDS = 21_600;
/** Numbers below this are epoch seconds, others milliseconds. */
const SECONDS_BELOW = 100_000_000_000;
const ISSUED = /^(?:issued_at|created_at|refreshed_at|last_refresh)/;

/** A usable access token. Never for responses or logs. */
export interface OauthToken {
  secret: string;
  /** The only server that the token may be sent to, if its store names one. */
  baseUrl?: string;
  /** Path of its file. */
  path: string;
}

export interface OauthStoreDeps {
  files: HostFiles;
  clock: Clock;
  /** The configured file, before `auth.json` of the agent home. */
  path(): Promise<string>;
  agentHome: string;
}

export type OauthStore = ReturnType<typeof createOauthStore>;

/**
 * The xAI token store, which another program writes and refreshes (contract 05 §13): the configured file, then that of the
 * agent. Read on each use.
 */
export function createOauthStore({ files, clock, path: configured, agentHome }: OauthStoreDeps) {
  /** The files to search, in order; `path` replaces the configured one. */
  const pathsOf = async (path?: string): Promise<string[]> => [
    ...new Set([path ?? (await configured()), `${agentHome}/auth.json`]),
  ];
  return {
    paths: pathsOf,

    /** Returns the first usable token, or null. Throws only if the machine is short of file handles or memory. */
    async find(path?: string): Promise<OauthToken | null> {
      for (const candidate of await pathsOf(path)) {
        const document = await readObject(files, candidate, MAX_FILE);
        const found = tokenIn(document, clock.now());
        if (found) return { ...found, path: candidate };
      }
      return null;
    },

    /** True if any of the files has a token, usable or not. */
    async isConfigured(path?: string): Promise<boolean> {
      const documents = await Promise.all((await pathsOf(path)).map((found) => readObject(files, found, MAX_FILE)));
      return documents.some((document) =>
        candidatesIn(document).some(({ access_token: token }) => textOf(token) !== undefined),
      );
    },
  };
}

/**
 * The first token of a store that is known to be valid for two more minutes: under `tokens`, in the credential pool, of the
 * provider, or in the document itself (contract 05 §13). `now` is epoch milliseconds.
 */
export function tokenIn(document: JsonObject, now: number): Omit<OauthToken, 'path'> | null {
  for (const candidate of candidatesIn(document)) {
    const secret = textOf(candidate.access_token);
    const expiresAt = expiryOf(candidate);
    if (secret === undefined || !isPrintable(secret) || expiresAt === null || expiresAt - now < MIN_LEFT) continue;
    const stored = textOf(candidate.base_url);
    if (stored === undefined) return { secret };
    const baseUrl = cleanBase(stored.replace(/^ws/i, 'http'));
    // A token with an unreadable server must not be sent anywhere else.
    if (baseUrl !== null) return { secret, baseUrl };
  }
  return null;
}

/** Token objects, each with the facts stated by its parent. */
function candidatesIn(document: JsonObject): JsonObject[] {
  const provider = at(document, 'providers', PROVIDER);
  const pool = at(document, 'credential_pool', PROVIDER);
  return [
    ...within(document, document.tokens),
    ...(Array.isArray(pool) ? pool.slice(0, MAX_POOL) : []).flatMap((entry) =>
      isObject(entry) ? [...within(entry, entry.tokens), entry] : [],
    ),
    ...(isObject(provider) ? within(provider, provider.tokens) : []),
    document,
  ];
}

const within = (parent: JsonObject, tokens: unknown): JsonObject[] =>
  isObject(tokens) ? [{ ...parent, ...tokens }] : [];

/** Epoch milliseconds; null if unknown. Without an expiry, the lifetime counts from the latest issue or refresh. */
function expiryOf(token: JsonObject): number | null {
  const end = numberOf(token.expires_at_ms);
  if (end !== null) return end;
  const issued = Object.entries(token)
    .filter(([name]) => ISSUED.test(name))
    .map(([, value]) => timeOf(value))
    .filter((time) => time !== null);
  if (issued.length === 0) return null;
  const lifetime = token.expires_in === undefined ? DEFAULT_LIFETIME_SECONDS : numberOf(token.expires_in);
  return lifetime === null ? null : Math.max(...issued) + lifetime * 1000;
}

/** Epoch milliseconds from epoch seconds, milliseconds, or ISO 8601 text. */
function timeOf(value: unknown): number | null {
  const number = numberOf(value);
  if (number !== null) return number < SECONDS_BELOW ? number * 1000 : number;
  if (typeof value !== 'string' || !/^\d{4}-\d\d-\d\d/.test(value)) return null;
  // Text without an offset is UTC; `Date.parse` would take it for local time.
  const time = Date.parse(/T.*(?:Z|[+-]\d\d:?\d\d)$/i.test(value) || value.length === 10 ? value : `${value}Z`);
  return Number.isNaN(time) ? null : time;
}

function numberOf(value: unknown): number | null {
  const number = typeof value === 'string' && /^\d+(?:\.\d+)?$/.test(value.trim()) ? Number(value) : value;
  return typeof number === 'number' && Number.isFinite(number) ? number : null;
}

import { decodeEnvFile, parseEnvFile } from '../env-file.ts';
import type { Host, HostFiles } from '../host/index.ts';
import { unlessUnreadable } from '../profiles/readable.ts';
import { isObject } from '../socket/envelope.ts';
import { at } from './values.ts';

type Entry = Record<string, unknown>;

/** What a profile knows about its providers. Full of secrets: not for answers, not for logs. */
export interface Credentials {
  /** The profile's entry of a provider in `auth.json`, else the agent home's. */
  of(provider: string): { entry: Entry | null; pool: Entry[] };
  /** A key of the profile's `.env`, else of the environment; null when it is blank. */
  key(name: string): string | null;
}

const AUTH_CAP = 1024 * 1024;
const ENV_CAP = 64 * 1024;

/** Reads a profile's credentials (contract 04 §9.3), and only reads: refreshing tokens is the agent's. */
export async function readCredentials({ files, agentHome, env }: Host, home: string): Promise<Credentials> {
  const homes = home === agentHome ? [home] : [home, agentHome];
  const [envBytes, ...documents] = await Promise.all([
    readWhole(files, `${home}/.env`, ENV_CAP),
    ...homes.map((directory) => readObject(files, `${directory}/auth.json`, AUTH_CAP)),
  ]);
  const own = envBytes ? parseEnvFile(decodeEnvFile(envBytes)) : {};
  return {
    of(provider) {
      for (const document of documents) {
        const entry = at(document, 'providers', provider);
        const pool = at(document, 'credential_pool', provider);
        const entries = Array.isArray(pool) ? pool.filter(isObject) : [];
        if (isObject(entry) || entries.length > 0) return { entry: isObject(entry) ? entry : null, pool: entries };
      }
      return { entry: null, pool: [] };
    },
    key: (name) => own[name]?.trim() || env[name]?.trim() || null,
  };
}

/** The JSON object of a file; an empty one when there is none to be had whole. */
export async function readObject(files: HostFiles, path: string, limit: number): Promise<Record<string, unknown>> {
  const bytes = await readWhole(files, path, limit);
  try {
    const value: unknown = bytes && JSON.parse(new TextDecoder().decode(bytes));
    return isObject(value) ? value : {};
  } catch {
    return {};
  }
}

async function readWhole(files: HostFiles, path: string, limit: number): Promise<Uint8Array | null> {
  const bytes = await unlessUnreadable(files.read(path, limit + 1)).catch(() => null);
  return bytes && bytes.length <= limit ? bytes : null;
}

import type { Host } from '../host/index.ts';
import { isObject } from '../kit/json.ts';
import { readSecrets } from '../profiles/secrets.ts';
import { at } from './values.ts';

type Entry = Record<string, unknown>;

/** What a profile knows about its providers. Full of secrets: not for answers, not for logs. */
export interface Credentials {
  /** The profile's entry of a provider in `auth.json`, else the agent home's. */
  of(provider: string): { entry: Entry | null; pool: Entry[] };
  /** A key of the profile's `.env`, else of the environment; null when it is blank. */
  key(name: string): string | null;
}

/** Reads a profile's credentials (contract 04 §9.3). Throws only as `readSecrets` does. */
export async function readCredentials({ files, agentHome, env }: Host, home: string): Promise<Credentials> {
  const { env: own, auths } = await readSecrets(files, home, agentHome);
  return {
    of(provider) {
      for (const document of auths) {
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

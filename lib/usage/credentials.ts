import type { Host, HostFiles } from '../host/index.ts';
import { at, isObject } from '../kit/json.ts';
import { readObject, readSecrets } from '../profiles/secrets.ts';
import { timeOf } from './values.ts';

type Entry = Record<string, unknown>;

export type Credentials = Awaited<ReturnType<typeof readCredentials>>;

/**
 * Reads a profile's credentials for its providers (contract 04 §9.3). Never for responses or logs. Throws only if
 * `readSecrets` does.
 */
export async function readCredentials({ files, agentHome, env }: Host, home: string) {
  const { env: own, auths } = await readSecrets(files, home, agentHome);
  return {
    /** A provider's entry in the profile's `auth.json`, else in the agent home's. */
    of(provider: string): { entry: Entry | null; pool: Entry[] } {
      for (const document of auths) {
        const entry = at(document, 'providers', provider);
        const pool = at(document, 'credential_pool', provider);
        const entries = Array.isArray(pool) ? pool.filter(isObject) : [];
        if (isObject(entry) || entries.length > 0) return { entry: isObject(entry) ? entry : null, pool: entries };
      }
      return { entry: null, pool: [] };
    },

    /** A variable of the profile's `.env`, else of the environment; null if it is blank. */
    key: (name: string): string | null => own[name]?.trim() || env[name]?.trim() || null,
  };
}

/** The last known credential of a session. */
export interface ActiveCredential {
  providerId: string;
  credentialId: string;
  /** ISO 8601. */
  observedAt: string;
}

const MAX_FILE = 256 * 1024;
const MAX_AGE = 7 * 86_400_000;

/** Usage of a session that the agent's hook recorded in the last seven days (contract 04 §9.3). `now` is epoch milliseconds. */
export async function readActiveCredential(
  files: HostFiles,
  home: string,
  sessionId: string,
  now: number,
): Promise<ActiveCredential | null> {
  const document = await readObject(files, `${home}/svc-relay-active-credentials.json`, MAX_FILE);
  if (document.schema_version !== 1) return null;
  const record = at(document, 'sessions', sessionId);
  const [providerId, credentialId] = [at(record, 'provider_id'), at(record, 'credential_id')];
  const observedAt = timeOf(at(record, 'observed_at'));
  if (typeof providerId !== 'string' || typeof credentialId !== 'string' || observedAt === null) return null;
  // In this order, an unreadable time (NaN) fails the comparison.
  return now - Date.parse(observedAt) <= MAX_AGE ? { providerId, credentialId, observedAt } : null;
}

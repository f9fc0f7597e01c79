import type { HostFiles } from '../host/index.ts';
import { readObject } from '../profiles/secrets.ts';
import { at, timeOf } from './values.ts';

/** Which credential a session was last seen to use. */
export interface ActiveCredential {
  providerId: string;
  credentialId: string;
  /** ISO 8601. */
  observedAt: string;
}

const FILE_CAP = 256 * 1024;
const MAX_AGE = 7 * 86_400_000;

/** What the agent-side hook has noted about a session in the last seven days (contract 04 §9.3). `now` in epoch ms. */
export async function readActiveCredential(
  files: HostFiles,
  home: string,
  sessionId: string,
  now: number,
): Promise<ActiveCredential | null> {
  const document = await readObject(files, `${home}/svc-relay-active-credentials.json`, FILE_CAP);
  if (document.schema_version !== 1) return null;
  const record = at(document, 'sessions', sessionId);
  const [providerId, credentialId] = [at(record, 'provider_id'), at(record, 'credential_id')];
  const observedAt = timeOf(at(record, 'observed_at'));
  if (typeof providerId !== 'string' || typeof credentialId !== 'string' || observedAt === null) return null;
  // Not a comparison the other way round: of a time that is none, nothing is true.
  return now - Date.parse(observedAt) <= MAX_AGE ? { providerId, credentialId, observedAt } : null;
}

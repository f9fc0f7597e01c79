import { unlessUnreadable } from '../host/errors.ts';
import type { HostFiles } from '../host/index.ts';
import { decodeEnvFile, parseEnvFile } from '../kit/env-file.ts';
import { parseObject } from '../kit/json.ts';
import { decodeUtf8 } from '../kit/text.ts';

const MAX_ENV = 64 * 1024;
const MAX_AUTH = 1024 * 1024;

/** A profile's secrets for its providers. Never for responses or logs. */
export interface ProfileSecrets {
  /** Its `.env`, one assignment per line (contract 07 §1.2). */
  env: Readonly<Record<string, string | undefined>>;
  /** `auth.json` of the profile, then of the root. */
  auths: readonly Record<string, unknown>[];
}

/**
 * Reads a profile's `.env` and `auth.json`, and never writes them, since refreshing tokens is the agent's task. Missing,
 * oversized and malformed files count as empty. Throws only when the machine is short of file handles or memory.
 */
export async function readSecrets(files: HostFiles, home: string, root: string): Promise<ProfileSecrets> {
  const homes = home === root ? [root] : [home, root];
  const [envBytes, ...auths] = await Promise.all([
    readWhole(files, `${home}/.env`, MAX_ENV),
    ...homes.map((directory) => readObject(files, `${directory}/auth.json`, MAX_AUTH)),
  ]);
  return { env: envBytes ? parseEnvFile(decodeEnvFile(envBytes), { oneLine: true }) : {}, auths };
}

/** A file's bytes; null when it is unreadable or larger than `limit`. */
export async function readWhole(files: HostFiles, path: string, limit: number): Promise<Uint8Array | null> {
  const bytes = await unlessUnreadable(files.read(path, limit + 1));
  return bytes && bytes.length <= limit ? bytes : null;
}

/** Reads the JSON object in a file. Returns an empty object for a missing file or other content. */
export async function readObject(files: HostFiles, path: string, limit: number): Promise<Record<string, unknown>> {
  const bytes = await readWhole(files, path, limit);
  return (bytes && parseObject(decodeUtf8(bytes))) || {};
}

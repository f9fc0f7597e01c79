import { unlessUnreadable } from '../host/errors.ts';
import type { HostFiles } from '../host/index.ts';
import { decodeEnvFile, parseEnvFile } from '../kit/env-file.ts';
import { parseObject } from '../kit/json.ts';
import { decodeUtf8 } from '../kit/text.ts';

const ENV_CAP = 64 * 1024;
const AUTH_CAP = 1024 * 1024;

/** What a profile has for its providers. Not for answers, not for logs. */
export interface ProfileSecrets {
  /** Its `.env`, an assignment a line (contract 07 §1.2). */
  env: Readonly<Record<string, string | undefined>>;
  /** `auth.json`: the profile's, then the root's. */
  auths: readonly Record<string, unknown>[];
}

/**
 * Reads a profile's `.env` and `auth.json`, and only reads: refreshing tokens is the agent's. What is missing, too large
 * or malformed counts as empty. Throws only when the machine is short of file handles or memory.
 */
export async function readSecrets(files: HostFiles, home: string, root: string): Promise<ProfileSecrets> {
  const homes = home === root ? [root] : [home, root];
  const [envBytes, ...auths] = await Promise.all([
    readWhole(files, `${home}/.env`, ENV_CAP),
    ...homes.map((directory) => readObject(files, `${directory}/auth.json`, AUTH_CAP)),
  ]);
  return { env: envBytes ? parseEnvFile(decodeEnvFile(envBytes), { oneLine: true }) : {}, auths };
}

/** A file, or null when it cannot be had whole. */
export async function readWhole(files: HostFiles, path: string, limit: number): Promise<Uint8Array | null> {
  const bytes = await unlessUnreadable(files.read(path, limit + 1));
  return bytes && bytes.length <= limit ? bytes : null;
}

/** The JSON object of a file; an empty one for anything else. */
export async function readObject(files: HostFiles, path: string, limit: number): Promise<Record<string, unknown>> {
  const bytes = await readWhole(files, path, limit);
  return (bytes && parseObject(decodeUtf8(bytes))) || {};
}

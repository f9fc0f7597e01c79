import type { Config } from '../config.ts';
import { unlessUnreadable } from '../host/errors.ts';
import type { Host } from '../host/index.ts';
import { decodeEnvFile, parseEnvFile } from '../kit/env-file.ts';
import { decodeUtf8Strict } from '../kit/text.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';
import { apiServerSettings, apiServerUrl } from './api-server.ts';
import type { ConfigReader } from './config-file.ts';
import type { ProfilePlace } from './home.ts';
import { countSkills } from './skills.ts';

/** One profile as shown to paired devices (contract 07 §1.2). A type, not an interface, so that it is a JSON value. */
export type ProfileRow = {
  name: string;
  model: string;
  provider: string;
  description: string;
  system_message: string | null;
  gateway_running: boolean;
  has_soul: boolean;
  skill_count: number;
  api_server_enabled: boolean;
  api_server_url: string | null;
  api_server_host: string | null;
  api_server_port: number | null;
  api_server_key_present: boolean;
};

/** Maximum bytes of SOUL.md in a row. */
export const MAX_SOUL = 204_800;
const MAX_ENV = 64 * 1024;
const MAX_PID_FILE = 4096;

/** A row without `gateway_running`, which takes the text of the pid file. */
export type RowReading =
  | { ok: true; row: ProfileRow; pidFile: string | null }
  | { ok: false; problem: string; missing?: true };

/**
 * The row of one profile, or why it has none (a short phrase without path or content). Throws only if the machine is short
 * of file handles or memory.
 */
export async function readRow(
  { files, homeFiles }: Host,
  config: Pick<Config, 'webapiUrl'>,
  { name, home, config: configPath }: ProfilePlace,
  readConfig: ConfigReader,
): Promise<RowReading> {
  const parsed = await readConfig(configPath);
  if (!parsed.ok) return parsed;
  const [soulFacts, soulFile, envBytes, pidFile, skills] = await Promise.all([
    unlessUnreadable(files.stat(`${home}/SOUL.md`)),
    unlessUnreadable(homeFiles.read(home, `${home}/SOUL.md`, { content: MAX_SOUL + 1, digest: 0 })),
    unlessUnreadable(files.read(`${home}/.env`, MAX_ENV)),
    unlessUnreadable(files.readText(`${home}/gateway.pid`, MAX_PID_FILE)),
    countSkills(files, home),
  ]);
  const soulBytes = typeof soulFile === 'object' ? soulFile?.bytes : undefined;
  const soul = soulBytes ? soulText(soulBytes) : null;
  const api = apiServerSettings(
    parsed.mapping,
    envBytes ? parseEnvFile(decodeEnvFile(envBytes), { oneLine: true }) : {},
  );
  const url = api.enabled ? apiServerUrl(api, config.webapiUrl) : null;
  const row: ProfileRow = {
    name,
    ...modelOf(parsed.mapping),
    description: describe(parsed.mapping.description, soul),
    system_message: soul,
    gateway_running: false,
    has_soul: soulFacts?.kind === 'file',
    skill_count: skills,
    api_server_enabled: api.enabled,
    api_server_url: url,
    api_server_host: api.enabled ? api.host : null,
    api_server_port: api.enabled ? api.port : null,
    api_server_key_present: api.keyPresent,
  };
  return { ok: true, row, pidFile };
}

/** Other scalars than strings are converted; a mapping or a list is not a model name. */
function modelOf({ model }: Mapping): Pick<ProfileRow, 'model' | 'provider'> {
  const named = isMapping(model) ? model.default : typeof model === 'string' ? model : null;
  const scalar = ['string', 'number', 'boolean', 'bigint'].includes(typeof named) ? String(named) : '';
  const provider = isMapping(model) && typeof model.provider === 'string' ? model.provider : '';
  return { model: scalar.trim() === '' ? 'unknown' : scalar, provider };
}

function describe(configured: unknown, soul: string | null): string {
  if (typeof configured === 'string' && configured.trim() !== '') return configured.trim();
  const line = soul?.split(/\r\n|\r|\n/).find((candidate) => candidate.trim() !== '');
  return line?.replace(/^[\s#]+/, '').trimEnd() ?? '';
}

/** The text of a soul without trailing white space; null when it is blank or not UTF-8. */
export function soulText(bytes: Uint8Array): string | null {
  const truncated = bytes.length > MAX_SOUL;
  return decodeUtf8Strict(bytes.subarray(0, MAX_SOUL), { isCut: truncated })?.trimEnd() || null;
}

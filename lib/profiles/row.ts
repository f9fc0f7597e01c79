import type { Config } from '../config.ts';
import { decodeEnvFile, parseEnvFile } from '../env-file.ts';
import type { Host, HostFiles } from '../host/index.ts';
import { apiServerSettings, apiServerUrl } from './api-server.ts';
import { isGatewayRunning } from './liveness.ts';
import { unlessUnreadable } from './readable.ts';
import { countSkills } from './skills.ts';
import { isMapping, type Mapping, type ParsedMapping, parseMapping } from './yaml.ts';

/** One profile as paired devices see it (contract 07 §1.2). A type and not an interface, so that it is a JSON value. */
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

/** Where a profile's files are. `config` is apart because the root's may have another name. */
export interface ProfilePlace {
  name: string;
  home: string;
  config: string;
}

/** Bytes of SOUL.md that a row carries. */
export const SOUL_CAP = 204_800;
const CONFIG_CAP = 256 * 1024;
const ENV_CAP = 64 * 1024;
const PID_CAP = 4096;

/**
 * The row of one profile, or why it has none (one phrase, no path, no content). `turn` is awaited before YAML is
 * parsed. Throws only when the machine is short of file handles or memory.
 */
export async function readRow(
  host: Host,
  config: Pick<Config, 'webapiUrl'>,
  { name, home, config: configPath }: ProfilePlace,
  turn: () => Promise<void>,
): Promise<{ ok: true; row: ProfileRow } | { ok: false; problem: string }> {
  const parsed = await readConfigMapping(host.files, configPath, turn);
  if (!parsed.ok) return parsed;
  const [soulFacts, soulBytes, envBytes, pidFile, skills] = await Promise.all([
    unlessUnreadable(host.files.stat(`${home}/SOUL.md`)),
    unlessUnreadable(host.files.read(`${home}/SOUL.md`, SOUL_CAP + 1)),
    unlessUnreadable(host.files.read(`${home}/.env`, ENV_CAP)),
    unlessUnreadable(host.files.readText(`${home}/gateway.pid`, PID_CAP)),
    countSkills(host.files, home),
  ]);
  const soul = soulBytes && soulText(soulBytes);
  const api = apiServerSettings(parsed.mapping, envBytes ? parseEnvFile(decodeEnvFile(envBytes)) : {});
  const url = api.enabled ? apiServerUrl(api, config.webapiUrl) : null;
  const row: ProfileRow = {
    name,
    ...modelOf(parsed.mapping),
    description: describe(parsed.mapping.description, soul),
    system_message: soul,
    gateway_running: await isGatewayRunning(host, pidFile, url),
    has_soul: soulFacts?.kind === 'file',
    skill_count: skills,
    api_server_enabled: api.enabled,
    api_server_url: url,
    api_server_host: api.enabled ? api.host : null,
    api_server_port: api.enabled ? api.port : null,
    api_server_key_present: api.keyPresent,
  };
  return { ok: true, row };
}

/** A profile's configuration, or why there is none. */
async function readConfigMapping(files: HostFiles, path: string, turn: () => Promise<void>): Promise<ParsedMapping> {
  const facts = await unlessUnreadable(files.stat(path));
  if (!facts) return { ok: false, problem: 'no config.yaml' };
  const bytes = await unlessUnreadable(files.read(path, CONFIG_CAP + 1));
  if (!bytes) return { ok: false, problem: 'config.yaml cannot be read' };
  if (bytes.length > CONFIG_CAP) return { ok: false, problem: `config.yaml is over ${CONFIG_CAP} bytes` };
  const text = decodeStrictly(bytes);
  if (text === null) return { ok: false, problem: 'config.yaml is not UTF-8' };
  await turn();
  const parsed = parseMapping(text);
  return parsed.ok ? parsed : { ok: false, problem: `config.yaml is ${parsed.problem}` };
}

/** A mapping or a list is no model name; other non-strings are written out. */
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

/** The text of SOUL.md's first bytes without trailing white space; null when it is blank or not UTF-8. */
export function soulText(bytes: Uint8Array): string | null {
  const truncated = bytes.length > SOUL_CAP;
  return decodeStrictly(bytes.subarray(0, SOUL_CAP), truncated)?.trimEnd() || null;
}

/** UTF-8 without its byte-order mark, or null. Of cut input, a code point that is not whole is left out. */
function decodeStrictly(bytes: Uint8Array, cut = false): string | null {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: cut });
  } catch {
    return null;
  }
}

import type { Host } from '../host/index.ts';
import { cleanBase } from '../kit/addresses.ts';
import { isObject } from '../kit/json.ts';
import { decodeUtf8, isPrintable } from '../kit/text.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';
import type { ProfilePlace } from '../profiles/home.ts';
import { type ProfileSecrets, readSecrets, readWhole } from '../profiles/secrets.ts';
import { providerKey } from './efforts.ts';
import type { Provider, Target } from './providers/provider.ts';

const MAX_CONFIG = 256 * 1024;
const SECRET_FIELDS = ['access_token', 'api_key', 'token', 'key'];
/** Statuses that the agent records for credentials that no longer work. */
const SPENT = new Set(['dead', 'exhausted']);

/** A profile's settings for its providers. Full of secrets: never for responses or logs. */
export interface ProfileSettings extends ProfileSecrets {
  config: Mapping;
}

/**
 * Reads a profile's configuration, `.env` and `auth.json`. Missing, oversized and malformed files count as empty.
 * Throws only when the machine is short of file handles or memory.
 */
export async function readProfileSettings(
  { files, yaml }: Host,
  { home, config }: ProfilePlace,
  root: string,
): Promise<ProfileSettings> {
  const [configBytes, secrets] = await Promise.all([
    readWhole(files, config, MAX_CONFIG),
    readSecrets(files, home, root),
  ]);
  const parsed = await yaml.parseMapping(configBytes ? decodeUtf8(configBytes) : '');
  return { ...secrets, config: parsed.ok ? parsed.mapping : {} };
}

/**
 * Base URL and credential of a profile for one provider (contract 07 §3). Null without a required secret, or with an invalid
 * base URL; another URL is not tried, since the secret is meant for that one only.
 */
export function targetOf(
  key: string,
  provider: Provider,
  settings: ProfileSettings,
  { hasHost }: { hasHost: boolean },
): Target | null {
  const sections = sectionsOf(key, settings.config);
  const configured = baseOf(provider, settings, sections);
  if (configured === undefined && provider.base.onHost && !hasHost) return null;
  const base = cleanBase(configured ?? provider.base.fallback);
  if (base === null) return null;
  const secret = secretOf(key, provider, settings, sections);
  if (secret === undefined && provider.secret.required) return null;
  return { base, secret };
}

/** The sections of the configuration about one provider. */
interface Sections {
  provider: Mapping;
  /** Empty if the profile's model is from another provider. */
  model: Mapping;
}

function sectionsOf(key: string, config: Mapping): Sections {
  const model = sectionOf(config, 'model');
  const isOurs = typeof model.provider === 'string' && providerKey(model.provider) === key;
  const section = memberNamed(sectionOf(config, 'providers'), key);
  return { provider: isMapping(section) ? section : {}, model: isOurs ? model : {} };
}

function sectionOf(mapping: Mapping, name: string): Mapping {
  const section = mapping[name];
  return isMapping(section) ? section : {};
}

/** A member by provider key, under that name or one of its aliases. */
function memberNamed(mapping: Record<string, unknown>, key: string): unknown {
  if (Object.hasOwn(mapping, key)) return mapping[key];
  const name = Object.keys(mapping).find((candidate) => providerKey(candidate) === key);
  return name === undefined ? undefined : mapping[name];
}

function baseOf({ base }: Provider, { env }: ProfileSettings, { provider, model }: Sections): string | undefined {
  const candidates = [...base.variables.map((name) => env[name]), provider.base_url];
  if (base.fromModel) candidates.push(model.base_url);
  return candidates.map(textOf).find((text) => text !== undefined);
}

function secretOf(
  key: string,
  { secret }: Provider,
  { env, auths }: ProfileSettings,
  { provider, model }: Sections,
): string | undefined {
  const named = secret.variables.map((name) => env[name]);
  const configured = [provider, model].flatMap(({ api_key, key }) => [api_key, key]);
  const pooled = auths.flatMap((auth) => poolOf(auth, key));
  return [...named, ...configured, ...pooled].map(textOf).find((text) => text !== undefined && isPrintable(text));
}

/** The usable credentials of a provider in an `auth.json`, one per entry. */
function poolOf({ credential_pool: pool }: Record<string, unknown>, key: string): unknown[] {
  const entries = isObject(pool) ? memberNamed(pool, key) : undefined;
  if (!Array.isArray(entries)) return [];
  return entries
    .filter(isObject)
    .filter(({ last_status: status }) => !(typeof status === 'string' && SPENT.has(status.trim().toLowerCase())))
    .map((entry) => SECRET_FIELDS.map((field) => textOf(entry[field])).find((text) => text !== undefined));
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value.trim()) || undefined;

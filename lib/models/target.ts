import { isObject } from '../kit/json.ts';
import { isPrintable } from '../kit/text.ts';
import { isMapping, type Mapping } from '../kit/yaml.ts';
import { cleanBase } from './base-url.ts';
import { providerKey } from './names.ts';
import { type ProfileSettings, sectionOf } from './profile.ts';
import type { Provider, Target } from './providers/provider.ts';

const SECRET_FIELDS = ['access_token', 'api_key', 'token', 'key'];
/** What the agent notes about a credential that no longer works. */
const SPENT = new Set(['dead', 'exhausted']);

/**
 * Where and as whom a profile asks a provider (contract 07 §3), or null when it cannot: no secret where one is needed,
 * or a base URL that is none. A wrong one is not passed over: the secret is meant for no other place.
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

/** The parts of the configuration that are about one provider. */
interface Sections {
  provider: Mapping;
  /** Empty when the profile's model is another provider's. */
  model: Mapping;
}

function sectionsOf(key: string, config: Mapping): Sections {
  const model = sectionOf(config, 'model');
  const isOurs = typeof model.provider === 'string' && providerKey(model.provider) === key;
  const section = memberNamed(sectionOf(config, 'providers'), key);
  return { provider: isMapping(section) ? section : {}, model: isOurs ? model : {} };
}

/** A member by provider key, under that name or an alias of it. */
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

/** The credentials that an `auth.json` has for a provider, one for each usable entry. */
function poolOf({ credential_pool: pool }: Record<string, unknown>, key: string): unknown[] {
  const entries = isObject(pool) ? memberNamed(pool, key) : undefined;
  if (!Array.isArray(entries)) return [];
  return entries
    .filter(isObject)
    .filter(({ last_status: status }) => !(typeof status === 'string' && SPENT.has(status.trim().toLowerCase())))
    .map((entry) => SECRET_FIELDS.map((field) => textOf(entry[field])).find((text) => text !== undefined));
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value.trim()) || undefined;

import { RelayError } from '../errors.ts';
import { isObject } from '../kit/json.ts';

export const SCHEMA_VERSION = 1;
const MAX_MODELS = 64;
const MAX_PROFILE = 128;
const MAX_PROVIDER = 128;
const MAX_MODEL = 512;

export interface ModelPair {
  provider: string;
  model: string;
}

export interface CapabilitiesRequest {
  /** `default`, or the name of a profile. */
  profile: string;
  /** True to forget the cached efforts of this profile's models, and query them again. */
  refresh: boolean;
  models: ModelPair[];
}

/** A refusal of this endpoint. Clients check the code, so it takes the place of the sentence. */
export const refusal = (code: string, extra: Record<string, unknown> = {}, kind: 'invalid' | 'not-found' = 'invalid') =>
  new RelayError(kind, code, { extra: { schema_version: SCHEMA_VERSION, ...extra } });

/**
 * Validates a request body in the contract's order (07 §3). Strings are trimmed.
 * @throws RelayError `invalid` with the contract's code.
 */
export function parseCapabilitiesRequest(body: unknown): CapabilitiesRequest {
  if (!isObject(body)) throw refusal('invalid_request');
  const { schema_version: version, refresh = false, models } = body;
  if (version !== undefined && version !== SCHEMA_VERSION) throw refusal('unsupported_schema_version');
  const profile = parseProfile(body.profile);
  if (typeof refresh !== 'boolean') throw refusal('invalid_refresh');
  if (!Array.isArray(models) || models.length < 1 || models.length > MAX_MODELS) {
    throw refusal('invalid_models', { max_models: MAX_MODELS });
  }
  return { profile, refresh, models: models.map(parsePair) };
}

function parseProfile(value: unknown): string {
  if (value === undefined || value === null) return 'default';
  const profile = typeof value === 'string' ? value.trim() : null;
  if (profile === null || profile.length > MAX_PROFILE) throw refusal('invalid_profile');
  return profile || 'default';
}

function parsePair(item: unknown): ModelPair {
  const { provider, model } = isObject(item) ? item : {};
  return { provider: text(provider, MAX_PROVIDER), model: text(model, MAX_MODEL) };
}

function text(value: unknown, maxLength: number): string {
  const trimmed = typeof value === 'string' ? value.trim() : '';
  if (trimmed.length < 1 || trimmed.length > maxLength) throw refusal('invalid_model_pair');
  return trimmed;
}

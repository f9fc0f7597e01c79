import type { DurableObjectNamespace, KVNamespace } from '@cloudflare/workers-types';
import { bearerOf } from '../../../lib/access/bearer.ts';
import { createOperatorTokens, isOperatorKey } from '../../../lib/access/operator-token.ts';
import { limitKey } from '../../../lib/access/peer.ts';
import { readConfig } from '../../../lib/config.ts';
import { describeError, RelayError } from '../../../lib/errors.ts';
import { systemClock } from '../../../lib/kit/clock.ts';
import { isObject } from '../../../lib/kit/json.ts';
import { createLog } from '../../../lib/log.ts';
import { errorResponse, json, readJson } from '../../../lib/web/json.ts';

/** Where a name is claimed: the Worker's own path, of names without a relay. */
export const CLAIM_PATH = '/relay/claim';
/** Begins the name of a tenant's object, which no relay of `RELAY_HOSTS` has. */
const OBJECT_PREFIX = 'tenant:';
/** Seconds for which the platform may cache an entry, or its absence. */
const CACHE_TTL = 60;
const MAX_BODY = 16 * 1024;
const MAX_TEXT = 2048;

/** Variables that a tenant sets for its own relay. */
const SETTABLE = ['RELAY_WEBAPI_URL', 'RELAY_MIRROR_LEASE', 'RELAY_MAX_SESSIONS'];
/** Variables of the deployment that its tenants have too. None of them is a secret, or leads to one. */
const INHERITED = ['RELAY_LOG_LEVEL', 'RELAY_MIRROR_LEASE', 'RELAY_MAX_SESSIONS'];

/** A tenant of the deployment: a relay with an operator of its own. Kept in its object. */
export interface Tenant {
  /** Its host name, which is the name of its relay. */
  host: string;
  /** PEM. */
  operatorPublicKey: string;
  settings: Record<string, string>;
}

export type Claimed = 'claimed' | 'same' | 'taken';

export interface TenantEnv extends Record<string, unknown> {
  RELAY: DurableObjectNamespace;
  /** An entry `relay:<host name>` for each name that was claimed. Without it, a deployment has no tenants. */
  TENANTS?: KVNamespace;
  /** Limits claims; without it there are none. */
  ATTEMPTS?: { limit(options: { key: string }): Promise<{ success: boolean }> };
}

const entryOf = (host: string): string => `relay:${host}`;
const objectNameOf = (host: string): string => OBJECT_PREFIX + host;
export const isTenantObject = (name: string | undefined): boolean => name?.startsWith(OBJECT_PREFIX) ?? false;

/** Takes a tenant's name out of KV, so that it can be claimed again. */
export async function releaseName({ host }: Tenant, { TENANTS }: TenantEnv): Promise<void> {
  if (!TENANTS) throw new RelayError('unavailable', 'this deployment has no names of tenants');
  await TENANTS.delete(entryOf(host));
}

/** The variables of a tenant's relay: what it set, and nothing of the deployment that could be a secret. */
export function variablesOf({ host, operatorPublicKey, settings }: Tenant, env: Record<string, unknown>) {
  const inherited = INHERITED.map((name) => [name, env[name]]).filter(([, value]) => typeof value === 'string');
  const variables: Record<string, string> = { ...Object.fromEntries(inherited), ...settings };
  const own = { RELAY_NAME: host, RELAY_PUBLIC_URL: `https://${host}`, RELAY_OPERATOR_PUBLIC_KEY: operatorPublicKey };
  return { ...variables, ...own };
}

/**
 * The name of the object of a host's tenant; undefined when the name was not claimed. No object is asked.
 * @throws RelayError `unavailable`: what cannot be read is not a name that nobody has
 */
export async function tenantObjectOf(host: string, { TENANTS }: TenantEnv): Promise<string | undefined> {
  try {
    const entry = await TENANTS?.get(entryOf(host), { cacheTtl: CACHE_TTL });
    return entry ? objectNameOf(host) : undefined;
  } catch (error) {
    report(`the names of the tenants cannot be read: ${describeError(error)}`);
    throw new RelayError('unavailable', 'the names of the relays cannot be read');
  }
}

/**
 * Claims the host name of the request for an operator's key: `{operator_public_key, settings?}`, with a token of the
 * deployment's operator for that very address. The first claim counts; the same one again is answered alike, so a claim whose
 * answer was lost is repeated. 400, 401, 409 (claimed with another key), 429, 503.
 */
export async function claim(request: Request, env: TenantEnv): Promise<Response> {
  const { hostname, origin } = new URL(request.url);
  const { TENANTS, ATTEMPTS, RELAY_OPERATOR_PUBLIC_KEY: key } = env;
  if (!TENANTS || !ATTEMPTS || typeof key !== 'string' || key === '') {
    return errorResponse(503, 'this deployment takes no claims: it needs TENANTS, ATTEMPTS and an operator');
  }
  try {
    const source = `claim ${limitKey(request.headers.get('cf-connecting-ip'))}`;
    if (!(await ATTEMPTS.limit({ key: source })).success) {
      return errorResponse(429, 'too many attempts', { 'retry-after': '60' });
    }
    const tokens = createOperatorTokens(key, systemClock, createLog('ERROR', report));
    if (!(await tokens.verify(bearerOf(request.headers.get('authorization')), [origin]))) {
      return errorResponse(401, 'an operator token of this deployment for this address is needed');
    }
    const tenant = await readTenant(request, hostname);
    const object = env.RELAY.get(env.RELAY.idFromName(objectNameOf(hostname))) as unknown as {
      claim(tenant: Tenant): Promise<Claimed>;
    };
    const claimed = await object.claim(tenant);
    if (claimed === 'taken') return errorResponse(409, 'this name was claimed with another key');
    // After the object: a name leads to a relay that has its operator.
    await TENANTS.put(entryOf(hostname), '1');
    return json({ ok: true, name: hostname, claimed: claimed === 'claimed' });
  } catch (error) {
    if (error instanceof RelayError && (error.kind === 'invalid' || error.kind === 'too-large')) {
      return errorResponse(error.kind === 'invalid' ? 400 : 413, error.message);
    }
    report(`a claim failed: ${describeError(error)}`);
    return errorResponse(503, 'the name could not be claimed; try again');
  }
}

async function readTenant(request: Request, host: string): Promise<Tenant> {
  const { operator_public_key: key, settings = {} } = await readJson(request, { limit: MAX_BODY });
  if (typeof key !== 'string' || key.length > MAX_TEXT || !(await isOperatorKey(key))) {
    throw new RelayError('invalid', 'operator_public_key must be an Ed25519 or P-256 public key in PEM form');
  }
  if (!isObject(settings)) throw new RelayError('invalid', 'settings must be an object');
  for (const [name, value] of Object.entries(settings)) {
    if (!SETTABLE.includes(name)) throw new RelayError('invalid', `settings may have ${SETTABLE.join(', ')} only`);
    if (typeof value !== 'string' || value.length > MAX_TEXT) throw new RelayError('invalid', `${name} must be a text`);
  }
  const tenant = { host, operatorPublicKey: key, settings: settings as Record<string, string> };
  const { warnings } = readConfig(variablesOf(tenant, {}), { home: '', agentHome: '' });
  if (warnings.length > 0) throw new RelayError('invalid', warnings.join(' '));
  return tenant;
}

// biome-ignore lint/suspicious/noConsole: the console is the log of a Worker
const report = (line: string): void => console.log(line);

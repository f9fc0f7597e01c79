import type { DurableObjectNamespace, KVNamespace } from '@cloudflare/workers-types';
import { bearerOf } from '../../../lib/access/bearer.ts';
import { createOperatorTokens, isOperatorKey } from '../../../lib/access/operator-token.ts';
import { limitKey } from '../../../lib/access/peer.ts';
import { readConfig } from '../../../lib/config.ts';
import { describeError, RelayError } from '../../../lib/errors.ts';
import { seconds, systemClock } from '../../../lib/kit/clock.ts';
import { isObject } from '../../../lib/kit/json.ts';
import { createLog } from '../../../lib/log.ts';
import { errorResponse, json, readJson } from '../../../lib/web/json.ts';
import type { RelayObject } from './worker.ts';

/** Path of the Worker at which a name is claimed, and its tenant shown, changed and removed, on that name. */
export const CLAIM_PATH = '/relay/claim';
/** Path that lists the tenants, on every name of the deployment. */
export const TENANTS_PATH = '/relay/tenants';
/** Prefix of a tenant's object, which no relay of `RELAY_HOSTS` has. */
const OBJECT_PREFIX = 'tenant:';
/** Names per answer: as many as KV lists at once. */
const MAX_NAMES = 1000;
/** Seconds for which the platform may cache an entry, or its absence. */
const CACHE_TTL = 60;
const MAX_BODY = 16 * 1024;
const MAX_TEXT = 2048;

/** Variables that a tenant can set for its own relay. */
const SETTABLE = ['RELAY_WEBAPI_URL', 'RELAY_MIRROR_LEASE', 'RELAY_MAX_SESSIONS'];
/** Variables of the deployment that its tenants inherit. None of them is a secret, or leads to one. */
const INHERITED = ['RELAY_LOG_LEVEL', 'RELAY_MIRROR_LEASE', 'RELAY_MAX_SESSIONS'];

/** A tenant of the deployment: a relay with a separate operator. Stored in its object. */
export interface Tenant {
  /** Its host name, which is the name of its relay. */
  host: string;
  /** PEM. */
  operatorPublicKey: string;
  settings: Record<string, string>;
  /** Epoch seconds; absent in the objects of earlier versions. */
  claimedAt?: number;
}

/** Result of a claim. `same`: repeated with the same key; `taken`: another key was first; `unnamed`: KV refused the name. */
export type Claimed = 'claimed' | 'same' | 'taken' | 'unnamed';

/** The methods of a tenant's object that only the Worker calls, after checking the caller's right. */
type TenantObject = Pick<RelayObject, 'claim' | 'tenant' | 'change' | 'release'>;

export interface TenantEnv extends Record<string, unknown> {
  RELAY: DurableObjectNamespace;
  /** An entry `relay:<host name>` per claimed name. Without it, a deployment has no tenants. */
  TENANTS?: KVNamespace;
  /** Limits claims; without it, nobody can claim. */
  ATTEMPTS?: { limit(options: { key: string }): Promise<{ success: boolean }> };
}

const entryOf = (host: string): string => `relay:${host}`;
const objectNameOf = (host: string): string => OBJECT_PREFIX + host;
export const isTenantObject = (name: string | undefined): boolean => name?.startsWith(OBJECT_PREFIX) ?? false;

/** Writes a tenant's name to KV. False if that fails. */
export async function publishName({ host, claimedAt }: Tenant, { TENANTS }: TenantEnv): Promise<boolean> {
  try {
    if (!TENANTS) throw new RelayError('unavailable', 'this deployment has no names of tenants');
    await TENANTS.put(entryOf(host), '1', { metadata: { claimed_at: claimedAt } });
    return true;
  } catch (error) {
    report(`the name of a tenant cannot be put into KV: ${describeError(error)}`);
    return false;
  }
}

/** Removes a tenant's name from KV, so that it can be claimed again. */
export async function releaseName({ host }: Tenant, { TENANTS }: TenantEnv): Promise<void> {
  if (!TENANTS) throw new RelayError('unavailable', 'this deployment has no names of tenants');
  await TENANTS.delete(entryOf(host));
}

/** The variables of a tenant's relay: its own settings, and nothing of the deployment that could be a secret. */
export function variablesOf({ host, operatorPublicKey, settings }: Tenant, env: Record<string, unknown>) {
  const inherited = INHERITED.map((name) => [name, env[name]]).filter(([, value]) => typeof value === 'string');
  const variables: Record<string, string> = { ...Object.fromEntries(inherited), ...settings };
  const own = { RELAY_NAME: host, RELAY_PUBLIC_URL: `https://${host}`, RELAY_OPERATOR_PUBLIC_KEY: operatorPublicKey };
  return { ...variables, ...own };
}

/**
 * The name of the object of a host's tenant; undefined if the name was not claimed. Calls no object.
 * @throws RelayError `unavailable`, since an unreadable name must not pass for an unclaimed one
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

/** A call about tenants, with the credential of its caller. */
interface Call {
  request: Request;
  env: TenantEnv & { TENANTS: KVNamespace };
  hostname: string;
  origin: string;
  token: string | null;
  /** True for a token of the deployment's operator for this address. */
  isProvider: boolean;
}

const objectOf = ({ env, hostname }: Call): TenantObject =>
  env.RELAY.get(env.RELAY.idFromName(objectNameOf(hostname))) as unknown as TenantObject;

const tokensOf = (key: string) => createOperatorTokens(key, systemClock, createLog('ERROR', report));

/**
 * Answers operators' calls about tenants: `GET /relay/tenants`, and `/relay/claim` on a tenant's name. The deployment's
 * operator lists, claims, shows and releases; the tenant's operator shows, changes and releases. 400, 401, 404, 409, 429,
 * 503.
 */
export async function tenantCall(request: Request, env: TenantEnv): Promise<Response> {
  const { hostname, origin, pathname } = new URL(request.url);
  const { TENANTS, ATTEMPTS, RELAY_OPERATOR_PUBLIC_KEY: key } = env;
  if (!TENANTS || !ATTEMPTS || typeof key !== 'string' || key === '') {
    return errorResponse(503, 'this deployment takes no claims: it needs TENANTS, ATTEMPTS and an operator');
  }
  try {
    const source = `claim ${limitKey(request.headers.get('cf-connecting-ip'))}`;
    if (!(await ATTEMPTS.limit({ key: source })).success) {
      return errorResponse(429, 'too many attempts', { 'retry-after': '60' });
    }
    const token = bearerOf(request.headers.get('authorization'));
    const isProvider = await tokensOf(key).verify(token, [origin]);
    const call = { request, env: { ...env, TENANTS }, hostname, origin, token, isProvider };
    if (pathname === TENANTS_PATH) return await list(call);
    if (request.method === 'POST') return await claim(call);
    return await manage(call);
  } catch (error) {
    if (error instanceof RelayError && (error.kind === 'invalid' || error.kind === 'too-large')) {
      return errorResponse(error.kind === 'invalid' ? 400 : 413, error.message);
    }
    report(`a call for tenants failed: ${describeError(error)}`);
    return unreachable();
  }
}

const unreachable = () => errorResponse(503, 'the tenants of this deployment cannot be reached; try again');

const notProvider = () => errorResponse(401, 'an operator token of this deployment for this address is needed');

/** The claimed names, from KV alone, without a call to any object. `cursor` leads to the next names, null at the end. */
async function list({ request, env, isProvider }: Call): Promise<Response> {
  if (!isProvider) return notProvider();
  const cursor = new URL(request.url).searchParams.get('cursor');
  const found = await env.TENANTS.list<{ claimed_at?: number }>({ prefix: entryOf(''), cursor, limit: MAX_NAMES });
  const tenants = found.keys.map(({ name, metadata }) => ({
    name: name.slice(entryOf('').length),
    claimed_at: metadata?.claimed_at ?? null,
  }));
  return json({ ok: true, tenants, cursor: found.list_complete ? null : found.cursor });
}

/**
 * Claims the host name of the request for an operator's key: `{operator_public_key, settings?}`. The first claim counts; the
 * same claim again gets the same answer, so that a claim whose answer was lost can be repeated. 409: claimed with another
 * key.
 */
async function claim(call: Call): Promise<Response> {
  const { request, hostname, isProvider } = call;
  if (!isProvider) return notProvider();
  const body = await readJson(request, { limit: MAX_BODY });
  const wanted = await checked({
    host: hostname,
    operatorPublicKey: keyOf(body.operator_public_key),
    settings: settingsOf(body.settings ?? {}, {}),
    claimedAt: Math.floor(seconds(systemClock)),
  });
  const claimed = await objectOf(call).claim(wanted);
  if (claimed === 'taken') return errorResponse(409, 'this name was claimed with another key');
  if (claimed === 'unnamed') return unreachable();
  return json({ ok: true, name: hostname, claimed: claimed === 'claimed' });
}

/** Shows, changes or releases the tenant of the name. */
async function manage(call: Call): Promise<Response> {
  const { request, env, hostname, origin, token, isProvider } = call;
  // Strangers' calls for unclaimed names must not create objects.
  const isKnown = isProvider || (await tenantObjectOf(hostname, env)) !== undefined;
  const tenant = isKnown ? await objectOf(call).tenant() : undefined;
  const isOwner = tenant !== undefined && (await tokensOf(tenant.operatorPublicKey).verify(token, [origin]));
  if (!tenant) return errorResponse(404, 'nobody has claimed this name');
  if (!isOwner && !isProvider) return errorResponse(401, 'a token of the operator of this name is needed');
  switch (request.method) {
    case 'PATCH':
      if (!isOwner) return errorResponse(401, 'only the operator of this name may change it');
      return change(call, tenant);
    case 'DELETE': {
      const released = await objectOf(call).release(tenant);
      if (released === 'changed') return changedMeanwhile();
      return json({ ok: true, name: hostname, released: true, pending: released === 'ending' });
    }
    default:
      return json(view(tenant));
  }
}

const changedMeanwhile = () => errorResponse(409, 'this name has changed meanwhile; try again');

const view = ({ host, operatorPublicKey, settings, claimedAt }: Tenant) => ({
  ok: true,
  name: host,
  claimed_at: claimedAt ?? null,
  operator_public_key: operatorPublicKey,
  settings,
});

/** `{settings?, operator_public_key?}`: sets each of the given settings, or unsets it with null. */
async function change(call: Call, tenant: Tenant): Promise<Response> {
  const { operator_public_key: key, settings } = await readJson(call.request, { limit: MAX_BODY });
  if (key === undefined && settings === undefined) throw new RelayError('invalid', 'nothing to change');
  const after = await checked({
    ...tenant,
    operatorPublicKey: key === undefined ? tenant.operatorPublicKey : keyOf(key),
    settings: settings === undefined ? tenant.settings : settingsOf(settings, tenant.settings),
  });
  return (await objectOf(call).change(tenant, after)) ? json(view(after)) : changedMeanwhile();
}

const BAD_KEY = 'operator_public_key must be an Ed25519 or P-256 public key in PEM form';

function keyOf(key: unknown): string {
  if (typeof key !== 'string' || key.length > MAX_TEXT) throw new RelayError('invalid', BAD_KEY);
  return key;
}

/** The settings of a request, merged into the present ones. */
function settingsOf(given: unknown, before: Record<string, string>): Record<string, string> {
  if (!isObject(given)) throw new RelayError('invalid', 'settings must be an object');
  const settings = { ...before };
  for (const [name, value] of Object.entries(given)) {
    if (!SETTABLE.includes(name)) throw new RelayError('invalid', `settings may have ${SETTABLE.join(', ')} only`);
    if (value === null) delete settings[name];
    else if (typeof value === 'string' && value.length <= MAX_TEXT) settings[name] = value;
    else throw new RelayError('invalid', `${name} must be a text`);
  }
  return settings;
}

/**
 * @throws RelayError `invalid` for a key that verifies nothing, or settings with which the relay would not start as
 * configured.
 */
async function checked(tenant: Tenant): Promise<Tenant> {
  if (!(await isOperatorKey(tenant.operatorPublicKey))) throw new RelayError('invalid', BAD_KEY);
  const { warnings } = readConfig(variablesOf(tenant, {}), { home: '', agentHome: '' });
  if (warnings.length > 0) throw new RelayError('invalid', warnings.join(' '));
  return tenant;
}

// biome-ignore lint/suspicious/noConsole: the console is the log of a Worker
const report = (line: string): void => console.log(line);

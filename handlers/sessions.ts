import { RelayError } from '../lib/errors.ts';
import { seconds } from '../lib/kit/clock.ts';
import { isObject } from '../lib/kit/json.ts';
import type { Relay } from '../lib/relay.ts';
import { endsSoon } from '../lib/sessions/ends-soon.ts';
import type { Reduction } from '../lib/sessions/policy-change.ts';
import { ownerNameOf, type Session } from '../lib/sessions/session.ts';
import type { ShellsGone } from '../lib/terminal/shell-ends.ts';
import { json, readJson } from '../lib/web/json.ts';
import { nameOf } from './actor.ts';
import { hasGrant } from './guards.ts';
import { type Handler, isYes, lastOf, pathParam, type RelayRequest } from './request.ts';

const MIN_PREFIX = 4;

/** One row of `GET /sessions` (contract 01 §6.1). Built field by field so that no secret can slip in. */
export const rowOf = (session: Session, isCurrent: boolean, now: number) => ({
  token_prefix: session.prefix,
  device_name: session.device.name,
  device_id: session.device.id,
  created_at: session.createdAt,
  first_seen: session.firstSeen,
  last_seen: session.lastSeen,
  expires_at: session.expiresAt,
  grants: session.grants,
  transport_hint: session.transportHint,
  client_surface: session.device.surface,
  device_form_factor: session.device.formFactor,
  device_model: session.device.model,
  device_platform: session.device.platform,
  is_current: isCurrent,
  ...(session.keyThumbprint !== undefined && { bound: true }),
  ...(endsSoon(session, now) && { ends_soon: true }),
});

/**
 * `GET /sessions` (contract 01 §6.3). A host tool has no `request.session`, so none of the rows is current. A device without
 * the grant `devices` gets its own row only (§6.2).
 */
export const listSessions: Handler = (request, relay) => {
  const own = request.session;
  const sessions = own && !hasGrant(request, relay, 'devices') ? [own] : relay.sessions.list();
  const now = seconds(relay.clock);
  return json({ sessions: sessions.map((session) => rowOf(session, session === own, now)) });
};

/** `GET /sessions/ended`: the sessions that ended last, with the reasons (contract 11 §2). */
export const listEndedSessions: Handler = (_request, relay) => json({ sessions: relay.sessions.ended() });

/**
 * `POST /sessions/{prefix}/extend` `{ttl_seconds?}`: renews a session's policy, counted from now (contract 11 §2). For the
 * operator only, since no device may extend itself (01 §6.4).
 */
export const extendSession: Handler = async (request, relay) => {
  const prefix = prefixOf(request);
  const { ttl_seconds: ttl } = await readJson(request, { empty: true });
  if (ttl !== undefined && ttl !== null) requireTtl(ttl);
  const session = sessionByPrefix(prefix, request, relay);
  await relay.sessions.extend(session, (ttl as number | null) ?? undefined);
  return json({ ok: true, token_prefix: session.prefix, expires_at: session.expiresAt, grants: session.grants });
};

/** `PUT /sessions/{prefix}/name` `{name}`: sets the owner's name for a device (contract 11 §2). */
export const renameSession: Handler = async (request, relay) => {
  const prefix = prefixOf(request);
  const { name } = await readJson(request);
  const shown = typeof name === 'string' ? ownerNameOf(name) : '';
  if (shown === '') throw new RelayError('invalid', 'name must be text with a visible character');
  const session = sessionByPrefix(prefix, request, relay);
  await relay.sessions.rename(session, shown);
  return json({ ok: true, token_prefix: session.prefix, device_name: shown });
};

/** `GET /sessions/nonce`: the nonce for proofs of a key (README of `web`). Reveals nothing about any session. */
export function sessionNonce(_request: RelayRequest, relay: Relay): Response {
  const { nonce, expiresIn } = relay.proofs.nonce();
  return json({ nonce, expires_in: expiresIn });
}

/**
 * `DELETE /sessions/{prefix}/key`: a device unbinds its own session from its key, to move it elsewhere in a backup. The
 * proof in this request is the last one that it needs.
 */
export const unbindSession: Handler = async (request, relay) => {
  const session = sessionByPrefix(prefixOf(request), request, relay);
  if (session !== request.session) throw new RelayError('forbidden', 'cannot modify another session');
  await relay.sessions.unbind(session);
  return json({ ok: true, token_prefix: session.prefix });
};

/**
 * `DELETE /sessions/{prefix}`: itself, or any other with the grant `devices` (contract 01 §6.4). Ends the device's shells
 * too, unless `keep_shells=1` (02 §1.5); a device that revokes another one gets the answer after they have ended, with their
 * number.
 */
export const revokeSession: Handler = async (request, relay) => {
  const session = sessionByPrefix(prefixOf(request), request, relay);
  const isOwn = session === request.session;
  const ended = isYes(lastOf(request.query).keep_shells) ? undefined : relay.terminals.endShells(session);
  await relay.sessions.revoke(session, { answerFirst: isOwn, by: nameOf(request) });
  const answer = { ok: true, revoked: session.prefix, revoked_self: isOwn, ...(await atEdge(session, relay)) };
  return json(isOwn || !ended ? answer : { ...answer, shells_ended: countOf(await ended, 'the session is revoked') });
};

/**
 * `PATCH /sessions/{prefix}`: reduces a device's own rights; a host tool reduces those of any device (contract 01 §6.4,
 * checks in that order; 09 §1). If it removes the grant `terminal`, the answer comes after the device's shells have ended,
 * with their number.
 */
export const reduceSession: Handler = async (request, relay) => {
  const prefix = prefixOf(request);
  const reduction = reductionOf(await readJson(request));
  const session = sessionByPrefix(prefix, request, relay);
  if (request.session && session !== request.session) throw anotherSession();
  const reducing = relay.sessions.reduce(session, reduction);
  // Not awaited first, because the shells may have ended before the reduction is stored.
  const ended = relay.terminals.afterReduction(session);
  await reducing;
  const shells_ended = countOf(await ended, 'the session is reduced');
  const { prefix: token_prefix, expiresAt: expires_at, grants } = session;
  return json({ ok: true, token_prefix, expires_at, grants, shells_ended, ...(await atEdge(session, relay)) });
};

/** The state of a change at the edge of this relay's mirror; empty without a mirror (contract 12 §2). */
async function atEdge({ family }: Session, { homeMirror }: Relay): Promise<{ edge?: 'confirmed' | 'pending' }> {
  const edge = await homeMirror?.confirmed(family);
  return edge ? { edge } : {};
}

/**
 * Number of shells that ended with a change.
 * @throws RelayError `unavailable` if some may still run. Like a change that could not be stored, the change is in effect
 * nevertheless (contract 01 §6.7).
 */
function countOf({ count, isLeft }: ShellsGone, change: string): number {
  if (!isLeft) return count;
  throw new RelayError('unavailable', `${change}, but its shells may go on: it is tried again until they have ended`, {
    extra: { applied: true, shells_ended: count, shells_left: true },
  });
}

function prefixOf(request: RelayRequest): string {
  const prefix = pathParam(request, 'prefix');
  if (prefix.length >= MIN_PREFIX) return prefix;
  throw new RelayError('invalid', `a session prefix has at least ${MIN_PREFIX} characters`);
}

/** The one session for a prefix. */
function sessionByPrefix(prefix: string, request: RelayRequest, relay: Relay): Session {
  const found = relay.sessions.find(prefix);
  const own = request.session;
  if (own && !hasGrant(request, relay, 'devices')) {
    // The same refusal for every other prefix, so that such a device does not learn which ones exist.
    if (!found.includes(own)) throw anotherSession();
    return own;
  }
  const [session, second] = found;
  if (!session) throw new RelayError('not-found', 'no session has this prefix');
  if (second) throw new RelayError('conflict', 'several sessions have this prefix, use more characters');
  return session;
}

const anotherSession = () => new RelayError('forbidden', 'cannot modify another session');

const isDuration = (value: unknown): value is number => typeof value === 'number' && value >= 0;

function requireTtl(ttl: unknown): asserts ttl is number {
  if (isDuration(ttl) && Number.isInteger(ttl)) return;
  throw new RelayError('invalid', 'ttl_seconds must be an integer of at least 0');
}

function reductionOf({ ttl_seconds, grants, without }: Record<string, unknown>): Reduction {
  const reduction: Reduction = {};
  const absent = (value: unknown) => value === undefined || value === null;
  if (absent(ttl_seconds) && absent(grants) && absent(without)) {
    throw new RelayError('invalid', 'ttl_seconds, grants or without must be given');
  }
  if (!absent(ttl_seconds)) {
    requireTtl(ttl_seconds);
    reduction.ttlSeconds = ttl_seconds;
  }
  if (!absent(without)) {
    if (!Array.isArray(without) || !without.every((name) => typeof name === 'string')) {
      throw new RelayError('invalid', 'without must be a list of grants');
    }
    reduction.without = without;
  }
  if (!absent(grants)) {
    if (!isObject(grants) || !Object.values(grants).every(isDuration)) {
      throw new RelayError('invalid', 'grants must map channels to numbers of at least 0');
    }
    reduction.grants = grants as Record<string, number>;
  }
  return reduction;
}

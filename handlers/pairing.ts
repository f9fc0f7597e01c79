import { peerKey } from '../lib/access/peer.ts';
import { RelayError } from '../lib/errors.ts';
import { isLoopbackName } from '../lib/kit/addresses.ts';
import { isPairingCode, maskCode } from '../lib/pairing/code.ts';
import { readPublicUrl } from '../lib/pairing/host-candidates.ts';
import { describePolicy, readPolicy, readRedeemer } from '../lib/pairing/policy.ts';
import type { Relay } from '../lib/relay.ts';
import { json, readJson } from '../lib/web/json.ts';
import { isOperatorWithoutBearer } from './guards.ts';
import { lastOf, ownAddress, type RelayRequest } from './request.ts';

/**
 * `POST /pairing` (contract 01 §5.5). The operator gets a code without a policy. Any other caller only makes a request to
 * pair, whose code is printed on the relay's console and invalid until the operator registers it. Ignores the body.
 */
export async function createCode(request: RelayRequest, relay: Relay): Promise<Response> {
  const operator = await isOperatorWithoutBearer(request, relay);
  const peer = peerKey(request.peer, request.headers, relay.config.trustProxyHeaders);
  const retryAfter = relay.limiter.blockedFor(peer) || relay.limiter.mint(peer);
  if (retryAfter > 0) throw new RelayError('rate-limited', 'too many attempts from this address', { retryAfter });

  const log = relay.log.named('pairing');
  if (operator) {
    const { code, expiresAt } = await relay.codes.mintAnonymous();
    log.info(`registered pairing code ${maskCode(code)}: ${describePolicy({})}`);
    return json({ ok: true, code, expires_at: expiresAt });
  }
  const { code, expiresAt } = await relay.codes.request(peer);
  // The one place where a whole code is logged (contract 01 §5.1).
  log.warn(`${peer} asks to pair; to admit it within ten minutes, run: svc pair --register-code ${code}`);
  return json({ ok: true, pending: true, expires_at: expiresAt }, 202);
}

/** `GET /pairing/pending` (contract 09 §4): usable codes, and requests to pair. Never a whole code. */
export async function listPending(_request: RelayRequest, relay: Relay): Promise<Response> {
  await relay.codes.withdrawReplaced();
  const { codes, requests } = relay.codes.waiting();
  return json({
    codes: codes.map(({ masked, expiresAt, policy, anonymous }) => ({
      masked,
      expires_at: expiresAt,
      transport_hint: policy.transportHint ?? null,
      grants: policy.grants ?? null,
      without: policy.without ?? [],
      anonymous,
    })),
    requests: requests.map(({ masked, expiresAt, requestedBy }) => ({
      masked,
      expires_at: expiresAt,
      peer: requestedBy,
    })),
  });
}

/** The code in a request body. Checks the alphabet first, because `toUpperCase` maps some other letters to A-Z. */
function readCode(value: unknown): string {
  const text = typeof value === 'string' ? value.trim() : '';
  const code = /^[a-z0-9]*$/i.test(text) ? text.toUpperCase() : '';
  if (!isPairingCode(code)) throw new RelayError('invalid', 'code must be 6 characters of A-Z and 0-9');
  return code;
}

/** Lifts all rate limits and blocks after a pairing by the host (contract 01 §4). */
function clearLimits(relay: Relay): void {
  const peers = relay.limiter.clear();
  if (peers > 0) relay.log.named('access').info(`the host paired a device: cleared the limits of ${peers} peers`);
}

async function register(body: Record<string, unknown>, relay: Relay): Promise<{ code: string; relay_url?: string }> {
  const code = readCode(body.code);
  const url = await relay.redemption.register(code, readPolicy(body), readRedeemer(body));
  clearLimits(relay);
  return { code, ...(url !== undefined && { relay_url: url }) };
}

/** `POST /pairing/register` (contract 01 §5.2): registers a code and the policy that the host gives it. */
export async function registerCode(request: RelayRequest, relay: Relay): Promise<Response> {
  const body = await readJson(request);
  const endpoints = body.endpoints ?? undefined;
  if (endpoints !== undefined && !Array.isArray(endpoints)) {
    throw new RelayError('invalid', 'endpoints must be an array');
  }
  return json({ ok: true, ...(await register(body, relay)), endpoints });
}

/** `POST /pairing/approve` (contract 01 §5.2): for a code that a phone shows. Like register, without `endpoints`. */
export async function approveCode(request: RelayRequest, relay: Relay): Promise<Response> {
  return json({ ok: true, ...(await register(await readJson(request), relay)) });
}

/** `POST /pairing/mint` (contract 01 §5.3): mints a code in a signed QR payload. The body may be empty. */
export async function mintCode(request: RelayRequest, relay: Relay): Promise<Response> {
  const listener = ownAddress(request, relay);
  const answer = await relay.mint.issue(await readJson(request, { empty: true }), listener);
  clearLimits(relay);
  return json(relay.host ? { ...answer, listener } : answer);
}

/**
 * `GET /pairing/routes?public_url=`: the addresses of this host for a code, best first, in the form of `endpoints` of `POST
 * /pairing/mint`. `local` means that the relay listens for this machine only, `listener` is its address.
 */
export async function listRoutes(request: RelayRequest, relay: Relay): Promise<Response> {
  const at = ownAddress(request, relay);
  const endpoints = await relay.mint.candidates(at, readPublicUrl(lastOf(request.query).public_url ?? ''));
  const isHost = relay.host !== undefined;
  return json({ endpoints, local: isHost && isLoopbackName(at.host), ...(isHost && { listener: at }) });
}

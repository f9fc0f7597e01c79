import { bearerOf } from '../lib/access/bearer.ts';
import { isStrictLoopback } from '../lib/access/loopback.ts';
import { RelayError } from '../lib/errors.ts';
import { isLoopbackName } from '../lib/kit/addresses.ts';
import type { Relay } from '../lib/relay.ts';
import { isGranted } from '../lib/sessions/grants.ts';
import type { Session } from '../lib/sessions/session.ts';
import type { Guard, RelayRequest } from './request.ts';

const INVALID_OPERATOR_TOKEN =
  'a valid operator token is required: signed with the key of this relay, for its name or public URL, and not expired';

/** Lets everyone through. */
export const open: Guard = () => undefined;

/**
 * Whether the caller is the operator of this host: on Node by strict loopback, at the edge, which has no loopback, by a
 * signed operator token.
 */
async function isOperator(request: RelayRequest, relay: Relay): Promise<boolean> {
  if (request.peer.via === 'edge') {
    return relay.operatorTokens.verify(bearerOf(request.headers.get('authorization')), audiences(request, relay));
  }
  return isStrictLoopback(request.peer, request.headers);
}

/**
 * The names that an operator token may be made out to: the relay's own, its public URL, and the origin of the request
 * where a list of hosts vouches for that (contract 01 §12).
 */
function audiences({ url }: RelayRequest, { config }: Relay): string[] {
  const { origin, hostname } = new URL(url);
  const named = config.publicUrl === undefined ? [config.relayName] : [config.relayName, config.publicUrl];
  return config.relayHosts || isLoopbackName(hostname) ? [...named, origin] : named;
}

function refuse(request: RelayRequest, relay: Relay): never {
  relay.log.warn(`refused an operator call from ${request.peer.address ?? 'unknown'} to ${loggedPath(request)}`);
  throw new RelayError('forbidden', 'only a process on this host may call this');
}

/** The path of a request for the log, without a media token, which is a credential (contract 04 §1.3). */
function loggedPath({ url, params }: RelayRequest): string {
  const { pathname } = new URL(url);
  return params.token === undefined ? pathname : pathname.replace(`/${params.token}`, '/{token}');
}

/** The session of the request's bearer, now marked as seen. */
function sessionOf(
  { headers }: RelayRequest,
  { sessions }: Relay,
  refusal = 'a valid session bearer is required',
): Session {
  const token = bearerOf(headers.get('authorization'));
  const session = token === null ? undefined : sessions.authenticate(token);
  if (!session) throw new RelayError('unauthorized', refusal);
  return session;
}

/** The operator only. Needs no bearer, but refuses an invalid one (contract 01 §1.1). */
export const operator: Guard = async (request, relay) => {
  const isEdge = request.peer.via === 'edge';
  const hasBearer = request.headers.has('authorization');
  if (!(await isOperator(request, relay))) {
    // A device's token is no operator token, but not an invalid one either.
    if (isEdge && hasBearer) sessionOf(request, relay, INVALID_OPERATOR_TOKEN);
    refuse(request, relay);
  }
  if (!isEdge && hasBearer) sessionOf(request, relay);
};

/** A device with a live session and, where one is named, the grant. `refusal` is the error for a missing grant. */
export function paired(grant?: string, refusal = `this device has no ${grant} grant, or it has expired`): Guard {
  return (request, relay) => {
    const session = sessionOf(request, relay);
    if (grant !== undefined && !isGranted(session.grants, grant, relay.clock.now() / 1000)) {
      throw new RelayError('forbidden', refusal);
    }
    request.session = session;
    return undefined;
  };
}

const anyDevice = paired();

/** Whether the caller of a guarded request has a grant, still. The operator, who has no session, has them all. */
export const hasGrant = ({ session }: RelayRequest, relay: Relay, grant: string): boolean =>
  session === undefined || (!session.ended && isGranted(session.grants, grant, relay.clock.now() / 1000));

/** Whether the operator calls without a session bearer. At the edge the bearer is the operator token. */
export const isOperatorWithoutBearer = async (request: RelayRequest, relay: Relay): Promise<boolean> =>
  (request.peer.via === 'edge' || !request.headers.has('authorization')) && isOperator(request, relay);

/** The operator without a bearer, or a paired device. A bearer always has to be valid (contract 01 §1.1). */
export function operatorOrPaired(grant?: string): Guard {
  const device = paired(grant);
  return async (request, relay) =>
    (await isOperatorWithoutBearer(request, relay)) ? undefined : device(request, relay);
}

/** Like `operatorOrPaired`, but answers 403 instead of 401 to other callers without a bearer (contract 01 §8.1). */
export const loopbackOrPaired: Guard = async (request, relay) => {
  if (await isOperatorWithoutBearer(request, relay)) return undefined;
  if (!request.headers.has('authorization')) refuse(request, relay);
  return anyDevice(request, relay);
};

/** A paired device, or a host tool that sends `X-Svc-Operator: 1` from strict loopback (contract 01 §6.3). */
export function pairedOrHostTool(grant?: string): Guard {
  const device = paired(grant);
  return (request, relay) => {
    if (request.headers.get('x-svc-operator') !== '1') return device(request, relay);
    return isOperatorWithoutBearer(request, relay).then((isTool) => (isTool ? undefined : device(request, relay)));
  };
}

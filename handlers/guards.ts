import { bearerOf } from '../lib/access/bearer.ts';
import { isStrictLoopback } from '../lib/access/loopback.ts';
import { RelayError } from '../lib/errors.ts';
import type { Relay } from '../lib/relay.ts';
import { isGranted } from '../lib/sessions/grants.ts';
import type { Session } from '../lib/sessions/session.ts';
import type { Guard, RelayRequest } from './request.ts';

/** Anybody. */
export const open: Guard = () => undefined;

/**
 * Whether the operator of this host is calling: strict loopback at home, a signed operator token at the edge, where
 * there is no loopback.
 */
async function isOperator(request: RelayRequest, relay: Relay): Promise<boolean> {
  if (request.peer.via === 'edge') return relay.operatorTokens.verify(bearerOf(request.headers.get('authorization')));
  return isStrictLoopback(request.peer, request.headers);
}

function refuse(request: RelayRequest, relay: Relay): never {
  relay.log.warn(`refused an operator call from ${request.peer.address ?? 'unknown'} to ${loggedPath(request)}`);
  throw new RelayError('forbidden', 'only a process on this host may call this');
}

/** The path of a request for the log: a media token in it is a credential (contract 04 §1.3). */
function loggedPath({ url, params }: RelayRequest): string {
  const { pathname } = new URL(url);
  return params.token === undefined ? pathname : pathname.replace(`/${params.token}`, '/{token}');
}

/** The session of the request's bearer; at every use it counts as seen. */
function sessionOf({ headers }: RelayRequest, { sessions }: Relay): Session {
  const token = bearerOf(headers.get('authorization'));
  const session = token === null ? undefined : sessions.authenticate(token);
  if (!session) throw new RelayError('unauthorized', 'a valid session bearer is required');
  return session;
}

/** The operator only. A bearer is not needed, but one that is no good is refused here too (contract 01 §1.1). */
export const operator: Guard = async (request, relay) => {
  if (!(await isOperator(request, relay))) refuse(request, relay);
  if (request.peer.via !== 'edge' && request.headers.has('authorization')) sessionOf(request, relay);
};

/** A device with a live session, and with the named grant where there is one; `refusal` is what one without it is told. */
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

/** Whether the operator calls without any bearer; at the edge the operator token is what makes him one. */
export const isBareOperator = async (request: RelayRequest, relay: Relay): Promise<boolean> =>
  (request.peer.via === 'edge' || !request.headers.has('authorization')) && isOperator(request, relay);

/** The operator without a bearer, or a paired device: a bearer is always judged as such (contract 01 §1.1). */
export function operatorOrPaired(grant?: string): Guard {
  const device = paired(grant);
  return async (request, relay) => ((await isBareOperator(request, relay)) ? undefined : device(request, relay));
}

/** As `operatorOrPaired`, for routes that are specified as loopback ones: a stranger without a bearer gets 403. */
export const operatorOrPairedInfo: Guard = async (request, relay) => {
  if (await isBareOperator(request, relay)) return undefined;
  if (!request.headers.has('authorization')) refuse(request, relay);
  return anyDevice(request, relay);
};

/** A paired device, or a host tool that says so with `X-Svc-Operator: 1` on strict loopback (contract 01 §6.3). */
export const pairedOrOperatorTool: Guard = (request, relay) => {
  if (request.headers.get('x-svc-operator') !== '1') return anyDevice(request, relay);
  return isBareOperator(request, relay).then((isTool) => (isTool ? undefined : anyDevice(request, relay)));
};

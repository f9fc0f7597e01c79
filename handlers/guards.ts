import { bearerOf } from '../lib/access/bearer.ts';
import type { Refusal } from '../lib/access/local-operator.ts';
import { endOfOperatorToken } from '../lib/access/operator-token.ts';
import { limitKey } from '../lib/access/peer.ts';
import { RelayError } from '../lib/errors.ts';
import { isLoopbackName } from '../lib/kit/addresses.ts';
import type { Relay } from '../lib/relay.ts';
import { isGranted } from '../lib/sessions/grants.ts';
import type { Session } from '../lib/sessions/session.ts';
import { lacksGrant, type VoiceGrant } from '../lib/voice/principal.ts';
import { errorFor } from './errors.ts';
import type { Guard, RelayRequest } from './request.ts';

const INVALID_OPERATOR_TOKEN =
  'a valid operator token is required: signed with the key of this relay, for its name or public URL, and not expired';

/** Lets everyone through. */
export const open: Guard = () => undefined;

/**
 * Returns why the caller is not the operator, undefined if it is: on Node by the rules for local callers, at the edge, which
 * has no loopback, by a signed operator token.
 */
export async function operatorRefusal(request: RelayRequest, relay: Relay): Promise<Refusal | undefined> {
  if (request.peer.via !== 'edge') return relay.localOperator.refusal(request);
  const token = bearerOf(request.headers.get('authorization'));
  return (await relay.operatorTokens.verify(token, audiences(request, relay))) ? undefined : 'remote';
}

/** Expiry of the operator's token of an admitted request, epoch seconds; null on Node, where the operator has no token. */
export function operatorTokenEnd({ peer, headers }: RelayRequest): number | null {
  return peer.via === 'edge' ? endOfOperatorToken(bearerOf(headers.get('authorization'))) : null;
}

/**
 * The accepted audiences of an operator token: the relay's own name, its public URL, and the origin of the request if a list
 * of hosts vouches for it (contract 01 §12).
 */
function audiences({ url }: RelayRequest, { config }: Relay): string[] {
  const { origin, hostname } = new URL(url);
  const named = config.publicUrl === undefined ? [config.relayName] : [config.relayName, config.publicUrl];
  return config.relayHosts || isLoopbackName(hostname) ? [...named, origin] : named;
}

const SENTENCES: Record<Refusal, string> = {
  remote: 'only a process on this host may call this',
  'other-user': 'without X-Svc-Operator-Key only the user that runs the relay may call this',
  'no-key': 'this relay requires X-Svc-Operator-Key of every caller',
};

/** At the edge, which has no host and no processes. */
const NO_OPERATOR_TOKEN = 'only the operator may call this, with an operator token';

/** Reasons for the log. */
const REASONS: Record<Refusal, string> = {
  remote: 'remote, forwarded, or from a web page',
  'other-user': 'another user of this host, without the operator key',
  'no-key': 'without the operator key',
};

async function logRefusal(request: RelayRequest, relay: Relay, refusal: Refusal): Promise<void> {
  const caller = await relay.localOperator.describe(request.peer);
  const path = loggedPath(request);
  const reason = request.peer.via === 'edge' ? 'without an operator token' : REASONS[refusal];
  const route = `${request.method} ${path} ${refusal}`;
  relay.refusals.note(
    limitKey(request.peer.address),
    route,
    `refused an operator call from ${caller} to ${path}: ${reason}`,
  );
}

async function refuse(request: RelayRequest, relay: Relay, refusal: Refusal): Promise<never> {
  await logRefusal(request, relay, refusal);
  throw new RelayError('forbidden', request.peer.via === 'edge' ? NO_OPERATOR_TOKEN : SENTENCES[refusal]);
}

/**
 * The path of a request for the log, without credentials: a media token, and the prefix of a session, which may be its
 * whole token (contract 04 §1.3, 01 §10).
 */
function loggedPath({ url, params }: RelayRequest): string {
  const hidden = new Map(['token', 'prefix'].map((name) => [params[name], `{${name}}`]));
  const segments = new URL(url).pathname.split('/');
  return segments.map((segment) => hidden.get(segment) ?? segment).join('/');
}

const NO_BEARER = 'a valid session bearer is required';

/** The session of the request's bearer, marked as seen. A promise only if the session is bound to a key. */
function sessionOf(request: RelayRequest, relay: Relay, refusal = NO_BEARER): Session | Promise<Session> {
  const token = bearerOf(request.headers.get('authorization'));
  const found = token === null ? undefined : relay.sessionBearers.sessionOf(token, request);
  const checked = (session: Session | undefined): Session => {
    if (session) return session;
    const over = token === null ? undefined : relay.sessions.endedSentence({ token });
    throw new RelayError('unauthorized', over ?? refusal);
  };
  return found instanceof Promise ? found.then(checked) : checked(found);
}

/** The operator only. Needs no bearer, but refuses an invalid one (contract 01 §1.1). */
export const operator: Guard = async (request, relay) => {
  const isEdge = request.peer.via === 'edge';
  const hasBearer = request.headers.has('authorization');
  const refusal = await operatorRefusal(request, relay);
  if (refusal) {
    // A device's token is not an operator token, but valid nevertheless.
    if (isEdge && hasBearer) await sessionOf(request, relay, INVALID_OPERATOR_TOKEN);
    await refuse(request, relay, refusal);
  }
  if (!isEdge && hasBearer) await sessionOf(request, relay);
};

/** A device with a live session and, if given, the grant. `refusal` is the error for a missing grant. */
export function paired(grant?: string, refusal = `this device has no ${grant} grant, or it has expired`): Guard {
  return (request, relay) => {
    const admit = (session: Session): undefined => {
      if (grant !== undefined && !isGranted(session.grants, grant, relay.clock.now() / 1000)) {
        throw new RelayError('forbidden', refusal);
      }
      request.session = session;
      request.readmit = () => admit(livingOf(session, relay));
    };
    const session = sessionOf(request, relay);
    return session instanceof Promise ? session.then(admit) : admit(session);
  };
}

/** The session of a request that has begun. A refresh, which gives its device a new one, does not end the request. */
function livingOf({ family }: Session, { sessions }: Relay): Session {
  const session = sessions.byFamily(family);
  if (session) return session;
  throw new RelayError('unauthorized', 'the session has ended');
}

const anyDevice = paired();

/** True if the caller of a guarded request still has a grant. The operator, who has no session, has all grants. */
export const hasGrant = ({ session }: RelayRequest, relay: Relay, grant: string): boolean =>
  session === undefined || (!session.ended && isGranted(session.grants, grant, relay.clock.now() / 1000));

/** True for a session bearer, which is always checked as one. At the edge, the bearer may be an operator token. */
const hasSessionBearer = ({ peer, headers }: RelayRequest): boolean =>
  peer.via !== 'edge' && headers.has('authorization');

/** True if the operator calls without a session bearer. */
export const isOperatorWithoutBearer = async (request: RelayRequest, relay: Relay): Promise<boolean> =>
  !hasSessionBearer(request) && (await operatorRefusal(request, relay)) === undefined;

/** The operator without a bearer, or a paired device. A bearer must always be valid (contract 01 §1.1). */
export function operatorOrPaired(grant?: string): Guard {
  const device = paired(grant);
  return (request, relay) => (hasSessionBearer(request) ? device(request, relay) : operatorOr(device, request, relay));
}

/** A local caller that is not the operator gets the reason, as 401. */
async function operatorOr(device: Guard, request: RelayRequest, relay: Relay): Promise<Response | undefined> {
  const refusal = await operatorRefusal(request, relay);
  if (refusal === 'remote') return device(request, relay);
  if (refusal === undefined) return undefined;
  await logRefusal(request, relay, refusal);
  throw new RelayError('unauthorized', `${NO_BEARER}; ${SENTENCES[refusal]}`);
}

/** Like `operatorOrPaired`, but answers 403 instead of 401 to other callers without a bearer (contract 01 §8.1). */
export const loopbackOrPaired: Guard = async (request, relay) => {
  if (hasSessionBearer(request)) return anyDevice(request, relay);
  const refusal = await operatorRefusal(request, relay);
  if (refusal === undefined) return undefined;
  return request.headers.has('authorization') ? anyDevice(request, relay) : refuse(request, relay, refusal);
};

/**
 * A paired device, or a host tool that sends `X-Svc-Operator: 1` from strict loopback (contract 01 §6.3). At the edge the
 * operator's token suffices.
 */
export function pairedOrHostTool(grant?: string): Guard {
  const device = paired(grant);
  const deviceOrHint = pairedWithHint('tools on this host send X-Svc-Operator: 1 instead', device);
  return (request, relay) => {
    if (hasSessionBearer(request)) return device(request, relay);
    const hasToken = request.peer.via === 'edge' && request.headers.has('authorization');
    const isTool = hasToken || request.headers.get('x-svc-operator') === '1';
    return isTool ? operatorOr(device, request, relay) : deviceOrHint(request, relay);
  };
}

/** A paired device. For the operator's call without a bearer, `hint` names the header that a host tool has to send. */
export function pairedWithHint(hint: string, device: Guard): Guard {
  const hinted: Guard = async (request, relay) => {
    if (await isOperatorWithoutBearer(request, relay)) {
      throw new RelayError('unauthorized', `${NO_BEARER}; ${hint}`);
    }
    return device(request, relay);
  };
  return (request, relay) => (request.headers.has('authorization') ? device : hinted)(request, relay);
}

/**
 * A paired device with the grant, or a caller with an API key of the agent, which authorises voice only (contract 05 §2).
 * Puts the caller in `request.voice`.
 */
export function voice(grant: VoiceGrant): Guard {
  return async (request, relay) => {
    // The API server must not see an operator token, which grants far more than that server's clients have.
    const isOperatorToken = request.peer.via === 'edge' && (await operatorRefusal(request, relay)) === undefined;
    if (isOperatorToken) throw new RelayError('unauthorized', 'an operator token does not open voice');
    request.voice = await relay.voice.callers.authenticate(request, grant);
    if (request.voice.kind !== 'session') return;
    const { session } = request.voice;
    request.session = session;
    request.readmit = () => {
      request.session = livingOf(session, relay);
      if (!hasGrant(request, relay, grant)) throw lacksGrant(grant);
    };
  };
}

const FOREIGN_HOST = 'this relay does not answer browsers under that host name; its operator can add it to RELAY_HOSTS';

/**
 * Refuses a browser that calls this relay by a foreign name, such as a page that rebinds its name to the relay's address
 * (contract 01 §9.1a). Runs before everything that counts attempts.
 */
export function misdirected(request: RelayRequest, { ownHosts }: Relay): Promise<Response | undefined> | undefined {
  const isForeign = ownHosts.isForeign(request.peer, request.headers);
  if (isForeign === false) return undefined;
  return Promise.resolve(isForeign).then((is) => (is ? errorFor(request, 421, FOREIGN_HOST) : undefined));
}

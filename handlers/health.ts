import { isStrictLoopback } from '../lib/access/loopback.ts';
import type { Readiness, Relay } from '../lib/relay.ts';
import { linkHealth } from '../lib/secure-link/candidate.ts';
import { WebResponse } from '../lib/web/response.ts';
import type { Handler, RelayRequest } from './request.ts';

/** `secure_link.reach` without a connector to a broker (contract 08 §6.1). */
const NO_REACH = JSON.stringify({
  enabled: false,
  state: 'disabled',
  status: 'disabled',
  connected: false,
  last_error: null,
  transport: 'opaque_inner_tls',
});

const DISABLED = linkHealth('disabled', null);

const READINESS: Record<Readiness, string> = {
  starting: '"ready":false,"state":"starting"',
  ready: '"ready":true,"state":"ready"',
  stopping: '"ready":false,"state":"stopping"',
};

const ANSWER = { status: 200, headers: { 'content-type': 'application/json', 'x-content-type-options': 'nosniff' } };

/** `GET /health` (contract 01 §2, 08 §6.1). Assembled from cached pieces of JSON, since probes request it constantly. */
export const health: Handler = (request, relay) =>
  new WebResponse(
    `{"status":"ok","version":${JSON.stringify(relay.version)},"clients":${relay.sockets.count()},` +
      `"sessions":${relay.sessions.count()},"readiness":{${READINESS[relay.state]},` +
      `"checks":{"session_store":"${relay.storeState()}"}},${relay.gate.state() ? '"frozen":true,' : ''}` +
      `${secureMembers(request, relay)}}`,
    ANSWER,
  );

function secureMembers(request: RelayRequest, { secureLink, reach }: Relay): string {
  const { problem = null, health: { proxy, members } = DISABLED } = secureLink ?? {};
  const hasReach = reach !== undefined && reach.health(false).state !== 'disabled';
  // Reasons of failures and the broker's URL are for this host's operator only.
  const isLocal = (problem !== null || hasReach) && isStrictLoopback(request);
  const link = problem !== null && isLocal ? `${members},"reason":${JSON.stringify(problem)}` : members;
  const broker = hasReach ? JSON.stringify(reach.health(isLocal)) : NO_REACH;
  return `${proxy === null ? '' : `"secure_proxy":${proxy},`}"secure_link":{${link},"reach":${broker}}`;
}

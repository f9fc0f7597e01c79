import type { ProbeResult } from '../../host/probe.ts';
import type { Heartbeat, PriorExit } from '../gateway.ts';
import { adviceFor, type Base, type Check, ok, outcome, unknown, warn } from './check.ts';

export interface ApiFacts {
  capabilities: ProbeResult;
  toolsets: ProbeResult;
}

/** Checks of the agent's API server (contract 07 §5.2). */
export function apiChecks({ capabilities, toolsets }: ApiFacts, base: Base): Check[] {
  return [
    capabilities.ok
      ? ok('api-capabilities', `${base.url} answers /v1/capabilities`)
      : warn('api-capabilities', `${capabilities.url}: ${outcome(capabilities)}`, apiAdvice(capabilities, base)),
    toolsets.exists
      ? ok('api-toolsets', `${base.url} has /v1/toolsets`)
      : warn('api-toolsets', `${toolsets.url}: ${outcome(toolsets)}`, apiAdvice(toolsets, base)),
  ];
}

function apiAdvice(result: ProbeResult, base: Base): string {
  const { status } = result;
  if (status === null) return adviceFor("the agent's API server", result, base, '--api-url', 'RELAY_WEBAPI_URL');
  if (status === 404) return 'Update the agent: its API server has no such route.';
  if (status === 401 || status === 403) {
    return 'This route requires a key, which this command does not send. Chat is not affected.';
  }
  return "Check the API server's own log, then run this again.";
}

const RESTART = "Restart the agent's gateway.";

/** Checks of the agent's gateway, from the files that it writes (contract 07 §3.1, §5.2). */
export const gatewayChecks = (heartbeat: Heartbeat, priorExit: PriorExit): Check[] => [
  heartbeatCheck(heartbeat),
  priorExitCheck(priorExit),
];

function heartbeatCheck({ status, age_seconds }: Heartbeat): Check {
  const id = 'gateway-heartbeat';
  switch (status) {
    case 'fresh':
      return ok(id, `the last heartbeat is ${age_seconds} s old`);
    case 'legacy':
      return ok(id, 'this gateway writes no heartbeat, only its pid');
    case 'missing':
      return unknown(id, 'no gateway has written a heartbeat here');
    case 'stale':
      return warn(id, `the last heartbeat is ${age_seconds} s old`, `The gateway hangs or has exited. ${RESTART}`);
    case 'malformed':
      return warn(id, 'the heartbeat cannot be read', `Check whether the disk is full. ${RESTART}`);
    case 'pid_mismatch':
      return warn(
        id,
        'the heartbeat and gateway.pid name different processes',
        `Stop all gateways but one. ${RESTART}`,
      );
    case 'start_mismatch':
      return warn(id, 'the heartbeat is from an earlier start of the gateway', RESTART);
  }
}

function priorExitCheck({ prior_exit, suspected_oom }: PriorExit): Check {
  const id = 'gateway-prior-exit';
  if (prior_exit === 'clean') return ok(id, 'the gateway last exited cleanly');
  if (prior_exit === 'unknown') return unknown(id, 'how the gateway last exited is unknown');
  return suspected_oom
    ? warn(id, 'the gateway was killed, apparently for lack of memory', 'Give the machine or the agent more memory.')
    : warn(id, 'the gateway did not exit cleanly the last time', 'Check logs/gateway-exit-diag.log in the agent home.');
}

import type { Heartbeat } from '../heartbeat.ts';
import type { PriorExit } from '../prior-exit.ts';
import { type Check, ok, warn } from './check.ts';

const RESTART = "Restart the agent's gateway.";

/** The agent's gateway, from the files it leaves (contract 07 §3.1, §5.2). */
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
      return ok(id, 'no gateway has left a heartbeat here');
    case 'stale':
      return warn(id, `the last heartbeat is ${age_seconds} s old`, `The gateway hangs or has ended. ${RESTART}`);
    case 'malformed':
      return warn(id, 'the heartbeat cannot be read', `See whether the disk is full. ${RESTART}`);
    case 'pid_mismatch':
      return warn(id, 'the heartbeat is of another process than gateway.pid', `Stop all gateways but one. ${RESTART}`);
    case 'start_mismatch':
      return warn(id, 'the heartbeat is of an earlier start of the gateway', RESTART);
  }
}

function priorExitCheck({ prior_exit, suspected_oom }: PriorExit): Check {
  const id = 'gateway-prior-exit';
  if (prior_exit === 'clean') return ok(id, 'the gateway ended in order the last time');
  if (prior_exit === 'unknown') return ok(id, 'how the gateway ended the last time is not known');
  return suspected_oom
    ? warn(id, 'the gateway was killed, it seems for want of memory', 'Give the machine or the agent more memory.')
    : warn(
        id,
        'the gateway did not end in order the last time',
        'Look into logs/gateway-exit-diag.log of the agent home.',
      );
}

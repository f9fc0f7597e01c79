import { createNodeUpstream } from '../../lib/host/node/upstream.ts';
import { createNodeDialUpstream } from '../../lib/host/node/upstream-socket.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import type { ProbeDeps } from '../../lib/voice/own-servers.ts';

/** Milliseconds for one request to a server. */
const PROBE_TIMEOUT = 3000;

/** Probes speech servers from this machine. */
export const createProbe = (signal: AbortSignal): ProbeDeps => ({
  upstream: createNodeUpstream(),
  dialUpstream: createNodeDialUpstream(),
  clock: systemClock,
  timeout: PROBE_TIMEOUT,
  signal,
});

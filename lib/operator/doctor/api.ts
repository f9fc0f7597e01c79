import type { ProbeResult } from '../../host/probe.ts';
import type { Base } from './bases.ts';
import { type Check, ok, outcome, warn } from './check.ts';

export interface ApiFacts {
  capabilities: ProbeResult;
  toolsets: ProbeResult;
}

/** The agent's API server (contract 07 §5.2). */
export function apiChecks({ capabilities, toolsets }: ApiFacts, base: Base): Check[] {
  return [
    capabilities.ok
      ? ok('api-capabilities', `${base.url} answers /v1/capabilities`)
      : warn('api-capabilities', `${capabilities.url}: ${outcome(capabilities)}`, wayOut(capabilities, base)),
    toolsets.exists
      ? ok('api-toolsets', `${base.url} has /v1/toolsets`)
      : warn('api-toolsets', `${toolsets.url}: ${outcome(toolsets)}`, wayOut(toolsets, base)),
  ];
}

function wayOut(result: ProbeResult, base: Base): string {
  const { status } = result;
  if (status === null) return elsewhere("the agent's API server", result, base, '--api-url', 'RELAY_WEBAPI_URL');
  if (status === 404) return 'Update the agent: its API server has no such route.';
  if (status === 401 || status === 403) {
    return 'The server wants a key for this route, and none is sent here. Chat through it is not affected.';
  }
  return "Look into the API server's own log, then run this again.";
}

/** What to do about a service that does not answer. */
export function elsewhere(service: string, result: ProbeResult, base: Base, flag: string, variable: string): string {
  const { url, source } = base;
  if (url === '') return `Correct ${source}: it must be an http:// or https:// URL.`;
  const place = source === null || source === flag ? `${flag} or ${variable}` : `${flag} or by correcting ${source}`;
  const verb = result.error === 'connection refused' ? 'Start' : 'See to';
  return `${verb} ${service}, or say where it is with ${place}.`;
}

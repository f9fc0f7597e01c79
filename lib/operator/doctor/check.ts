import type { ProbeResult } from '../../host/probe.ts';

export type CheckStatus = 'ok' | 'warn' | 'error';

/** One verdict of the doctor. The JSON's `checks` have the first three members only; its `groups` have more. */
export interface Check {
  id: string;
  status: CheckStatus;
  /** One line. May quote a probed service, so make it printable before it goes to a terminal. */
  summary: string;
  /** Advice, unless the status is `ok`. */
  next?: string;
  /** Set if too little is known for a verdict. */
  isUnknown?: true;
  /** Id of another check that explains this one if both have a problem. */
  cause?: string;
}

/** Advice for checks that ran out of time. */
export const MORE_TIME = 'Run this again with more time, such as --timeout 10.';

export const ok = (id: string, summary: string): Check => ({ id, status: 'ok', summary });
/** A check without a result, which the contract counts as `ok`. */
export const unknown = (id: string, summary: string): Check => ({ id, status: 'ok', summary, isUnknown: true });
/** A check without enough facts for a verdict, which is a warning to scripts. */
export const notKnown = (id: string, summary: string, cause?: string): Check => ({
  ...{ id, status: 'warn', summary: `not known: ${summary}` },
  isUnknown: true,
  ...(cause !== undefined && { cause }),
});
export const warn = (id: string, summary: string, next: string): Check => ({ id, status: 'warn', summary, next });
export const fail = (id: string, summary: string, next: string): Check => ({ id, status: 'error', summary, next });

/** Outcome of a failed probe, in a few words. */
export const outcome = ({ status, error }: ProbeResult): string => error ?? `answered ${status}`;

type Env = Readonly<Record<string, string | undefined>>;

/** Address of a service. */
export interface Base {
  /** Without user info, query and trailing slash; empty if the configured text is not a URL. */
  url: string;
  /** Flag or variable that configures it; null for the default. */
  source: string | null;
}

const API_VARIABLES = ['SVC_API_URL', 'RELAY_WEBAPI_URL', 'WEBAPI_URL'];
const DASHBOARD_VARIABLES = ['SVC_DASHBOARD_URL', 'SVC_WEB_URL', 'DASHBOARD_URL'];

/** Address of the agent's API server: flag, variables in order, default (contract 07 §5.2). */
export const apiBase = (flag: string | undefined, env: Env): Base =>
  base('--api-url', flag, API_VARIABLES, env, 'http://127.0.0.1:8642');

/** Address of the agent's dashboard, likewise. */
export const dashboardBase = (flag: string | undefined, env: Env): Base =>
  base('--dashboard-url', flag, DASHBOARD_VARIABLES, env, 'http://127.0.0.1:9119');

function base(name: string, flag: string | undefined, variables: string[], env: Env, fallback: string): Base {
  if (flag !== undefined) return { url: plainUrl(flag), source: name };
  for (const variable of variables) {
    const text = env[variable]?.trim();
    if (text) return { url: plainUrl(text), source: variable };
  }
  return { url: fallback, source: null };
}

/** A report is shown to others, so it contains neither credentials nor any text that is not an address. */
function plainUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!url || !/^https?:$/.test(url.protocol)) return '';
  return `${url.protocol}//${url.host}${url.pathname}`.replace(/\/+$/, '');
}

/** Advice on a service that does not answer. */
export function adviceFor(service: string, result: ProbeResult, base: Base, flag: string, variable: string): string {
  const { url, source } = base;
  if (url === '') return `Correct ${source}: it must be an http:// or https:// URL.`;
  const place = source === null || source === flag ? `${flag} or ${variable}` : `${flag} or by correcting ${source}`;
  const verb = result.error === 'connection refused' ? 'Start' : 'See to';
  return `${verb} ${service}, or say where it is with ${place}.`;
}

type Env = Readonly<Record<string, string | undefined>>;

/** Where a service is looked for. */
export interface Base {
  /** Without user info, query and final slash; the empty text when what was configured is no URL. */
  url: string;
  /** The flag or variable that says so, or null for the default. */
  source: string | null;
}

const API_VARIABLES = ['SVC_API_URL', 'RELAY_WEBAPI_URL', 'WEBAPI_URL'];
const DASHBOARD_VARIABLES = ['SVC_DASHBOARD_URL', 'SVC_WEB_URL', 'DASHBOARD_URL'];

/** The agent's API server: flag, variables in order, default (contract 07 §5.2). */
export const apiBase = (flag: string | undefined, env: Env): Base =>
  base('--api-url', flag, API_VARIABLES, env, 'http://localhost:8642');

/** The agent's dashboard, likewise. */
export const dashboardBase = (flag: string | undefined, env: Env): Base =>
  base('--dashboard-url', flag, DASHBOARD_VARIABLES, env, 'http://localhost:9119');

function base(name: string, flag: string | undefined, variables: string[], env: Env, fallback: string): Base {
  if (flag !== undefined) return { url: plainUrl(flag), source: name };
  for (const variable of variables) {
    const text = env[variable]?.trim();
    if (text) return { url: plainUrl(text), source: variable };
  }
  return { url: fallback, source: null };
}

/** A report is shown to others: no credentials, and no text of which we do not know that it is an address. */
function plainUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : null;
  if (!url || !/^https?:$/.test(url.protocol)) return '';
  return `${url.protocol}//${url.host}${url.pathname}`.replace(/\/+$/, '');
}

import type { Readiness } from '../lib/relay.ts';
import { WebResponse } from '../lib/web/response.ts';
import type { Handler } from './request.ts';

/** What Secure Link looks like while it is not enabled (contract 01 §2). */
const SECURE_LINK = JSON.stringify({
  display_name: 'Secure Link',
  description: 'Reach this relay, its API and its dashboard over one pinned TLS connection.',
  enabled: false,
  status: 'disabled',
  security: 'pinned_tls',
  capabilities: ['relay', 'api', 'dashboard'],
  services: {
    relay: {
      supported: true,
      base_path: '/relay',
      health_path: '/relay/health',
      websocket_path: '/relay/ws',
      authentication: 'relay_session',
    },
    api: { supported: true, base_path: '/api', authentication: 'api_bearer' },
    dashboard: { supported: true, base_path: '/dashboard', authentication: 'dashboard_session' },
  },
  reach: {
    enabled: false,
    state: 'disabled',
    status: 'disabled',
    connected: false,
    last_error: null,
    transport: 'opaque_inner_tls',
  },
});

const READINESS: Record<Readiness, string> = {
  starting: '"ready":false,"state":"starting"',
  ready: '"ready":true,"state":"ready"',
  stopping: '"ready":false,"state":"stopping"',
};

const ANSWER = { status: 200, headers: { 'content-type': 'application/json', 'x-content-type-options': 'nosniff' } };

/** `GET /health` (contract 01 §2). Put together from finished pieces of JSON: probes ask for this all the time. */
export const health: Handler = (_request, relay) =>
  new WebResponse(
    `{"status":"ok","version":${JSON.stringify(relay.version)},"clients":${relay.sockets.count()},` +
      `"sessions":${relay.sessions.count()},"readiness":{${READINESS[relay.state]},` +
      `"checks":{"session_store":"${relay.storeState()}"}},"secure_link":${SECURE_LINK}}`,
    ANSWER,
  );

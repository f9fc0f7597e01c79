import { DESCRIPTION, DISPLAY_NAME, SERVICES, SURFACES } from './candidate.ts';
import type { Availability } from './gate.ts';

/** Counters of this relay, as in `GET /health`. */
interface Counters {
  version: string;
  clients: number;
  sessions: number;
}

/** Body of `GET /relay/health` (contract 08 §3). */
export const surfaceHealth = ({ version, clients, sessions }: Counters, { api, dashboard }: Availability) => ({
  status: 'ok',
  version,
  clients,
  sessions,
  surface: 'svc_secure_proxy',
  display_name: DISPLAY_NAME,
  description: DESCRIPTION,
  security: 'pinned_tls',
  capabilities: SURFACES,
  namespaces: SURFACES,
  services: {
    relay: { ...SERVICES.relay, available: true },
    api: { ...SERVICES.api, available: api },
    dashboard: { ...SERVICES.dashboard, available: dashboard },
  },
});

import type { AdvertisedLink } from './advertised.ts';

export type SecureLinkStatus = 'disabled' | 'available' | 'unavailable';

export const SURFACES = ['relay', 'api', 'dashboard'];
export const DISPLAY_NAME = 'Secure Link';
export const DESCRIPTION = 'Reach this relay, its API and its dashboard over one pinned TLS connection.';

export const SERVICES = {
  relay: {
    supported: true,
    base_path: '/relay',
    health_path: '/relay/health',
    websocket_path: '/relay/ws',
    authentication: 'relay_session',
  },
  api: { supported: true, base_path: '/api', authentication: 'api_bearer' },
  dashboard: { supported: true, base_path: '/dashboard', authentication: 'dashboard_session' },
};

/** The address and pin of the origin: part of every candidate that leads to it. */
const linkProxy = ({ url, pin, certDer }: AdvertisedLink) => ({
  url,
  transport_hint: 'https',
  pin_sha256: pin,
  cert_der: certDer,
  surfaces: [...SURFACES],
});

/**
 * The direct route in a pairing payload. Without `services`, which would make it too large for a QR code (contract 08 §6.2).
 */
export const linkCandidate = (link: AdvertisedLink) => ({
  role: 'plugin_proxy',
  priority: 0,
  // Desktop clients probe every other route without the pin, and fail.
  recommended: true,
  security: 'pinned_tls',
  display_name: DISPLAY_NAME,
  proxy: linkProxy(link),
});

/** The route through a broker; `broker` is the broker's part of it. Clients try it after all other routes. */
export const brokerCandidate = <Broker extends object>(link: AdvertisedLink, broker: Broker) => ({
  role: 'outbound_broker',
  priority: 0,
  recommended: false,
  experimental: true,
  security: 'e2ee_pinned_tls',
  broker: { ...broker } as { [Member in keyof Broker]: Broker[Member] },
  proxy: linkProxy(link),
});

/** `secure_proxy` of `GET /health` (contract 08 §6.3). */
const secureProxyHealth = (link: AdvertisedLink) => ({
  ...linkCandidate(link),
  description: DESCRIPTION,
  capabilities: SURFACES,
  proxy: { ...linkProxy(link), services: SERVICES },
});

/** `secure_link` of `GET /health` without `reach` (contract 08 §6.1). */
const secureLinkHealth = (status: SecureLinkStatus) => ({
  display_name: DISPLAY_NAME,
  description: DESCRIPTION,
  enabled: status !== 'disabled',
  status,
  security: 'pinned_tls',
  capabilities: SURFACES,
  services: SERVICES,
});

/** The part of `GET /health` about Secure Link, as JSON: probes request it constantly, and it rarely changes. */
export interface LinkHealth {
  /** `secure_proxy`; null without one. */
  proxy: string | null;
  /** Members of `secure_link`, to be followed by `reach`. */
  members: string;
}

export const linkHealth = (status: SecureLinkStatus, advertised: AdvertisedLink | null): LinkHealth => ({
  proxy: advertised && JSON.stringify(secureProxyHealth(advertised)),
  members: JSON.stringify(secureLinkHealth(status)).slice(1, -1),
});

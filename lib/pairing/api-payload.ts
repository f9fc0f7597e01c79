import type { ApiTarget } from './payload.ts';
import { type Payload, signPayload } from './signature.ts';

/** A payload for the API server alone: no relay, no code, format marker 1 (contract 01 §9.4). */
export function buildApiPayload(api: ApiTarget, dashboardUrl: string | undefined, secret: Uint8Array | null): Payload {
  const payload: Payload = {
    svc: 1,
    host: api.host,
    port: api.port,
    key: api.key,
    tls: api.tls,
    dashboard_url: dashboardUrl,
  };
  return secret ? { ...payload, sig: signPayload(payload, secret) } : payload;
}

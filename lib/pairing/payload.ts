import { base64url, utf8ToBytes } from '../kit/bytes.ts';
import type { Candidate } from './candidates.ts';
import type { CodePolicy } from './policy.ts';
import { type Payload, signPayload } from './signature.ts';

/** The agent's API server as a phone reaches it. `key` is its bearer token; empty means open access. */
export interface ApiTarget {
  host: string;
  port: number;
  tls: boolean;
  key: string;
}

export interface PayloadFields {
  /** Null if the API server is disabled. */
  api: ApiTarget | null;
  /** Absent in a payload for the API server alone (contract 01 §9.4). */
  relay?: { url: string; code: string; secret?: string; policy: CodePolicy };
  endpoints?: Candidate[];
  dashboardUrl?: string;
}

/** The format marker: the lowest version of the format that includes every key of the payload. */
const marker = ({ endpoints, relay }: PayloadFields): number => {
  if (endpoints?.length) return 3;
  return Object.values(relay?.policy ?? {}).some((value) => value !== undefined) ? 2 : 1;
};

/**
 * Builds the QR payload: keys in the order of contract 01 §5.4, `sig` last and only with a secret. Every number is an
 * integer: phones drop a payload with a fraction.
 */
export function buildPayload(fields: PayloadFields, secret: Uint8Array | null): Payload {
  const { api, relay, endpoints, dashboardUrl } = fields;
  const payload: Payload = {
    svc: marker(fields),
    ...(api && { host: api.host, port: api.port, key: api.key, tls: api.tls }),
    relay: relay && {
      url: relay.url,
      code: relay.code,
      secret: relay.secret,
      ttl_seconds: relay.policy.ttlSeconds,
      grants: relay.policy.grants,
      transport_hint: relay.policy.transportHint,
    },
    endpoints: endpoints?.length ? endpoints : undefined,
    dashboard_url: dashboardUrl,
  };
  return secret ? { ...payload, sig: signPayload(payload, secret) } : payload;
}

/** The pairing link for a payload's text. */
export const pairingUrl = (payload: string): string => `svc-relay://pair?payload=${base64url(utf8ToBytes(payload))}`;

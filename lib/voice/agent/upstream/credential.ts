import { isPrintable } from '../../../kit/text.ts';

/** Credential for calls to the agent's API server. Never for logs, events or errors. */
export interface UpstreamCredential {
  /** Empty without one, since open local servers need none. */
  secret: string;
  /** Owner of the secret: the caller (its own bearer), the relay (its key), or nobody. */
  origin: 'caller' | 'relay' | 'none';
}

/** The opener of a voice session. Paired callers have a relay token, which must never be sent to the API server. */
export type UpstreamCaller = { kind: 'api'; bearer: string } | { kind: 'session' };

/**
 * Returns a function that looks up the credential for one caller (contract 06 §5.1). It is called for each run, because
 * the agent may change its key. `apiKey` reads that key from the agent's configuration, its `.env` and the environment.
 */
export function credentialOf(caller: UpstreamCaller, apiKey: () => Promise<string>): () => Promise<UpstreamCredential> {
  if (caller.kind === 'api') return async () => ({ secret: caller.bearer, origin: 'caller' });
  return async () => {
    const secret = await apiKey();
    return secret !== '' && isPrintable(secret) ? { secret, origin: 'relay' } : { secret: '', origin: 'none' };
  };
}

/** Error message for a refused credential. Clients recognise its first words (contract 06 §1). */
export function refusedCredential(status: number, { origin }: UpstreamCredential): string {
  const used = {
    caller: "it refused the caller's own API key",
    relay: 'it refused the configured relay-side svc credential',
    none: 'no relay-side svc credential is configured',
  };
  return `svc broker auth failed: the API server answered HTTP ${status}; ${used[origin]}`;
}

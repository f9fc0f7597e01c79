import { isPrintable } from '../../../kit/text.ts';

/** Credential for calls to the agent's API server. Never for logs, events or errors. */
export interface UpstreamCredential {
  /** Empty without one, since open local servers need none. */
  secret: string;
  /** Owner of the secret: the caller (its own bearer), the relay (its key), or nobody. */
  origin: 'caller' | 'relay' | 'none';
}

/**
 * The credential for one caller (contract 06 §5.1): its own API key (`bearer`), or for a paired caller, whose token must
 * never be sent to the API server, the key that `apiKey` reads.
 */
export async function credentialOf(
  bearer: string | undefined,
  apiKey: () => Promise<string>,
): Promise<UpstreamCredential> {
  if (bearer !== undefined) return { secret: bearer, origin: 'caller' };
  const secret = await apiKey();
  return secret !== '' && isPrintable(secret) ? { secret, origin: 'relay' } : { secret: '', origin: 'none' };
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

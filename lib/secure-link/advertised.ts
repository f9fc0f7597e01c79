import type { HostNetwork } from '../host/index.ts';
import { isWildcard } from '../kit/addresses.ts';

/** The route as clients pin it (contract 08 §6.2). */
export interface AdvertisedLink {
  /** `https://host:port`. */
  url: string;
  authority: string;
  /** `sha256/` and base64. */
  pin: string;
  /** Base64 of the leaf's DER. */
  certDer: string;
}

/**
 * The advertised host of Secure Link: the bound one, or for a wildcard, an address of this machine (contract 08 §2.3). An
 * existing identity keeps its address while an interface still has it, so that a second interface does not change the origin
 * that phones have pinned.
 */
export async function advertisedHost(
  bindHost: string,
  isFor: ((host: string) => boolean) | undefined,
  network: HostNetwork,
): Promise<string> {
  if (!isWildcard(bindHost)) return bindHost;
  const routed = await network.lanAddress();
  if (!isFor) return routed ?? '127.0.0.1';
  const own = [...(routed === null ? [] : [routed]), ...network.addresses()];
  return own.find(isFor) ?? routed ?? '127.0.0.1';
}

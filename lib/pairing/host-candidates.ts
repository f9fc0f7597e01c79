import { RelayError } from '../errors.ts';
import type { HostNetwork } from '../host/index.ts';
import { isLoopbackName, splitUrl } from '../kit/addresses.ts';
import { type BuiltCandidate, buildCandidates, type Mode } from './build-candidates.ts';
import type { ApiTarget } from './payload.ts';

const MAX_URL = 2048;

export interface HostFacts {
  mode: Mode;
  /** The agent's API server from `resolveApiTarget`; null if it is disabled. */
  api: ApiTarget | null;
  /** The relay's listener. */
  relay: { port: number; tls: boolean; isLocal?: boolean };
  /** http(s) URL under which the operator publishes this relay. */
  publicUrl?: string;
  network: HostNetwork;
}

/** The present addresses of this host, best first (contract 01 §9.4). */
export async function hostCandidates({ mode, api, relay, publicUrl, network }: HostFacts): Promise<BuiltCandidate[]> {
  const [lanAddress, tailnet] = await Promise.all([
    network.lanAddress(),
    mode === 'lan' ? null : network.tailnet().catch(() => null),
  ]);
  // An API server on another machine keeps its address on the LAN route.
  const target = api && { ...api, host: isLoopbackName(api.host) ? undefined : api.host };
  return buildCandidates({ mode, api: target, relay, lanAddress, tailnet, publicUrl });
}

/**
 * Reads a public URL with or without a path; undefined if it is empty.
 * @throws RelayError `invalid` for any other text.
 */
export function readPublicUrl(text: string): string | undefined {
  const url = text.trim().replace(/\/+$/, '');
  if (url === '') return undefined;
  const parts = url.length <= MAX_URL && URL.canParse(url) ? splitUrl(url) : null;
  if (parts && /^https?$/.test(parts.scheme) && !/[?#@]/.test(url)) return url;
  throw new RelayError('invalid', 'public_url must be an http:// or https:// URL without user, query and fragment');
}

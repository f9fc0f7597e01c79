import { hasPublicName, isHost, splitUrl } from '../kit/addresses.ts';
import { asObject, type JsonObject } from '../kit/json.ts';
import type { Candidate } from '../pairing/candidates.ts';

const MAX_ORIGINS = 8;

/**
 * Origins of home for the content policy of the edge's page, which anybody can read: published ones, and names for which a
 * browser finds a valid certificate. Excludes addresses of the home network.
 */
export function pageOrigins(endpoints: readonly Candidate[]): string[] {
  const origins = endpoints.flatMap(({ role, relay, proxy, broker }) => {
    const url = asObject(relay)?.url;
    if (typeof url !== 'string' || proxy || broker) return [];
    if (String(role).toLowerCase() !== 'public' && !hasPublicName(url)) return [];
    return originOf(url.replace(/^ws/i, 'http')) ?? [];
  });
  return [...new Set(origins)].slice(0, MAX_ORIGINS);
}

/** Reads the origins sent by home; null unless each is a plain origin, so that nothing else gets into the policy. */
export function readPageOrigins({ origins }: JsonObject): string[] | null {
  if (!Array.isArray(origins) || origins.length > MAX_ORIGINS) return null;
  return origins.every((origin) => typeof origin === 'string' && originOf(origin) === origin) ? origins : null;
}

function originOf(url: string): string | undefined {
  const parts = splitUrl(url);
  if (!parts || !/^https?$/i.test(parts.scheme) || !isHost(parts.host) || !URL.canParse(url)) return undefined;
  const { origin } = new URL(url);
  return /^https?:\/\/[a-z0-9.[\]:_-]+$/.test(origin) ? origin : undefined;
}

import { RelayError } from '../errors.ts';
import { canonicalAddress, isPublicAddress, mayCarryCredentials, unbracket } from '../kit/addresses.ts';

const MAX_LENGTH = 2048;

/** The push services of browsers, and a public one for UnifiedPush. With a leading dot, every name below it. */
const SERVICES: readonly string[] = [
  'fcm.googleapis.com',
  '.push.services.mozilla.com',
  '.push.apple.com',
  '.notify.windows.com',
  'ntfy.sh',
];

export type EndpointPolicy = ReturnType<typeof createEndpointPolicy>;

/**
 * Decides which endpoints may be called: known push services, and those of `RELAY_PUSH_HOSTS` (contract 09 §6). Devices
 * choose the endpoint, so it must not lead into the relay's own network.
 */
export function createEndpointPolicy(listed: readonly string[]) {
  const hosts = new Set(listed);
  const addresses = new Set(listed.map(addressOf).filter((address) => address !== null));
  const isKnown = (host: string): boolean =>
    SERVICES.some((service) => (service.startsWith('.') ? host.endsWith(service) : host === service));

  return {
    /** The endpoint of a subscription. @throws RelayError `invalid` for one that must not be called. */
    read(value: unknown): URL {
      if (typeof value !== 'string' || value.length > MAX_LENGTH || !URL.canParse(value)) {
        throw new RelayError('invalid', `endpoint must be a URL of at most ${MAX_LENGTH} characters`);
      }
      const url = new URL(value);
      // Plain http only to a push service on this machine, where nobody can eavesdrop.
      const isSecure = url.protocol === 'https:' || (mayCarryCredentials(url) && hosts.has(url.host));
      if (!isSecure) throw new RelayError('invalid', 'endpoint must be an https:// URL');
      if (url.username !== '' || url.password !== '' || url.hash !== '') {
        throw new RelayError('invalid', 'endpoint must have no user, password or fragment');
      }
      if (hosts.has(url.host) || (url.port === '' && isKnown(url.hostname))) return url;
      throw new RelayError(
        'invalid',
        `endpoint is not at a known push service: the relay's operator adds ${url.host} to RELAY_PUSH_HOSTS`,
      );
    },

    /** True if an address of the push service's name may be called. */
    mayConnect: (address: string): boolean =>
      isPublicAddress(address) || addresses.has(canonicalAddress(address) ?? ''),
  };
}

/** The address of a listed `host` or `host:port`; null for a name. */
const addressOf = (host: string): string | null =>
  URL.canParse(`https://${host}`) ? canonicalAddress(unbracket(new URL(`https://${host}`).hostname)) : null;

/** True if a service accepts messages that show no notification. Apple's ends a subscription after a few of them. */
export const acceptsSilence = ({ hostname }: URL): boolean => !hostname.endsWith('.push.apple.com');

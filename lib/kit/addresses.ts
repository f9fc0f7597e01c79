const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;
/** The spelling that `URL` produces. */
const MAPPED_HEX = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/;
/** May be an IPv4-mapped address in any spelling. */
const MAYBE_MAPPED = /^[0:]+:ffff:[0-9a-f:.]+$/i;

/** Turns an IPv4-mapped IPv6 address, however it is spelt, into IPv4, and strips a zone from any other. */
export function plainAddress(address: string): string {
  if (!address.includes(':')) return address;
  const [plain = ''] = address.split('%');
  const mapped = MAPPED.exec(plain);
  if (mapped) return mapped[1] as string;
  const hex = MAYBE_MAPPED.test(plain) && MAPPED_HEX.exec(hostnameOf(plain) ?? '');
  if (!hex) return plain;
  const [high, low] = [Number.parseInt(hex[1] as string, 16), Number.parseInt(hex[2] as string, 16)];
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}

const IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;

/** The canonical spelling of an IP address, IPv4-mapped ones as IPv4 and without a zone; null for any other text. */
export function canonicalAddress(text: string): string | null {
  const plain = plainAddress(text);
  if (IPV4.test(plain)) return plain;
  if (!/^[\da-f:.]*:[\da-f:.]*$/i.test(plain)) return null;
  const address = normalize(plain);
  return address === null ? null : plainAddress(address);
}

/** IPv4 blocks that the public internet does not route (RFC 6890). */
const SPECIAL_IPV4: readonly (readonly [first: string, bits: number])[] = [
  ['0.0.0.0', 8],
  ['10.0.0.0', 8],
  ['100.64.0.0', 10],
  ['127.0.0.0', 8],
  ['169.254.0.0', 16],
  ['172.16.0.0', 12],
  ['192.0.0.0', 24],
  ['192.0.2.0', 24],
  ['192.168.0.0', 16],
  ['198.18.0.0', 15],
  ['198.51.100.0', 24],
  ['203.0.113.0', 24],
  ['224.0.0.0', 3],
];

const numberOf = (ipv4: string): number => ipv4.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);

/** True for an IP address of the public internet; false for private, local and reserved ones, and for names. */
export function isPublicAddress(text: string): boolean {
  const address = canonicalAddress(text);
  if (address === null) return false;
  if (!address.includes(':')) {
    const number = numberOf(address);
    return !SPECIAL_IPV4.some(([first, bits]) => {
      const size = 2 ** (32 - bits);
      return Math.floor(number / size) === Math.floor(numberOf(first) / size);
    });
  }
  // NAT64 (RFC 6052): packets go to the IPv4 address in the last 32 bits.
  const nat64 = /^64:ff9b::([0-9a-f]{1,4}):([0-9a-f]{1,4})$/.exec(address);
  if (nat64) return isPublicAddress(`::ffff:${nat64[1]}:${nat64[2]}`);
  // Global unicast, except documentation and tunnels that end at an IPv4 address (6to4, Teredo).
  return (
    /^[23]/.test(address) && /^[0-9a-f]{4}:/.test(address) && !/^(?:2001:db8:|2002:|2001:0?:|2001::)/.test(address)
  );
}

/** A host as written in a URL, with IPv6 in brackets. */
export const urlHost = (host: string): string => (host.includes(':') ? `[${unbracket(host)}]` : host);

/** A host without the brackets of IPv6. */
export const unbracket = (host: string): string => host.replace(/^\[(.*)\]$/, '$1');

/** The canonical spelling of a host name or address (`127.1` and `0:0::1` have others); null when invalid. */
function normalize(host: string): string | null {
  return hostnameOf(plainAddress(unbracket(host)));
}

function hostnameOf(host: string): string | null {
  const url = `http://${urlHost(host)}/`;
  return URL.canParse(url) ? unbracket(new URL(url).hostname) : null;
}

/** True if the text is a host name or address alone: no port, path, user or zone. */
export function isHost(text: string): boolean {
  if (text.length > 253) return false;
  const plain = /^[^\s/?#@\\:%[\]]+$/.test(text) || /^(?:[0-9a-f:.]+:[0-9a-f:.]*|\[[0-9a-f:.]+\])$/i.test(text);
  return plain && normalize(text) !== null;
}

/** True if a bind address means every address of the machine. */
export const isWildcard = (host: string): boolean => ['0.0.0.0', '::'].includes(normalize(host) ?? '');

/** True if a name resolves to the machine that resolves it. */
export function isLoopbackName(host: string): boolean {
  const name = normalize(host)?.replace(/\.$/, '') ?? '';
  return name === 'localhost' || name.endsWith('.localhost') || name === '::1' || /^127(?:\.\d+){3}$/.test(name);
}

/**
 * True if credentials may be sent to a URL: over TLS, or to this machine by a name that no resolver sees (some systems
 * ask one for `x.localhost`).
 */
export const mayCarryCredentials = ({ protocol, hostname }: URL): boolean =>
  protocol === 'https:' || (protocol === 'http:' && /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/.test(hostname));

export interface UrlParts {
  /** Lower case. */
  scheme: string;
  /** Without brackets. */
  host: string;
  /** As written; undefined when the URL has none. */
  port?: number;
  /** Path, query and fragment. */
  rest: string;
}

const URL_PARTS = /^([a-z]+):\/\/(?:[^/?#@]*@)?(\[[0-9a-f:.]+\]|[^:/?#@[\]\s]+)(?::(\d{1,5}))?([/?#].*)?$/i;

/**
 * Splits a URL; null when it is invalid. Unlike `new URL`, this keeps a port that is the scheme's default, and the path
 * as written.
 */
export function splitUrl(url: string): UrlParts | null {
  const match = URL_PARTS.exec(url);
  if (!match) return null;
  const [, scheme = '', host = '', port, rest = ''] = match;
  return { scheme: scheme.toLowerCase(), host: unbracket(host), port: port ? Number(port) : undefined, rest };
}

/** The port of a URL without one. */
export const defaultPort = (scheme: string): number => (/^(?:https|wss)$/.test(scheme) ? 443 : 80);

/** The URL of `parts`. */
export const joinUrl = ({ scheme, host, port, rest }: UrlParts): string =>
  `${scheme}://${urlHost(host)}${port === undefined ? '' : `:${port}`}${rest}`;

/** An http(s) URL without credentials, query, fragment and trailing slashes; null for any other text. */
export function cleanBase(text: string): string | null {
  if (!URL.canParse(text)) return null;
  const { protocol, username, password, origin, pathname } = new URL(text);
  if (!/^https?:$/.test(protocol) || username || password) return null;
  return origin + pathname.replace(/\/+$/, '');
}

/** An id as one segment of a URL's path; null for `.` and `..`, which a URL resolves even when they are encoded. */
export const pathSegment = (id: string): string | null =>
  /^\.{1,2}$/.test(id) ? null : encodeURIComponent(id.toWellFormed());

/**
 * True for a `wss:` URL at which a browser may find a valid certificate: nobody issues one for the addresses of a home, nor
 * for names that only its network knows.
 */
export const hasPublicName = (url: string): boolean => /^wss:\/\/(?:[\w-]+\.)+[a-z][\w-]*(?:[:/]|$)/i.test(url);

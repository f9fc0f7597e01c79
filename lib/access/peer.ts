/** Who is at the other end of a connection, as the runtime saw it. Never taken from a header except where said. */
export interface Peer {
  /** Address of the socket's other end; `null` where the runtime does not tell. */
  readonly address: string | null;
  readonly tls: boolean;
  /** `direct` on the relay's own listener of a host; `edge` where there is no loopback. */
  readonly via: 'direct' | 'edge' | 'secure-link' | 'reach';
}

/** Headers of a request, wherever it comes from. */
export interface HeaderReader {
  get(name: string): string | null;
  has(name: string): boolean;
}

const MAPPED = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i;
const MAPPED_HEX = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/i;
const WITH_PORT = /^(?:\[([^\]]+)\]|(\d+\.\d+\.\d+\.\d+)):\d+$/;

/** IPv4-mapped IPv6 as IPv4; everything else as it is, without a zone. */
export function plainAddress(address: string): string {
  if (!address.includes(':')) return address;
  const mapped = MAPPED.exec(address);
  if (mapped) return mapped[1] as string;
  const hex = MAPPED_HEX.exec(address);
  if (!hex) return address.split('%')[0] as string;
  const [high, low] = [Number.parseInt(hex[1] as string, 16), Number.parseInt(hex[2] as string, 16)];
  return [high >> 8, high & 255, low >> 8, low & 255].join('.');
}

/** `127.0.0.1` or `::1` and no other address of 127/8 (contract 01 §1.3). */
export function isLoopbackAddress(address: string | null): boolean {
  if (address === null) return false;
  const plain = plainAddress(address);
  return plain === '127.0.0.1' || plain === '::1';
}

/** The first four groups of an IPv6 address: one customer usually owns a whole /64. */
function network64(address: string): string {
  const [head = '', tail] = address.toLowerCase().split('::') as [string, string?];
  const start = head === '' ? [] : head.split(':');
  const end = tail ? tail.split(':') : [];
  const zeros = tail === undefined ? 0 : Math.max(0, 8 - start.length - end.length);
  const groups = [...start, ...Array<string>(zeros).fill('0'), ...end];
  return `${groups
    .slice(0, 4)
    .map((group) => group.replace(/^0+(?=.)/, ''))
    .join(':')}::/64`;
}

/** The name under which an address is limited (contract 01 §1.4). */
export function limitKey(address: string | null): string {
  if (address === null) return 'unknown';
  const plain = plainAddress(address.trim());
  return plain.includes(':') ? network64(plain) : plain;
}

/**
 * The limit key of a request: its socket's address, or, from a proxy on loopback that the operator trusts, the last
 * entry of `X-Forwarded-For`.
 */
export function peerKey(peer: Peer, headers: HeaderReader, trustProxyHeaders: boolean): string {
  if (trustProxyHeaders && peer.via === 'direct' && isLoopbackAddress(peer.address)) {
    const last = headers.get('x-forwarded-for')?.split(',').at(-1)?.trim();
    // Some proxies add the port: it changes with every connection, and would make each a peer of its own.
    const port = last ? WITH_PORT.exec(last) : null;
    if (last) return limitKey((port?.[1] ?? port?.[2] ?? last).slice(0, 64));
  }
  return limitKey(peer.address);
}

/** Whether the client's own leg is encrypted: TLS here, or at a trusted proxy on loopback. */
export function isSecureTransport(peer: Peer, headers: HeaderReader, trustProxyHeaders: boolean): boolean {
  if (peer.tls) return true;
  const proxied = trustProxyHeaders && peer.via === 'direct' && isLoopbackAddress(peer.address);
  return proxied && headers.get('x-forwarded-proto')?.split(',').at(-1)?.trim().toLowerCase() === 'https';
}

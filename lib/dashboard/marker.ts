import { hmac } from '@noble/hashes/hmac.js';
import { sha256 as sha256Bytes } from '@noble/hashes/sha2.js';
import { type HeaderReader, isLoopbackAddress, type Peer } from '../access/peer.ts';
import { canonicalAddress } from '../kit/addresses.ts';
import { bytesToHex, sha256, timingSafeEqual, utf8ToBytes } from '../kit/bytes.ts';

// Marks what the dashboard's ingress forwards, so that the relay never takes it for a local caller (contract 07 §4.3).

export const SECRET_HEADER = 'x-svc-dashboard-proxy-secret';
export const PEER_HEADER = 'x-svc-proxy-peer';
export const PROTO_HEADER = 'x-svc-proxy-proto';

const LABEL = 'svc-relay/dashboard-ingress/v1';
/** Characters of an address that are sent and read. */
const MAX_ADDRESS = 128;

/** Source of the marker secret: `SVC_RELAY_DASHBOARD_PROXY_SECRET`, else the secret that signs QR payloads. */
export interface MarkerSource {
  configured: string | undefined;
  /** Null when it can be neither read nor made. */
  signingSecret(): Promise<Uint8Array | null>;
}

/** The marker secret as lower-case hex; null when there is nothing to derive it from. */
export async function markerSecret({ configured, signingSecret }: MarkerSource): Promise<string | null> {
  if (configured !== undefined) return sha256(LABEL + configured);
  const secret = await signingSecret();
  return secret && bytesToHex(hmac(sha256Bytes, secret, utf8ToBytes(LABEL)));
}

/** The headers that mark a request from a client at `address`, as alternating names and values. */
export const markerHeaders = (secret: string, address: string | undefined, isSecure: boolean): string[] => [
  SECRET_HEADER,
  secret,
  PEER_HEADER,
  (address ?? '').slice(0, MAX_ADDRESS),
  PROTO_HEADER,
  isSecure ? 'wss' : 'ws',
];

export type IngressMarker = ReturnType<typeof createIngressMarker>;

/** Relay side of the marker. Derives the secret when the first marked request arrives. */
export function createIngressMarker(source: MarkerSource) {
  let deriving: Promise<string | null> | undefined;

  async function ofMarked(peer: Peer, headers: HeaderReader, given: string): Promise<Peer> {
    deriving ??= markerSecret(source);
    const secret = await deriving;
    if (secret === null) {
      // Lets the next call try again.
      deriving = undefined;
      return { address: peer.address, tls: peer.tls, via: 'ingress', transportHint: 'unknown' };
    }
    return timingSafeEqual(given, secret) ? peerBehind(peer, headers) : peer;
  }

  return {
    /**
     * The peer by which a request is judged: the dashboard's client where a loopback peer proves that it is the ingress,
     * else the peer itself. With no secret to compare, the peer counts as the ingress: its client would pass for a caller
     * on this host. Returns a promise only for requests that carry the secret's header.
     */
    peerOf(peer: Peer, headers: HeaderReader): Peer | Promise<Peer> {
      if (peer.via !== 'direct' || !isLoopbackAddress(peer.address)) return peer;
      const given = headers.get(SECRET_HEADER);
      return given === null ? peer : ofMarked(peer, headers, given);
    },
  };
}

function peerBehind(peer: Peer, headers: HeaderReader): Peer {
  const proto = headers.get(PROTO_HEADER);
  return {
    address: canonicalAddress((headers.get(PEER_HEADER) ?? '').slice(0, MAX_ADDRESS)) ?? peer.address,
    tls: proto === 'wss',
    via: 'ingress',
    transportHint: proto === 'ws' || proto === 'wss' ? proto : 'unknown',
  };
}

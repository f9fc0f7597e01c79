import { hmac } from '@noble/hashes/hmac.js';
import { sha256 as sha256Bytes } from '@noble/hashes/sha2.js';
import { type HeaderReader, isLoopbackAddress, type Peer } from '../access/peer.ts';
import { describeError } from '../errors.ts';
import type { HostFiles } from '../host/index.ts';
import type { HostUsers, Owner } from '../host/users.ts';
import { canonicalAddress } from '../kit/addresses.ts';
import { base64url, bytesToHex, randomBytes, sha256, timingSafeEqual, utf8ToBytes } from '../kit/bytes.ts';
import type { Log } from '../log.ts';

// Marks what the dashboard's ingress forwards, so that the relay never takes it for a local caller (contract 07 §4.3).

export const SECRET_HEADER = 'x-svc-dashboard-proxy-secret';
export const PEER_HEADER = 'x-svc-proxy-peer';
export const PROTO_HEADER = 'x-svc-proxy-proto';

const LABEL = 'svc-relay/dashboard-ingress/v1';
/** Characters of an address that are sent and read. */
const MAX_ADDRESS = 128;
const ROOT = 0;

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

const SIZE = 32;
/** Starts whose markers are still known as such: of this relay before, and of others on the same home. */
const MAX_STARTS = 8;
/** Base64url of 32 bytes. */
const FORM = /^[\w-]{43}$/;

/** Holds a secret for each of the last starts of relays on this home, the newest first (contract 01 §9.1a). */
const startsPath = (agentHome: string): string => `${agentHome}/svc-relay/dashboard-marker`;

/**
 * Secrets of the last starts, the newest first; empty when no relay has started here.
 * @throws when the file exists and cannot be read.
 */
export async function readStarts(files: HostFiles, agentHome: string): Promise<string[]> {
  const text = await files.readText(startsPath(agentHome), 4096);
  return (text ?? '').split('\n').filter((line) => FORM.test(line));
}

/** The marker secret of an ingress that runs as `user`, for a relay that made `start` (contract 01 §9.1a). */
export const markerOfStart = (start: string, user: number | null): string =>
  bytesToHex(hmac(sha256Bytes, utf8ToBytes(start), utf8ToBytes(`${LABEL}/${user}`)));

/** The parts with which a relay on a host makes its marker anew at each start, and learns whose process sends it. */
export interface MarkerStarts {
  files: HostFiles;
  agentHome: string;
  users: HostUsers;
  /** `RELAY_OPERATOR_UIDS`. */
  operatorUids: readonly number[];
  log: Log;
}

/** Adds a secret to the file of the starts, and returns it. It is in force even if it cannot be written. */
async function addStart({ files, agentHome, log }: MarkerStarts): Promise<string> {
  const fresh = base64url(randomBytes(SIZE));
  try {
    const lines = [fresh, ...(await readStarts(files, agentHome))].slice(0, MAX_STARTS);
    await files.writeAtomic(startsPath(agentHome), utf8ToBytes(`${lines.join('\n')}\n`), 0o600);
  } catch (error) {
    log.warn(`the marker of the dashboard cannot be written, so its clients count as one: ${describeError(error)}`);
  }
  return fresh;
}

/** Opens the relay side of the marker on a host, with a secret of this start unless one is configured. */
export async function openIngressMarker(source: MarkerSource, starts: MarkerStarts): Promise<IngressMarker> {
  const start = source.configured === undefined ? await addStart(starts) : undefined;
  return createIngressMarker(source, { ...starts, start });
}

export type IngressMarker = ReturnType<typeof createIngressMarker>;

/**
 * Relay side of the marker. Derives the secret when the first marked request arrives. With `host`, the marker is that of
 * this start and of the account at the other end of the connection. Markers of earlier starts, of other relays on this
 * home and of dashboards that know no starts prove nothing about the client; they show that a request was forwarded, so
 * it is not a local one.
 */
export function createIngressMarker(source: MarkerSource, host?: MarkerStarts & { start: string | undefined }) {
  let deriving: Promise<string | null> | undefined;
  /** Asked once per connection. */
  const owners = new WeakMap<Peer, Promise<Owner>>();

  function ownerOf(peer: Peer, users: HostUsers): Promise<Owner> {
    const known = owners.get(peer);
    if (known) return known;
    const owner = peer.ends ? users.ofConnection(peer.ends()) : Promise.resolve<Owner>('untold');
    owners.set(peer, owner);
    return owner;
  }

  async function ofMarked(peer: Peer, headers: HeaderReader, given: string): Promise<Peer> {
    deriving ??= markerSecret(source);
    const secret = await deriving;
    const forwarded: Peer = { address: peer.address, tls: peer.tls, via: 'ingress', transportHint: 'unknown' };
    // Lets the next call try again.
    if (secret === null) deriving = undefined;
    const isShared = secret !== null && timingSafeEqual(given, secret);
    /** Without the shared secret nobody can say that the request was not forwarded. */
    const unmarked = secret === null ? forwarded : peer;
    if (!host) return isShared ? peerBehind(peer, headers) : unmarked;
    const trusted = [host.users.own, ROOT, ...host.operatorUids];
    const owner = await ownerOf(peer, host.users);
    const users = owner === 'untold' ? trusted : typeof owner === 'number' ? [owner] : [];
    const isOf = (start: string) => users.some((user) => timingSafeEqual(given, markerOfStart(start, user)));
    if (host.start === undefined) {
      if (!isShared) return unmarked;
      return users.some((user) => trusted.includes(user)) ? peerBehind(peer, headers) : forwarded;
    }
    if (isOf(host.start)) return peerBehind(peer, headers);
    if (isShared || secret === null) return forwarded;
    try {
      const isStale = (await readStarts(host.files, host.agentHome)).some(isOf);
      return isStale ? forwarded : peer;
    } catch {
      return forwarded;
    }
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

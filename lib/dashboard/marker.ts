import { hmac } from '@noble/hashes/hmac.js';
import { sha256 as sha256Bytes } from '@noble/hashes/sha2.js';
import { type HeaderReader, isLoopbackAddress, type Peer } from '../access/peer.ts';
import { describeError } from '../errors.ts';
import type { HostFiles } from '../host/index.ts';
import type { HostUsers, Owner } from '../host/users.ts';
import { canonicalAddress } from '../kit/addresses.ts';
import { base64url, bytesToHex, randomBytes, timingSafeEqual, utf8ToBytes } from '../kit/bytes.ts';
import { sha256 } from '../kit/sha256.ts';
import type { Log } from '../log.ts';

// Marks requests that the dashboard's ingress forwards, so that the relay never takes one for a local caller (contract
// 07 §4.3).

const SECRET_HEADER = 'x-svc-dashboard-proxy-secret';
const PEER_HEADER = 'x-svc-proxy-peer';
const PROTO_HEADER = 'x-svc-proxy-proto';

const LABEL = 'svc-relay/dashboard-ingress/v1';
/** Characters of an address that are sent and read at most. */
const MAX_ADDRESS = 128;
const ROOT = 0;

/** Source of the marker secret: `SVC_RELAY_DASHBOARD_PROXY_SECRET`, else the secret that signs QR payloads. */
export interface MarkerSource {
  configured: string | undefined;
  /** Null if it can be neither read nor created. */
  signingSecret(): Promise<Uint8Array | null>;
}

/** The marker secret as lower-case hex; null if there is nothing to derive it from. */
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
/** Starts whose markers are still recognised: of this relay before, and of others on the same home. */
const MAX_STARTS = 8;
/** Base64url of 32 bytes. */
const FORM = /^[\w-]{43}$/;

/** The file with the secrets of the last starts of relays on this home, newest first (contract 01 §9.1a). */
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

/** What a relay on a host needs to make a new marker at each start and to identify the account of its sender. */
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

/** Opens the relay side of the marker on a host, with a new secret for this start unless one is configured. */
export async function openIngressMarker(source: MarkerSource, starts: MarkerStarts): Promise<IngressMarker> {
  const start = source.configured === undefined ? await addStart(starts) : undefined;
  return createIngressMarker(source, { ...starts, start });
}

export type IngressMarker = ReturnType<typeof createIngressMarker>;

/**
 * Relay side of the marker. Derives the secret when the first marked request arrives. With `host`, the marker covers
 * this start and the account at the other end of the connection. Markers of earlier starts, of other relays on this
 * home and of dashboards without starts prove nothing about the client, only that a request was forwarded and so is not
 * local.
 */
export function createIngressMarker(source: MarkerSource, host?: MarkerStarts & { start: string | undefined }) {
  let deriving: Promise<string | null> | undefined;
  /** Looked up once per connection. */
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
    /** Without the shared secret, a forwarded request cannot be ruled out. */
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
     * The peer to judge a request by: the dashboard's client if a loopback peer proves that it is the ingress, else the
     * peer itself. Without a secret to compare with, the peer counts as the ingress, since its client could otherwise
     * pass for a caller on this host. Returns a promise only for requests with the secret's header.
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

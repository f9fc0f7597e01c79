import { RelayError } from '../../errors.ts';
import { isObject } from '../../kit/json.ts';
import { decodeUtf8Strict } from '../../kit/text.ts';
import { isPairingCode } from '../../pairing/code.ts';
import { readPinnedCandidate } from './candidates.ts';
import { authority, type Endpoint, endpointId, inPreference, relayUrl } from './endpoints.ts';

/** The content of a pairing link or QR code, for a device that wants to pair. */
export interface PairingOffer {
  /** One-time pairing code; a secret until it is used. */
  code: string;
  /** A secret beside the code in the QR code. With it, other people's wrong codes do not block the pairing. */
  secret?: string;
  /** In the order of attempts. Never empty. */
  endpoints: Endpoint[];
  /** Socket of the mailbox at the edge, where this device cannot pair. */
  mailbox?: string;
  /** Pinned routes of the link that cannot be used, with the member that is missing or malformed. */
  unusable?: UnusableRoute[];
}

type UnusableRoute = { role: string; problem: string };

/** Real links and payloads are far smaller. */
const MAX_TEXT = 64 * 1024;
const MAX_CANDIDATES = 16;
const PINNED_ROLE = /^(?:plugin_proxy|outbound_broker)$/i;
const BASE64URL = /^[A-Za-z0-9_-]+$/;
const SECRET = /^[A-Za-z0-9_-]{16,128}$/;

const invalid = (message: string) => new RelayError('invalid', message);

/**
 * Reads an `svc-relay://pair?payload=…` link, or the JSON that it carries (contract 01 §5.4).
 * @throws RelayError `invalid` with a sentence that quotes nothing of the text, since the text is a credential.
 */
export function parsePairing(text: string): PairingOffer {
  const trimmed = text.trim();
  if (trimmed === '') throw invalid('the pairing link is empty');
  if (trimmed.length > MAX_TEXT) throw invalid('the pairing link is longer than 64 KiB');
  return readPayload(trimmed.startsWith('{') ? trimmed : payloadOf(trimmed));
}

/** The JSON inside a link. */
function payloadOf(link: string): string {
  const url = /^svc-relay:\/\/pair\/?\?([^#]*)$/i.exec(link);
  if (!url) throw invalid('this is neither an svc-relay://pair link nor a QR payload');
  const payload = new URLSearchParams(url[1]).getAll('payload');
  if (payload.length !== 1) throw invalid('the pairing link must have exactly one payload');
  const encoded = payload[0]?.replace(/=+$/, '') ?? '';
  if (!BASE64URL.test(encoded) || encoded.length % 4 === 1) throw invalid('the payload of the pairing link is damaged');
  const binary = atob(encoded.replaceAll('-', '+').replaceAll('_', '/'));
  const json = decodeUtf8Strict(Uint8Array.from(binary, (unit) => unit.charCodeAt(0)));
  if (json === null) throw invalid('the payload of the pairing link is damaged');
  return json;
}

function readPayload(json: string): PairingOffer {
  let payload: unknown;
  try {
    payload = JSON.parse(json);
  } catch {
    throw invalid('the pairing payload is not valid JSON: was it copied completely?');
  }
  if (!isObject(payload)) throw invalid('the pairing payload must be a JSON object');
  if (!hasOnlyIntegers(json)) throw invalid('the pairing payload contains a number that is not an integer');
  if (typeof payload.svc !== 'number' || payload.svc < 1)
    throw invalid('the pairing payload has no format marker (svc)');
  const { relay, endpoints } = payload;
  if (relay === undefined) throw invalid('this code is for the API server only: it contains no relay');
  if (!isObject(relay)) throw invalid('relay must be an object');
  const code = typeof relay.code === 'string' ? relay.code.trim().toUpperCase() : '';
  if (!isPairingCode(code)) throw invalid('relay.code must be 6 letters and digits');
  const direct = relayUrl(relay.url);
  if (!direct) throw invalid('relay.url must be a ws:// or wss:// URL');
  const { usable, unusable, mailbox } = readCandidates(endpoints);
  const { secret } = relay;
  const isSecret = typeof secret === 'string' && SECRET.test(secret);
  return {
    code,
    ...(isSecret && { secret }),
    endpoints: inOrder(usable, direct),
    ...(mailbox && { mailbox }),
    unusable,
  };
}

/** A phone rejects `3600.0` and `1e3`, which `JSON.parse` cannot tell from integers. */
function hasOnlyIntegers(json: string): boolean {
  const withoutStrings = json.replace(/"(?:[^"\\]|\\.)*"/g, '""');
  return !/\d(?:[.eE]|\d{18})/.test(withoutStrings);
}

/**
 * Reads `endpoints` of a pairing payload.
 * @throws RelayError `invalid` for anything but an array of at most 16 objects.
 */
export function readCandidates(value: unknown): { usable: Endpoint[]; unusable: UnusableRoute[]; mailbox?: string } {
  const read: ReturnType<typeof readCandidates> = { usable: [], unusable: [] };
  if (value === undefined || value === null) return read;
  if (!Array.isArray(value) || !value.every(isObject)) throw invalid('endpoints must be an array of objects');
  if (value.length > MAX_CANDIDATES) throw invalid(`endpoints must have at most ${MAX_CANDIDATES} entries`);
  for (const candidate of value) {
    const { role: name, priority: rank, relay, proxy, broker } = candidate;
    const role = typeof name === 'string' && name.trim() !== '' ? name.trim().slice(0, 64) : 'unknown';
    const priority = typeof rank === 'number' ? rank : Number.MAX_SAFE_INTEGER;
    if (role.toLowerCase() === 'mailbox') {
      const url = isObject(candidate.mailbox) ? relayUrl(candidate.mailbox.url) : null;
      if (url) read.mailbox = url;
    } else if (proxy !== undefined || broker !== undefined || PINNED_ROLE.test(role)) {
      const pinned = readPinnedCandidate(candidate);
      if ('problem' in pinned) read.unusable.push({ role, problem: pinned.problem });
      else read.usable.push({ role, priority, ...pinned.endpoint });
    } else {
      const url = isObject(relay) ? relayUrl(relay.url) : null;
      if (url) read.usable.push({ role, url, priority });
    }
  }
  return read;
}

/**
 * Candidates by priority, then the payload's own URL unless it is among them, then Reach. An authority with a pin is
 * used with that pin or not at all.
 */
function inOrder(candidates: Endpoint[], direct: string): Endpoint[] {
  const pinned = new Set(candidates.filter((endpoint) => endpoint.pinned).map(({ url }) => authority(url)));
  const all = inPreference([...candidates, { role: 'direct', url: direct, priority: Number.MAX_SAFE_INTEGER }]);
  return all
    .filter((endpoint) => endpoint.pinned || !pinned.has(authority(endpoint.url)))
    .filter((endpoint, index, all) => all.findIndex((other) => endpointId(other) === endpointId(endpoint)) === index);
}

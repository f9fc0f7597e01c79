import { RelayError } from '../../errors.ts';
import { isHost, splitUrl, urlHost } from '../../kit/addresses.ts';
import { isObject } from '../../kit/json.ts';
import { decodeUtf8Strict } from '../../kit/text.ts';
import { isPairingCode } from '../../pairing/codes.ts';
import type { Endpoint } from './endpoints.ts';

/** What a QR code or a link offers to a device that wants to pair with a relay. */
export interface PairingOffer {
  /** The one-shot code; a secret until it is used. */
  code: string;
  /** Ways to the relay, the one to try first in front. Never empty. */
  endpoints: Endpoint[];
}

/** A link is a payload as base64url; both are far below this. */
const MAX_TEXT = 64 * 1024;
const MAX_CANDIDATES = 16;
const MAX_URL = 2048;
const BASE64URL = /^[A-Za-z0-9_-]+$/;

const invalid = (message: string) => new RelayError('invalid', message);

/**
 * Reads an `svc-relay://pair?payload=…` link, or the JSON that it carries (contract 01 §5.4).
 * @throws RelayError `invalid` with one sentence that holds nothing of the text: it is a credential.
 */
export function parsePairing(text: string): PairingOffer {
  const trimmed = text.trim();
  if (trimmed === '') throw invalid('the pairing link is empty');
  if (trimmed.length > MAX_TEXT) throw invalid('the pairing link is longer than 64 KiB');
  return readPayload(trimmed.startsWith('{') ? trimmed : payloadOf(trimmed));
}

/** The JSON that a link carries. */
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
    throw invalid('the pairing payload is no JSON: was it copied completely?');
  }
  if (!isObject(payload)) throw invalid('the pairing payload must be a JSON object');
  if (!hasOnlyIntegers(json)) throw invalid('the pairing payload holds a number that is no whole number');
  if (typeof payload.svc !== 'number' || payload.svc < 1)
    throw invalid('the pairing payload has no format marker (svc)');
  const { relay, endpoints } = payload;
  if (relay === undefined) throw invalid('this code pairs with the API server only: there is no relay in it');
  if (!isObject(relay)) throw invalid('relay must be an object');
  const code = typeof relay.code === 'string' ? relay.code.trim().toUpperCase() : '';
  if (!isPairingCode(code)) throw invalid('relay.code must be 6 letters and digits');
  const direct = relayUrl(relay.url);
  if (!direct) throw invalid('relay.url must be a ws:// or wss:// URL');
  return { code, endpoints: ordered(readCandidates(endpoints), direct) };
}

/** `3600.0` and `1e3` are numbers that a phone does not read; `JSON.parse` cannot tell them from integers. */
function hasOnlyIntegers(json: string): boolean {
  const outside = json.replace(/"(?:[^"\\]|\\.)*"/g, '""');
  return !/\d(?:[.eE]|\d{18})/.test(outside);
}

function readCandidates(value: unknown): Endpoint[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value) || !value.every(isObject)) throw invalid('endpoints must be an array of objects');
  if (value.length > MAX_CANDIDATES) throw invalid(`endpoints must have at most ${MAX_CANDIDATES} entries`);
  return value.flatMap(({ role, priority, relay, proxy, broker }) => {
    // A pinned origin or a broker needs more than a socket; what this client cannot use is no error.
    const url = proxy !== undefined || broker !== undefined || !isObject(relay) ? null : relayUrl(relay.url);
    if (!url) return [];
    return [
      {
        role: typeof role === 'string' && role.trim() !== '' ? role.trim().slice(0, 64) : 'unknown',
        url,
        priority: typeof priority === 'number' ? priority : Number.MAX_SAFE_INTEGER,
      },
    ];
  });
}

/** Candidates by priority, equals as they came; the payload's own URL last, unless it is one of them. */
function ordered(candidates: Endpoint[], direct: string): Endpoint[] {
  const sorted = [...candidates].sort((a, b) => a.priority - b.priority);
  const all = [...sorted, { role: 'direct', url: direct, priority: Number.MAX_SAFE_INTEGER }];
  return all.filter((endpoint, index) => all.findIndex(({ url }) => url === endpoint.url) === index);
}

/**
 * The socket's URL of a relay URL, or null when it is none. Without a path it is `/ws`; a path is taken as it is, for
 * it belongs to whatever publishes the relay there.
 */
export function relayUrl(value: unknown): string | null {
  if (typeof value !== 'string' || value.length > MAX_URL) return null;
  const parts = splitUrl(value.trim());
  if (!parts || !/^wss?$/.test(parts.scheme) || !isHost(parts.host) || /[?#\s]/.test(parts.rest)) return null;
  if (parts.port !== undefined && (parts.port < 1 || parts.port > 65535)) return null;
  if (/^[a-z]+:\/\/[^/]*@/i.test(value.trim())) return null;
  const path = parts.rest.replace(/\/+$/, '');
  const port = parts.port === undefined ? '' : `:${parts.port}`;
  const url = `${parts.scheme}://${urlHost(parts.host.toLowerCase())}${port}${path === '' ? '/ws' : path}`;
  return URL.canParse(url) ? url : null;
}

/** Carries the paired relay session through the dashboard, whose own `Authorization` never reaches the relay. */
export const SESSION_HEADER = 'X-Svc-Relay-Session';

/** Request headers that reach the relay (contract 07 §4.3). */
export const REQUEST_HEADERS: readonly string[] = [
  'accept',
  'accept-encoding',
  'content-encoding',
  'content-type',
  'if-match',
  'if-modified-since',
  'if-none-match',
  'if-range',
  'range',
  'user-agent',
];

/** Response headers that reach the client. */
export const RESPONSE_HEADERS: readonly string[] = [
  'accept-ranges',
  'cache-control',
  'content-disposition',
  'content-language',
  'content-range',
  'content-type',
  'etag',
  'expires',
  'last-modified',
  'retry-after',
  'vary',
  'www-authenticate',
  'x-media-sensitive',
  'x-content-type-options',
];

/** Without these, the body of a response could be cut short unnoticed, or be unreadable. */
export const FRAMING_HEADERS: readonly string[] = ['content-encoding', 'content-length'];

type Headers = Readonly<Record<string, string | string[] | undefined>>;

/** A set of header names that picks headers from a raw message. */
export class HeaderFilter {
  readonly #names: ReadonlySet<string>;

  /** `names` are in lower case. */
  constructor(names: readonly string[]) {
    this.#names = new Set(names);
  }

  /** Picks from alternating names and values, unchanged; nothing is joined or deduplicated. */
  pick(raw: readonly string[]): string[] {
    const picked: string[] = [];
    for (let at = 0; at < raw.length; at += 2) {
      const name = raw[at] as string;
      if (this.#names.has(name) || this.#names.has(name.toLowerCase())) picked.push(name, raw[at + 1] as string);
    }
    return picked;
  }
}

/** Picks from headers with lower-case names; returns alternating names and values. */
export function pickHeaders(headers: Headers, names: readonly string[]): string[] {
  const picked: string[] = [];
  for (const name of names) {
    const value = headers[name];
    if (value !== undefined) picked.push(name, typeof value === 'string' ? value : value.join(', '));
  }
  return picked;
}

const SESSION_FIELD = SESSION_HEADER.toLowerCase();
const MAX_SESSION = 8192;
/** Characters that a header's value cannot contain, CR and LF among them. */
const NOT_A_VALUE = /[^\t\x20-\x7e\x80-\xff]/;

/** The session header of a request: its value, or the status and detail of the refusal. */
export type SessionHeader = { value: string; status?: undefined } | { status: number; detail: string };

/** Reads the session header (contract 07 §4.3). */
export function readSessionHeader(headers: Headers): SessionHeader {
  const given = headers[SESSION_FIELD] ?? '';
  const value = typeof given === 'string' ? given : given.join(', ');
  if (value.trim() === '') return { status: 401, detail: 'relay session header required' };
  if (value.length > MAX_SESSION) return { status: 400, detail: `relay session header over ${MAX_SESSION} characters` };
  if (NOT_A_VALUE.test(value)) return { status: 400, detail: 'relay session header with invalid characters' };
  return { value };
}

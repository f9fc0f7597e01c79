import { RelayError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { parseObject } from '../kit/json.ts';
import { decodeUtf8, isPrintable } from '../kit/text.ts';
import { withDeadline } from '../kit/timeouts.ts';
import { readUpTo } from '../web/streams.ts';

/** Milliseconds for one call. */
const CALL_TIMEOUT = 15_000;
const MAX_BODY = 1024 * 1024;
const LOOPBACK = /^(?:localhost|127\.\d+\.\d+\.\d+|\[::1\])$/;

export const UNSUPPORTED = 'Provider returned an unsupported usage payload';
export const NO_WINDOWS = 'Provider returned no usage windows';

/** A failure whose message is one of the fixed sentences of contract 04 §9.3. */
export const usageProblem = (message: string): RelayError => new RelayError('bad-gateway', message);

/** A GET with a bearer whose answer is a JSON object. */
export type Ask = (request: {
  url: string;
  token: string;
  headers?: Record<string, string>;
  /** Milliseconds. */
  timeout?: number;
}) => Promise<Record<string, unknown>>;

/**
 * Questions to providers that all end with `signal`. A failure is a RelayError with a fixed sentence, or any other
 * error when no answer can be had. No redirect is followed: the credential stays with the server it is for.
 */
export function createAsk({ upstream, clock }: { upstream: Upstream; clock: Clock }, signal: AbortSignal): Ask {
  return async ({ url, token, headers, timeout = CALL_TIMEOUT }) => {
    if (!mayCarryCredentials(url)) throw new Error('the address is not one for credentials');
    const all: Record<string, string> = { accept: 'application/json', ...headers, authorization: `Bearer ${token}` };
    if (!Object.values(all).every(isPrintable)) throw new Error('a header has characters that none can carry');
    return withDeadline({ clock, timeout, signal }, async (end) => {
      const { status, body } = await upstream({ method: 'GET', url, headers: all, signal: end });
      if (status !== 200) throw usageProblem(`Provider returned HTTP ${status}`);
      return parse(await readUpTo(body, MAX_BODY + 1));
    });
  };
}

function parse(bytes: Uint8Array): Record<string, unknown> {
  const value = bytes.length <= MAX_BODY ? parseObject(decodeUtf8(bytes)) : null;
  if (!value) throw usageProblem(UNSUPPORTED);
  return value;
}

/** Credentials go over TLS, or to this very machine. */
function mayCarryCredentials(text: string): boolean {
  if (!URL.canParse(text)) return false;
  const { protocol, hostname, username, password } = new URL(text);
  if (username !== '' || password !== '') return false;
  return protocol === 'https:' || (protocol === 'http:' && LOOPBACK.test(hostname));
}

import { RelayError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import { mayCarryCredentials } from '../kit/addresses.ts';
import type { Clock } from '../kit/clock.ts';
import { parseObject } from '../kit/json.ts';
import { decodeUtf8, isPrintable } from '../kit/text.ts';
import { withDeadline } from '../kit/timeouts.ts';
import { readUpTo } from '../web/streams.ts';

/** Milliseconds for one call. */
const CALL_TIMEOUT = 15_000;
const MAX_BODY = 1024 * 1024;

export const UNSUPPORTED = 'Provider returned an unsupported usage payload';
export const NO_WINDOWS = 'Provider returned no usage windows';

/** A failure with one of the fixed sentences of contract 04 §9.3. */
export const usageProblem = (message: string): RelayError => new RelayError('bad-gateway', message);

/** A GET request with a bearer, for a JSON object. */
export type Call = (request: {
  url: string;
  token: string;
  headers?: Record<string, string>;
  /** Milliseconds. */
  timeout?: number;
}) => Promise<Record<string, unknown>>;

/**
 * Calls to providers, aborted by `signal`. A failure is a RelayError with a fixed sentence, or any other error if there is
 * no response. Redirects are not followed, so that a credential stays with its server.
 */
export function createCall({ upstream, clock }: { upstream: Upstream; clock: Clock }, signal: AbortSignal): Call {
  return async ({ url, token, headers, timeout = CALL_TIMEOUT }) => {
    const target = URL.canParse(url) ? new URL(url) : null;
    if (!target || target.username || target.password || !mayCarryCredentials(target))
      throw new Error('credentials may not be sent to this address');
    const all: Record<string, string> = { accept: 'application/json', ...headers, authorization: `Bearer ${token}` };
    if (!Object.values(all).every(isPrintable)) throw new Error('a header value is not printable ASCII');
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

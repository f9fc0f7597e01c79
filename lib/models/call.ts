import { RelayError } from '../errors.ts';
import type { Upstream } from '../host/upstream.ts';
import type { Clock } from '../kit/clock.ts';
import { parseJson } from '../kit/json.ts';
import type { Semaphore } from '../kit/semaphore.ts';
import { decodeUtf8 } from '../kit/text.ts';
import { withDeadline } from '../kit/timeouts.ts';
import { readUpTo } from '../web/streams.ts';

/** Milliseconds for one call, from its turn to the last byte. */
const CALL_TIMEOUT = 1250;
const MAX_BODY = 4 * 1024 * 1024;

/** One question to a provider, and its answer's JSON. */
export type Call = (request: {
  method: 'GET' | 'POST';
  url: string;
  headers?: Record<string, string>;
  body?: unknown;
}) => Promise<unknown>;

const failed = (what: string) => new RelayError('bad-gateway', what);

export interface CallParts {
  upstream: Upstream;
  clock: Clock;
  /** Shared by all calls of the relay. */
  semaphore: Semaphore;
  userAgent: string;
}

/**
 * Calls that wait for a slot and end with `signal`. Every failure is a RelayError that says what went wrong and not
 * where: neither URL nor credentials (contract 07 §3).
 */
export function createCall({ upstream, clock, semaphore, userAgent }: CallParts, signal: AbortSignal): Call {
  return (request) =>
    semaphore.run(signal, async () => {
      let late = false;
      const onLate = () => {
        late = true;
      };
      try {
        return await withDeadline({ clock, timeout: CALL_TIMEOUT, signal, onLate }, (end) =>
          exchange(upstream, request, userAgent, end),
        );
      } catch (error) {
        if (late) throw failed('no answer in time');
        throw error instanceof RelayError ? error : failed('cannot be reached');
      }
    });
}

async function exchange(
  upstream: Upstream,
  { method, url, headers, body: content }: Parameters<Call>[0],
  userAgent: string,
  signal: AbortSignal,
): Promise<unknown> {
  const { status, body } = await upstream({
    method,
    url,
    headers: {
      accept: 'application/json',
      'user-agent': userAgent,
      ...(content === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    body: content === undefined ? undefined : JSON.stringify(content),
    signal,
  });
  if (status !== 200) throw failed(`answered ${status}`);
  const bytes = await readUpTo(body, MAX_BODY + 1);
  if (bytes.length > MAX_BODY) throw failed('the answer is too large');
  const value = parseJson(decodeUtf8(bytes));
  if (value === undefined) throw failed('the answer is not JSON');
  return value;
}

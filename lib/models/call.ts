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

/** One request to a provider, and the JSON of its response. */
export type Call = (request: {
  method: 'GET' | 'POST';
  url: string;
  headers?: Record<string, string>;
  body?: unknown;
}) => Promise<unknown>;

const failed = (reason: string) => new RelayError('bad-gateway', reason);

export interface CallDeps {
  upstream: Upstream;
  clock: Clock;
  /** Shared by all calls of the relay. */
  semaphore: Semaphore;
  userAgent: string;
}

/**
 * Calls that wait for the semaphore and end with `signal`. Every failure is a RelayError that names the reason, and
 * neither URL nor credentials (contract 07 §3).
 */
export function createCall({ upstream, clock, semaphore, userAgent }: CallDeps, signal: AbortSignal): Call {
  return (request) =>
    semaphore.run(signal, async () => {
      const deadline = { clock, timeout: CALL_TIMEOUT, signal, timeoutError: () => failed('no response in time') };
      try {
        return await withDeadline(deadline, (end) => exchange(upstream, request, userAgent, end));
      } catch (error) {
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
  if (bytes.length > MAX_BODY) throw failed('the response is too large');
  const value = parseJson(decodeUtf8(bytes));
  if (value === undefined) throw failed('the response is not JSON');
  return value;
}

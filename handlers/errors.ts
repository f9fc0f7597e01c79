import { describeError, type ErrorKind, RelayError } from '../lib/errors.ts';
import type { Log } from '../lib/log.ts';
import { errorResponse } from '../lib/web/json.ts';

const STATUS: Record<ErrorKind, number> = {
  invalid: 400,
  unauthorized: 401,
  forbidden: 403,
  'not-found': 404,
  timeout: 408,
  conflict: 409,
  gone: 410,
  precondition: 412,
  'too-large': 413,
  'unsupported-media': 415,
  'rate-limited': 429,
  internal: 500,
  unsupported: 501,
  'bad-gateway': 502,
  unavailable: 503,
  'gateway-timeout': 504,
};

/** The response to whatever a guard or handler threw. An unexpected error is logged with `what` and becomes a 500. */
export function failureResponse(error: unknown, what: string, log: Log): Response {
  if (!(error instanceof RelayError)) {
    log.error(`${what} failed: ${describeError(error)}`);
    return errorResponse(500, 'internal error');
  }
  const headers: Record<string, string> = {};
  if (error.kind === 'unauthorized') headers['www-authenticate'] = 'Bearer';
  if (error.retryAfter !== undefined) headers['retry-after'] = String(error.retryAfter);
  // The rest of the body is not read, so the connection cannot be reused.
  if (error.kind === 'too-large' || error.kind === 'timeout') headers.connection = 'close';
  return errorResponse(STATUS[error.kind], error.message, headers, error.extra);
}

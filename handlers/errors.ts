import { NONCE_HEADER } from '../lib/access/proofs.ts';
import { describeError, type ErrorKind, RelayError } from '../lib/errors.ts';
import { errnoOf } from '../lib/host/errors.ts';
import { visibleLine } from '../lib/kit/text.ts';
import type { Log } from '../lib/log.ts';
import { errorResponse, json } from '../lib/web/json.ts';
import { WebResponse } from '../lib/web/response.ts';
import type { RelayRequest } from './request.ts';

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
  locked: 423,
  'rate-limited': 429,
  internal: 500,
  unsupported: 501,
  'bad-gateway': 502,
  unavailable: 503,
  'gateway-timeout': 504,
};

/** The HTTP status of an expected failure. */
export const statusOf = ({ kind }: RelayError): number => STATUS[kind];

/** Voice routes whose errors after authentication are JSON, like their answers. */
const JSON_VOICE_ROUTES = new Set(['/voice/config', '/voice/transcribe', '/voice/synthesize']);
const TEXT_HEADERS = {
  'content-type': 'text/plain; charset=utf-8',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

/** The part of a request that determines the form of its errors. */
type Refused = Pick<RelayRequest, 'url' | 'voice'>;

/**
 * An error response in the form of its area (contract 00): JSON, except for voice, whose clients show the body as it is:
 * one line of text, without `extra` (contract 05 §3).
 */
export function errorFor(
  request: Refused,
  status: number,
  message: string,
  headers?: Record<string, string>,
  extra?: Record<string, unknown>,
): Response {
  const { pathname } = new URL(request.url);
  if (pathname !== '/voice' && !pathname.startsWith('/voice/')) return errorResponse(status, message, headers, extra);
  if (request.voice && JSON_VOICE_ROUTES.has(pathname)) {
    return json({ success: false, error: message, ...extra }, status, headers);
  }
  return new WebResponse(visibleLine(message), { status, headers: { ...TEXT_HEADERS, ...headers } });
}

/** The response to an error of a guard or handler. An unexpected error is logged with `what` and becomes a 500. */
export function failureResponse(error: unknown, request: Refused, what: string, log: Log): Response {
  if (!(error instanceof RelayError)) {
    log.error(`${what} failed: ${describeError(error)}`);
    return errorFor(request, 500, 'internal error');
  }
  // Callers get only the sentence, and the log only the code of the cause, since a provider's text may contain a key.
  const code = error.kind === 'internal' ? errnoOf(error.cause) : '';
  if (code) log.warn(`${what} failed: ${error.message}: ${code}`);
  const headers: Record<string, string> = {};
  if (error.kind === 'unauthorized') headers['www-authenticate'] = 'Bearer';
  if (error.nonce !== undefined) {
    headers['www-authenticate'] = 'Bearer, DPoP algs="ES256", error="use_dpop_nonce"';
    headers[NONCE_HEADER] = error.nonce;
  }
  if (error.retryAfter !== undefined) headers['retry-after'] = String(error.retryAfter);
  // The rest of the body is not read, so the connection cannot be reused.
  if (error.kind === 'too-large' || error.kind === 'timeout') headers.connection = 'close';
  return errorFor(request, statusOf(error), error.message, headers, error.extra);
}

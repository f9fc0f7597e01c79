import { RelayError } from '../errors.ts';
import { concatBytes } from '../kit/bytes.ts';
import { systemClock } from '../kit/clock.ts';
import { isObject, parseJson, parseObject } from '../kit/json.ts';
import { decodeUtf8, decodeUtf8Strict } from '../kit/text.ts';
import { withTimeout } from '../kit/timeouts.ts';
import { WebResponse } from './response.ts';

const KiB = 1024;
export const BODY_LIMIT = 64 * KiB;
const BODY_TIMEOUT = 60_000;
const MAX_DEPTH = 64;

/** Nearly every body is private: a response that may be cached, such as media, overrides `cache-control`. */
const JSON_HEADERS = {
  'content-type': 'application/json',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

/** A JSON response, `no-store` unless `headers` says otherwise (contract 01, conventions). */
export const json = (body: unknown, status = 200, headers?: Record<string, string>): Response =>
  jsonText(JSON.stringify(body), status, headers);

/** Like `json`, for a body that is already JSON text; null for a status without a body. */
export const jsonText = (text: string | null, status = 200, headers?: Record<string, string>): Response =>
  new WebResponse(text, { status, headers: headers ? { ...JSON_HEADERS, ...headers } : JSON_HEADERS });

/** An error response of every area, `{"ok":false,"error":…}` (contract 01 §1). */
export function errorResponse(
  status: number,
  error: string,
  headers?: Record<string, string>,
  extra?: Record<string, unknown>,
): Response {
  return json({ ok: false, error, ...extra }, status, headers);
}

/** A read fails only when the connection does, which is the client's doing. */
const cutOff = (): never => {
  throw new RelayError('invalid', 'the body ended early');
};

const tooLarge = (limit: number) => new RelayError('too-large', `body is larger than ${limit} bytes`);

/**
 * Reads a whole body of at most `limit` bytes. Leaves the rest of a larger one unread.
 * @throws RelayError `too-large`; `timeout` when it takes longer than a minute; `invalid` when the client hangs up.
 */
export async function readBody(request: Request, limit: number): Promise<Uint8Array> {
  if (Number(request.headers.get('content-length') ?? 0) > limit) throw tooLarge(limit);
  if (!request.body) return new Uint8Array();
  let isLate = false;
  const late = () => {
    isLate = true;
    throw new RelayError('timeout', 'the body took too long to arrive');
  };
  return withTimeout(
    { clock: systemClock, timeout: BODY_TIMEOUT },
    collect(request.body, limit, () => isLate),
    late,
  );
}

/** Does not cancel a refused body: on Node, that would reset the connection before the response is sent. */
async function collect(body: ReadableStream<Uint8Array>, limit: number, isLate: () => boolean): Promise<Uint8Array> {
  const reader = body.getReader();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read().catch(cutOff);
    if (done || isLate()) break;
    size += value.byteLength;
    if (size > limit) throw tooLarge(limit);
    chunks.push(value);
  }
  return chunks.length === 1 ? (chunks[0] as Uint8Array) : concatBytes(...chunks);
}

/**
 * Reads a body of at most `limit` bytes as text; invalid UTF-8 becomes U+FFFD. A body whose length was announced is
 * read in one call, which spares a small request the reader and its timer.
 * @throws RelayError as `readBody`, except that the server's own limit on a request's time applies to an announced
 * length; `invalid` when the client hung up early.
 */
export async function readText(request: Request, limit: number): Promise<string> {
  const length = request.headers.get('content-length');
  if (length === null) return decodeUtf8(await readBody(request, limit));
  if (Number(length) > limit) throw tooLarge(limit);
  const bytes = new Uint8Array(await request.arrayBuffer().catch(cutOff));
  // On Node, the body of a connection that has ended reads as empty, which would mean `{}` here.
  if (bytes.byteLength !== Number(length)) return cutOff();
  return decodeUtf8(bytes);
}

/** A JSON object and its original text, which is forwarded unchanged. */
export interface JsonText {
  text: string;
  value: Record<string, unknown>;
}

/**
 * Parses a body's text as a JSON object. An empty text is `{}`.
 * @throws RelayError `invalid` for anything but a JSON object.
 */
export function toJsonText(text: string): JsonText {
  if (text === '') return { text: '{}', value: {} };
  const value = parseObject(text);
  if (!value) throw new RelayError('invalid', 'body must be a JSON object');
  return { text, value };
}

/**
 * Reads a body as a JSON object, whatever its `Content-Type`. With `empty`, an empty body is `{}`; with
 * `null`, so is `null`.
 * @throws RelayError `invalid` for anything but a JSON object, for numbers that parse to infinity, and for nesting deeper
 * than 64.
 */
export async function readJson(
  request: Request,
  options: { limit?: number; empty?: boolean; null?: boolean } = {},
): Promise<Record<string, unknown>> {
  const bytes = await readBody(request, options.limit ?? BODY_LIMIT);
  if (options.empty && bytes.byteLength === 0) return {};
  const value = parseBody(bytes);
  if (options.null && value === null) return {};
  if (!isObject(value)) throw new RelayError('invalid', 'body must be a JSON object');
  return value;
}

/** Reads any JSON value, within the bounds of `readJson`. */
export const readJsonValue = async (request: Request, limit: number): Promise<unknown> =>
  parseBody(await readBody(request, limit));

function parseBody(bytes: Uint8Array): unknown {
  const value = parseJson(decodeUtf8Strict(bytes) ?? '');
  if (value === undefined) throw new RelayError('invalid', 'invalid JSON body');
  if (typeof value === 'object' && value !== null) checkTree(value);
  return value;
}

/** Walks without recursion, since the client chooses the depth. `1e999` parses to infinity, which JSON cannot express. */
function checkTree(root: object): void {
  const open: { value: object; depth: number }[] = [{ value: root, depth: 1 }];
  for (let next = open.pop(); next; next = open.pop()) {
    if (next.depth > MAX_DEPTH) throw new RelayError('invalid', 'invalid JSON body');
    for (const child of Object.values(next.value)) {
      if (typeof child === 'number' && !Number.isFinite(child)) throw new RelayError('invalid', 'invalid JSON body');
      if (typeof child === 'object' && child !== null) open.push({ value: child, depth: next.depth + 1 });
    }
  }
}

import { RelayError } from '../errors.ts';
import { type Progress, RELEASED_LATE, type ReadBudgets, type Reservation } from '../kit/byte-budget.ts';
import { concatBytes } from '../kit/bytes.ts';
import { nextTurn, systemClock } from '../kit/clock.ts';
import { isObject, parseJson, parseObject } from '../kit/json.ts';
import { MAX_UNCOUNTED, readLongJson } from '../kit/long-json.ts';
import { decodeUtf8, decodeUtf8Strict } from '../kit/text.ts';
import { withTimeout } from '../kit/timeouts.ts';
import { KiB } from '../kit/units.ts';
import { WebResponse } from './response.ts';

export const BODY_LIMIT = 64 * KiB;
const BODY_TIMEOUT = 60_000;
const MAX_DEPTH = 64;

/** Nearly every body is private. A response that may be cached, such as media, overrides `cache-control`. */
const JSON_HEADERS = {
  'content-type': 'application/json',
  'x-content-type-options': 'nosniff',
  'cache-control': 'no-store',
};

/** A JSON response, `no-store` unless `headers` says otherwise (contract 01, conventions). */
export const json = (body: unknown, status = 200, headers?: Record<string, string>): WebResponse =>
  jsonText(JSON.stringify(body), status, headers);

/** Like `json`, for a body that is already JSON text; null for a status without a body. */
export const jsonText = (text: string | null, status = 200, headers?: Record<string, string>): WebResponse =>
  new WebResponse(text, { status, headers: headers ? { ...JSON_HEADERS, ...headers } : JSON_HEADERS });

/** An error response, the same in every area: `{"ok":false,"error":…}` (contract 01 §1). */
export function errorResponse(
  status: number,
  error: string,
  headers?: Record<string, string>,
  extra?: Record<string, unknown>,
): Response {
  return json({ ok: false, error, ...extra }, status, headers);
}

/** A read fails only if the connection does, which is the client's fault. */
const cutOff = (): never => {
  throw new RelayError('invalid', 'the body ended early');
};

const tooSlow = () => new RelayError('timeout', 'the body arrives too slowly while others wait');

const tooLarge = (limit: number) => new RelayError('too-large', `body is larger than ${limit} bytes`);

/**
 * Reads a whole body of at most `limit` bytes. Leaves the rest of a larger one unread.
 * @throws RelayError `too-large`; `timeout` after a minute, or if a long one stalls while others wait; `unavailable` if it
 * only waited for memory; `invalid` if the client hangs up.
 */
async function readBody(request: Request, limit: number, hold: BodyHold): Promise<Uint8Array> {
  let hasTimedOut = false;
  return inTime(
    collect(request, limit, hold, () => hasTimedOut),
    () => {
      hasTimedOut = true;
      if (hold.isWaiting) throw new RelayError('unavailable', 'other long bodies are being read, try again later');
    },
  );
}

/** A request, the budgets that its long body counts towards, and a check whether its caller still may send it. */
type Source = Request & { budgets?: ReadBudgets; readmit?(): void };

type Reader = ReadableStreamDefaultReader<Uint8Array>;

/** Holds memory for a body while it is read and parsed, if it is long. */
class BodyHold {
  readonly #budgets: ReadBudgets | undefined;
  readonly #held: Reservation[] = [];
  #isOver = false;
  #giveUp: ((error: RelayError) => void) | undefined;
  /** Bytes received so far. */
  received = 0;
  /** True if the body is not read because others use up the budget. */
  isWaiting = false;

  constructor({ budgets }: Source) {
    this.#budgets = budgets;
  }

  /** Resolves when memory for the bytes is available. */
  async toRead(size: number): Promise<void> {
    if (!this.#budgets || size <= MAX_UNCOUNTED || this.#held.length > 0) return;
    this.isWaiting = true;
    const progress: Progress = {
      received: () => this.received,
      stalled: ({ release }) => {
        // A whole body keeps its memory until it is parsed.
        if (!this.#giveUp) return;
        release();
        this.#giveUp(tooSlow());
      },
    };
    this.#add(await this.#budgets.reading.acquire(size, progress));
    this.isWaiting = false;
  }

  /** The next chunk. Rejects for a long body that stalls while others wait, without cancelling it. */
  next(reader: Reader): ReturnType<Reader['read']> {
    const read = reader.read().catch(cutOff);
    if (this.#held.length === 0) return read;
    return new Promise<Awaited<typeof read>>((resolve, reject) => {
      this.#giveUp = reject;
      read.then(resolve, reject);
    }).finally(() => {
      this.#giveUp = undefined;
    });
  }

  /** Resolves when the bytes may be parsed. */
  async toParse(size: number): Promise<void> {
    if (this.#budgets) this.#add(await this.#budgets.parsing.acquire(size, RELEASED_LATE));
  }

  release(): void {
    this.#isOver = true;
    for (const reservation of this.#held) reservation.release();
  }

  #add(reservation: Reservation): void {
    if (this.#isOver) reservation.release();
    else this.#held.push(reservation);
  }
}

/** Reads and parses a body, which counts towards the budget meanwhile. @throws RelayError if its caller lost access */
async function reading<T>(request: Source, read: (hold: BodyHold) => Promise<T>): Promise<T> {
  const hold = new BodyHold(request);
  try {
    const value = await read(hold);
    request.readmit?.();
    return value;
  } finally {
    hold.release();
  }
}

/** The bytes of a body that arrive within a minute. @throws RelayError `timeout` after calling `late` */
function inTime(body: Promise<Uint8Array>, onTimeout = () => {}): Promise<Uint8Array> {
  return withTimeout({ clock: systemClock, timeout: BODY_TIMEOUT }, body, () => {
    onTimeout();
    throw new RelayError('timeout', 'the body took too long to arrive');
  });
}

/**
 * Assembles a body, in place if its length was announced, since a large one would otherwise take twice the memory. Does not
 * cancel a refused body: on Node, that would reset the connection before the response is sent.
 */
async function collect(
  { headers, body }: Request,
  limit: number,
  hold: BodyHold,
  hasTimedOut: () => boolean,
): Promise<Uint8Array> {
  const length = Number(headers.get('content-length'));
  if (length > limit) throw tooLarge(limit);
  if (!body) return new Uint8Array();
  if (length > 0) await hold.toRead(length);
  if (hasTimedOut()) return new Uint8Array();
  const reader = body.getReader();
  const whole = length > 0 ? new Uint8Array(length) : undefined;
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await hold.next(reader);
    if (done || hasTimedOut()) break;
    if (size + value.byteLength > (whole?.length ?? limit)) throw tooLarge(limit);
    if (whole) whole.set(value, size);
    else chunks.push(value);
    size += value.byteLength;
    hold.received = size;
    // Without a length, assume the maximum.
    if (!whole && size > MAX_UNCOUNTED) await hold.toRead(limit);
  }
  if (whole) return whole.subarray(0, size);
  return chunks.length === 1 ? (chunks[0] as Uint8Array) : concatBytes(...chunks);
}

/**
 * Like `readBody`, but reads a short body of announced length with one call, which saves the reader.
 * @throws RelayError like `readBody`
 */
async function readAnnounced(request: Request, limit: number, hold: BodyHold): Promise<Uint8Array> {
  const length = request.headers.get('content-length');
  if (length === null) return readBody(request, limit, hold);
  const isShort = Number(length) <= Math.min(MAX_UNCOUNTED, limit);
  const whole = () => request.arrayBuffer().then((buffer) => new Uint8Array(buffer), cutOff);
  const bytes = await (isShort ? inTime(whole()) : readBody(request, limit, hold));
  // On Node, the body of a closed connection reads as empty, which would mean `{}` here.
  return bytes.byteLength === Number(length) ? bytes : cutOff();
}

/**
 * Reads a body of at most `limit` bytes as text; invalid UTF-8 becomes U+FFFD.
 * @throws RelayError like `readAnnounced`
 */
export const readText = (request: Request, limit: number): Promise<string> =>
  reading(request, async (hold) => decodeUtf8(await readAnnounced(request, limit, hold)));

/** A JSON object and its original text, which is forwarded unchanged. */
export interface JsonText {
  text: string;
  value: Record<string, unknown>;
}

/**
 * Reads a body as a JSON object with its text; invalid UTF-8 becomes U+FFFD. An empty body yields `empty`.
 * @throws RelayError like `readText`; `invalid` for anything but a JSON object; `too-large` for one over 256 KiB with too
 * many parts (contract 02 §1.1).
 */
export async function readJsonText(
  request: Request,
  limit: number,
  empty: () => JsonText = () => ({ text: '{}', value: {} }),
): Promise<JsonText> {
  return reading(request, async (hold) => {
    const text = await decodeJson(await readAnnounced(request, limit, hold), false, hold);
    if (text === '') return empty();
    const value = parseObject(text);
    if (!value) throw new RelayError('invalid', 'body must be a JSON object');
    return { text, value };
  });
}

/**
 * Decodes a JSON body; invalid UTF-8 becomes U+FFFD, or with `fatal` is an error. Counts a large one, since parsing it could
 * block the process (contract 02 §1.1).
 * @throws RelayError `too-large`, `invalid`
 */
function decodeJson(bytes: Uint8Array, fatal: boolean, hold: BodyHold): string | Promise<string> {
  if (bytes.byteLength <= MAX_UNCOUNTED) {
    const text = fatal ? decodeUtf8Strict(bytes) : decodeUtf8(bytes);
    if (text === null) throw invalidJson();
    return text;
  }
  // Not awaited, because this function would hold the bytes while the text is joined.
  return readInTurn(bytes, fatal, hold).then(
    (text) => text ?? Promise.reject(new RelayError('too-large', 'the JSON of the body has too many parts or levels')),
    () => Promise.reject(invalidJson()),
  );
}

/** A separate function, since closures of the promise chain would also keep the bytes alive. */
const readInTurn = (bytes: Uint8Array, fatal: boolean, hold: BodyHold): Promise<string | null> =>
  hold.toParse(bytes.byteLength).then(() => readLongJson(bytes, { fatal }));

const invalidJson = () => new RelayError('invalid', 'invalid JSON body');

/**
 * Reads a body as a JSON object, regardless of its `Content-Type`. With `empty`, an empty body yields `{}`; with `null`, so
 * does `null`. `notObject` is the error for other JSON.
 * @throws RelayError `invalid` for anything but a JSON object, for numbers that parse to infinity, and for nesting deeper
 * than 64; `too-large` for one over 256 KiB with too many parts (contract 02 §1.1).
 */
export async function readJson(
  request: Request,
  options: { limit?: number; empty?: boolean; null?: boolean; notObject?: string } = {},
): Promise<Record<string, unknown>> {
  const value = await readJsonValue(request, options.limit ?? BODY_LIMIT, options.empty);
  if (options.null && value === null) return {};
  if (!isObject(value)) throw new RelayError('invalid', options.notObject ?? 'body must be a JSON object');
  return value;
}

/** Reads any JSON value, within the limits of `readJson`. */
export async function readJsonValue(request: Request, limit: number, empty = false): Promise<unknown> {
  return reading(request, async (hold) => {
    const text = await decodeJson(await readAnnounced(request, limit, hold), true, hold);
    if (empty && text === '') return {};
    const value = parseJson(text);
    if (value === undefined) throw invalidJson();
    // The check takes as long as parsing.
    if (text.length > MAX_UNCOUNTED) await nextTurn();
    if (typeof value === 'object' && value !== null) checkTree(value);
    return value;
  });
}

/** Walks without recursion, since the client controls the depth. `1e999` parses to infinity, which JSON cannot express. */
function checkTree(root: object): void {
  const open: { value: object; depth: number }[] = [{ value: root, depth: 1 }];
  for (let next = open.pop(); next; next = open.pop()) {
    if (next.depth > MAX_DEPTH) throw invalidJson();
    for (const child of Object.values(next.value)) {
      if (typeof child === 'number' && !Number.isFinite(child)) throw invalidJson();
      if (typeof child === 'object' && child !== null) open.push({ value: child, depth: next.depth + 1 });
    }
  }
}

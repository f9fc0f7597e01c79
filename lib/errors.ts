/** Kinds of failure, in terms of the domain. Only `handlers/errors.ts` maps a kind to a status. */
export type ErrorKind =
  | 'invalid'
  | 'unauthorized'
  | 'forbidden'
  | 'not-found'
  | 'conflict'
  | 'gone'
  | 'precondition'
  | 'locked'
  | 'timeout'
  | 'too-large'
  | 'unsupported-media'
  | 'rate-limited'
  | 'unsupported'
  | 'unavailable'
  | 'bad-gateway'
  | 'gateway-timeout'
  | 'internal';

/** An expected failure. `message` is a sentence for any caller, without paths and secrets. */
export class RelayError extends Error {
  readonly kind: ErrorKind;
  /** Whole seconds to wait, for `rate-limited`. */
  readonly retryAfter?: number;
  /** For `unauthorized`: the nonce for a proof of the caller's key. */
  readonly nonce?: string;
  /** Further members of the error body, as named in the contract. */
  readonly extra?: Readonly<Record<string, unknown>>;

  constructor(
    kind: ErrorKind,
    message: string,
    options: { retryAfter?: number; nonce?: string; extra?: Readonly<Record<string, unknown>>; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'RelayError';
    this.kind = kind;
    this.retryAfter = options.retryAfter;
    this.nonce = options.nonce;
    this.extra = options.extra;
  }
}

/** The requested change did not reach the disk, and was not made (contract 01 §6.7). */
export const notStored = (cause?: unknown): RelayError =>
  new RelayError('unavailable', 'could not be stored: try again later', { cause });

/** The edge of a mirror refuses more items, because the backlog for home is full (contract 12 §2). */
export const mirrorBacklog = (sentence = 'too much waits for home: try again later'): RelayError =>
  new RelayError('unavailable', sentence, { extra: { error_code: 'mirror_backlog' } });

/** The requested change is in effect, but could not be stored yet (contract 01 §6.7). `what` is a sentence. */
export const appliedOnly = (what: string): RelayError =>
  new RelayError('unavailable', `${what}, but that could not be stored: it is tried again until it is`, {
    extra: { applied: true, stored: false },
  });

/** A short text for logs. Never a stack, which may contain paths. */
export function describeError(error: unknown): string {
  if (error instanceof Error) {
    const code = (error as { code?: unknown }).code;
    return typeof code === 'string' && !error.message.includes(code) ? `${code}: ${error.message}` : error.message;
  }
  return String(error);
}

import { RelayError } from '../../errors.ts';
import { isSuccess, type Upstream, upstreamReason } from '../../host/upstream.ts';
import type { Clock } from '../../kit/clock.ts';
import { type JsonObject, parseObject } from '../../kit/json.ts';
import { decodeJsonText } from '../../kit/long-json.ts';
import { withDeadline } from '../../kit/timeouts.ts';
import { readUpTo } from '../../web/streams.ts';
import type { Credential, VoiceCredentials } from '../credentials.ts';
import { readProviderError } from '../provider-error.ts';

/** A `POST` to a provider, built by its row of the table. */
export interface ProviderRequest {
  url: string;
  headers: Record<string, string>;
  body: string | AsyncIterable<Uint8Array>;
}

/** The usual header that carries a secret. */
export const bearer = (secret: string) => ({ authorization: `Bearer ${secret}` });

/** The headers that carry a secret; none for a server that needs no key. */
export const authHeaders = (
  headers: (secret: string) => Record<string, string>,
  { secret }: Pick<Credential, 'secret'>,
): Record<string, string> => (secret === '' ? {} : headers(secret));

export interface ProviderReply {
  contentType: string;
  bytes: Uint8Array;
}

export interface CallDeps {
  upstream: Upstream;
  clock: Clock;
  credentials: Pick<VoiceCredentials, 'redact'>;
}

/** Limits of the calls for one request. */
export interface Bounds {
  provider: string;
  /** Milliseconds. */
  timeout: number;
  signal: AbortSignal;
}

/**
 * Runs calls to one provider within a time limit. Any failure is an `internal` error with `provider`, at most 300
 * characters, without secrets and host paths (contract 05 §8). If the caller hung up, throws the reason of its signal.
 */
export async function withProvider<T>(
  { clock, credentials }: Pick<CallDeps, 'clock' | 'credentials'>,
  { provider, timeout, signal }: Bounds,
  call: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const timeoutError = () => providerFailure(`${provider} did not finish within ${timeout / 1000} seconds`);
  try {
    return await withDeadline({ clock, timeout, signal, timeoutError }, call);
  } catch (error) {
    if (signal.aborted) throw signal.reason;
    const reason = error instanceof RelayError ? error.message : `${provider}: ${upstreamReason(error)}`;
    throw new RelayError('internal', credentials.redact(reason), { extra: { provider }, cause: error });
  }
}

/** A status other than 2xx. */
export class ProviderRefusal extends RelayError {
  constructor(
    message: string,
    readonly status: number,
  ) {
    super('bad-gateway', message);
  }
}

/** A failure of a provider; `withProvider` gives it its final form. */
export const providerFailure = (message: string): RelayError => new RelayError('bad-gateway', message);

/**
 * Sends one `POST` and reads the whole reply, of at most `limit` bytes. Follows no redirect.
 * @throws RelayError for a status other than 2xx, an empty body, and one over the limit.
 */
export async function callProvider(
  upstream: Upstream,
  { url, headers, body }: ProviderRequest,
  { provider, limit, signal }: { provider: string; limit: number; signal: AbortSignal },
): Promise<ProviderReply> {
  const response = await upstream({ method: 'POST', url, headers, body, signal });
  if (!isSuccess(response.status)) {
    const detail = await readProviderError(response.body);
    throw new ProviderRefusal(
      `${provider} answered HTTP ${response.status}${detail && `: ${detail}`}`,
      response.status,
    );
  }
  const bytes = await readUpTo(response.body, limit + 1);
  if (bytes.length > limit) throw providerFailure(`${provider} sent more than ${limit / 1024 / 1024} MiB`);
  return { contentType: response.headers['content-type'] ?? '', bytes };
}

/** A reply as text; null if it is not UTF-8, or JSON with too many parts to be parsed (contract 02 §1.1). */
export const textReply = ({ bytes }: ProviderReply): Promise<string | null> =>
  decodeJsonText(bytes, { fatal: true }).catch(() => null);

/** A reply as a JSON object. @throws RelayError for anything else. */
export async function jsonReply(provider: string, reply: ProviderReply): Promise<JsonObject> {
  const value = parseObject((await textReply(reply)) ?? '');
  if (!value) throw providerFailure(`${provider} sent a reply that is no JSON object`);
  return value;
}

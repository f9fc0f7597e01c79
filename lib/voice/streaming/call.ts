import { RelayError } from '../../errors.ts';
import { isSuccess, type Upstream, type UpstreamResponse, upstreamReason } from '../../host/upstream.ts';
import type { DialUpstream } from '../../host/upstream-socket.ts';
import { concatBytes } from '../../kit/bytes.ts';
import type { Clock } from '../../kit/clock.ts';
import { type Credential, keyNames, type VoiceCredentials } from '../credentials.ts';
import { isTextType, readProviderError } from '../provider-error.ts';
import { findProvider } from '../registry.ts';
import type { Adapter, RenderRequest } from './adapter.ts';

/** Milliseconds that a render waits for its provider, in all. The time in which nobody takes its audio does not count. */
const PROVIDER_TIMEOUT = 60_000;

export interface AdapterParts {
  upstream: Upstream;
  dialUpstream: DialUpstream;
  clock: Clock;
  credentials: Pick<VoiceCredentials, 'streaming' | 'redact'>;
}

/**
 * An adapter with the rules that all share (contract 05 §13): PCM only, a minute of waiting for the provider, and an error
 * when there is no audio. Its errors are redacted and short.
 */
export function withRules(provider: string, adapter: Adapter, { clock, credentials }: AdapterParts): Adapter {
  const name = findProvider(provider)?.info.name ?? provider;
  return async function* (request) {
    const end = new AbortController();
    const abort = () => end.abort(request.signal.reason);
    let left = PROVIDER_TIMEOUT;
    let isLate = false;
    let isSilent = true;
    let isFinished = false;
    const audio = adapter({ ...request, signal: end.signal });
    request.signal.addEventListener('abort', abort);
    try {
      request.signal.throwIfAborted();
      if (request.codec !== 'pcm') {
        throw new RelayError('invalid', `${name} renders only the codec pcm, not ${request.codec}`);
      }
      for (;;) {
        const started = clock.monotonic();
        const cancel = clock.after(Math.max(left, 0), () => {
          isLate = true;
          end.abort();
        });
        const next = await audio.next().finally(cancel);
        left -= clock.monotonic() - started;
        if (next.done) {
          isFinished = true;
          if (isSilent) throw new RelayError('bad-gateway', `${name} returned no audio`);
          return next.value;
        }
        isSilent = false;
        yield next.value;
      }
    } catch (error) {
      if (request.signal.aborted) throw request.signal.reason;
      if (isLate) throw new RelayError('gateway-timeout', `${name} did not finish within ${PROVIDER_TIMEOUT / 1000} s`);
      const kind = error instanceof RelayError ? error.kind : 'bad-gateway';
      const message = error instanceof RelayError ? error.message : `${name}: ${upstreamReason(error)}`;
      throw new RelayError(kind, credentials.redact(message, Object.values(request.headers ?? {})), { cause: error });
    } finally {
      request.signal.removeEventListener('abort', abort);
      // A finished adapter may still be closing its connection in good order.
      if (!isFinished) end.abort();
      await audio.return(undefined as never);
    }
  };
}

/** Key and base URL of a streaming provider. Without a key, throws `unavailable` with the variables that may hold one. */
export async function credentialOf(
  provider: string,
  { oauthPath }: RenderRequest,
  { credentials }: AdapterParts,
): Promise<Credential> {
  const credential = await credentials.streaming(provider, oauthPath);
  if (credential) return credential;
  const names = keyNames(provider).join(', ');
  throw new RelayError('unavailable', `${findProvider(provider)?.info.name} has no API key: set one of ${names}`);
}

export interface AudioCall {
  provider: string;
  url: string;
  headers: Record<string, string>;
  body: Record<string, unknown>;
  signal: AbortSignal;
}

/**
 * Calls a provider for raw PCM. Throws `bad-gateway` for an error status, for an answer that is text, and, when its body is
 * read, for audio in another format.
 */
export async function callForAudio(call: AudioCall, { upstream }: AdapterParts): Promise<UpstreamResponse> {
  const name = findProvider(call.provider)?.info.name;
  const response = await upstream({
    method: 'POST',
    url: call.url,
    headers: { ...call.headers, 'content-type': 'application/json' },
    body: JSON.stringify(call.body),
    signal: call.signal,
  });
  const type = response.headers['content-type'] ?? '';
  const isOk = isSuccess(response.status);
  if (isOk && !isTextType(type)) return { ...response, body: rawSamples(response.body, type, name ?? call.provider) };
  const detail = await readProviderError(response.body);
  const failure = isOk ? `sent ${type} instead of audio` : `answered HTTP ${response.status}`;
  throw new RelayError('bad-gateway', `${name} ${failure}${detail && `: ${detail}`}`);
}

/** Bytes by which a format is known. */
const MAGIC_BYTES = 4;
const MAGIC: readonly [magic: string, format: string][] = [
  ['ID3', 'MP3'],
  ['OggS', 'Ogg'],
  ['fLaC', 'FLAC'],
  ['RIFF', 'WAV'],
];

/** The format of audio that is not raw samples, as which it would be noise; undefined for raw samples. */
function formatOf(start: Uint8Array, contentType: string): string | undefined {
  const text = String.fromCharCode(...start);
  const known = MAGIC.find(([magic]) => text.startsWith(magic));
  if (known) return known[1];
  // The header of a frame may as well be two samples, so the type has to agree.
  const isFrame = start[0] === 0xff && ((start[1] as number) & 0xe0) === 0xe0;
  return isFrame && /^audio\/(?:mpeg|mp3|aac)/i.test(contentType) ? 'MP3' : undefined;
}

/** Passes a body on once its first bytes are those of raw samples. */
async function* rawSamples(
  body: AsyncIterable<Uint8Array>,
  contentType: string,
  name: string,
): AsyncGenerator<Uint8Array> {
  let start: Uint8Array | undefined = new Uint8Array(0);
  for await (const bytes of body) {
    if (start === undefined) {
      yield bytes;
      continue;
    }
    start = concatBytes(start, bytes);
    if (start.length < MAGIC_BYTES) continue;
    const format = formatOf(start.subarray(0, MAGIC_BYTES), contentType);
    if (format !== undefined) throw new RelayError('bad-gateway', `${name} sent ${format} instead of raw PCM`);
    yield start;
    start = undefined;
  }
  if (start && start.length > 0) yield start;
}

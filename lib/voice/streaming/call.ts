import { RelayError } from '../../errors.ts';
import { isSuccess, type Upstream, type UpstreamResponse, upstreamReason } from '../../host/upstream.ts';
import type { DialUpstream } from '../../host/upstream-socket.ts';
import type { Clock } from '../../kit/clock.ts';
import type { CommandHost } from '../command.ts';
import { type Credential, keyNames, type VoiceCredentials } from '../credentials.ts';
import { isTextType, readProviderError } from '../provider-error.ts';
import { findProvider } from '../registry.ts';
import type { Adapter, RenderRequest } from './adapter.ts';
import { decodeSamples } from './decode.ts';

/** Milliseconds that a render waits for its provider, in total. Time in which nobody consumes its audio does not count. */
const PROVIDER_TIMEOUT = 60_000;

export interface AdapterDeps {
  /** Starts the programs of the owner. Absent at the edge. */
  host?: CommandHost;
  upstream: Upstream;
  dialUpstream: DialUpstream;
  clock: Clock;
  credentials: Pick<VoiceCredentials, 'streaming' | 'redact'>;
}

/**
 * An adapter with the common rules (contract 05 §13): PCM only, a minute of waiting for the provider, and an error if there
 * is no audio. Its errors are redacted and short.
 */
export function withRules(provider: string, adapter: Adapter, { clock, credentials }: AdapterDeps): Adapter {
  const name = findProvider(provider)?.info.name ?? provider;
  return async function* (request) {
    const end = new AbortController();
    const abort = () => end.abort(request.signal.reason);
    let left = PROVIDER_TIMEOUT;
    let hasTimedOut = false;
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
          hasTimedOut = true;
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
      if (hasTimedOut)
        throw new RelayError('gateway-timeout', `${name} did not finish within ${PROVIDER_TIMEOUT / 1000} s`);
      const kind = error instanceof RelayError ? error.kind : 'bad-gateway';
      const message = error instanceof RelayError ? error.message : `${name}: ${upstreamReason(error)}`;
      throw new RelayError(kind, credentials.redact(message, Object.values(request.headers ?? {})), { cause: error });
    } finally {
      request.signal.removeEventListener('abort', abort);
      // A finished adapter may still be closing its connection.
      if (!isFinished) end.abort();
      await audio.return(undefined as never);
    }
  };
}

/** Key and base URL of a streaming provider. Without a key, throws `unavailable` with the variables that may hold one. */
export async function credentialOf(
  provider: string,
  { oauthPath, servers }: RenderRequest,
  { credentials }: AdapterDeps,
): Promise<Credential> {
  const credential = await credentials.streaming(provider, oauthPath, servers);
  if (credential) return credential;
  if (isLocalId(provider)) throw new RelayError('unavailable', noServer(provider));
  const names = keyNames(provider).join(', ');
  throw new RelayError('unavailable', `${findProvider(provider)?.info.name} has no API key: set one of ${names}`);
}

const isLocalId = (provider: string): boolean => provider.startsWith('local_');

/** The error for an owner who chose `local` without configuring a server. */
export const noServer = (provider: string): string => {
  const place = provider === 'local_tts' ? 'tts.local' : 'realtime.local';
  return `${findProvider(provider)?.info.name} has no server: set ${place}.base_url, with an api_key if it is public`;
};

export interface AudioCall {
  provider: string;
  url: string;
  headers: Record<string, string>;
  body: Record<string, unknown>;
  /** Hertz of the samples that come out. */
  sampleRate: number;
  /** Hertz of raw samples without a rate in their label; `sampleRate` by default. */
  assumedRate?: number;
  signal: AbortSignal;
}

/**
 * Calls a provider for raw PCM; a WAV, or another rate that the answer names, is converted. Throws `bad-gateway` for an
 * error status, for an answer that is text, and, when its body is read, for audio in another format.
 */
export async function callForAudio(call: AudioCall, { upstream }: AdapterDeps): Promise<UpstreamResponse> {
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
  if (isOk && !isTextType(type)) {
    const { sampleRate: rate, assumedRate = rate } = call;
    const decoding = { contentType: type, assumedRate, rate, name: name ?? call.provider };
    return { ...response, body: decodeSamples(response.body, decoding) };
  }
  const detail = await readProviderError(response.body);
  const failure = isOk ? `sent ${type} instead of audio` : `answered HTTP ${response.status}`;
  throw new RelayError('bad-gateway', `${name} ${failure}${detail && `: ${detail}`}`);
}

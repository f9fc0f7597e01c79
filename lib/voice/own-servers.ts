import { isSuccess, type Upstream, upstreamReason } from '../host/upstream.ts';
import type { DialUpstream } from '../host/upstream-socket.ts';
import type { Clock } from '../kit/clock.ts';
import { parseObject } from '../kit/json.ts';
import { decodeUtf8 } from '../kit/text.ts';
import { withDeadline } from '../kit/timeouts.ts';
import { readUpTo } from '../web/streams.ts';
import { authHeaders, bearer } from './basic/call.ts';
import { discoverLocal } from './discovery.ts';

/** Usual ports of speech servers (contract 05 §18). */
export const USUAL_PORTS = [8000, 8080, 8880, 1234, 5005, 10_200, 11_434] as const;

export type ServerKind = 'stt' | 'tts' | 'realtime';

/** One ability of a server on this machine. A type, so that it is a JSON value. */
export type FoundServer = { url: string; kind: ServerKind; models: string[]; voices: string[]; needs_key: boolean };

export interface ProbeDeps {
  upstream: Upstream;
  dialUpstream: DialUpstream;
  clock: Clock;
  /** Milliseconds for one request. */
  timeout: number;
  signal: AbortSignal;
}

/** A server's answer at one path. */
export type PathState =
  | { is: 'there'; needsKey: boolean }
  | { is: 'missing' }
  | { is: 'failed'; status: number }
  /** `reason` is a few words. */
  | { is: 'unreachable'; reason: string };

const MAX_BODY = 16 * 1024;
const STT_MODEL = /whisper|stt|transcri|parakeet|canary|moonshine|sense-?voice|vosk/i;
const TTS_MODEL = /tts|kokoro|piper|orpheus|speech|voice|bark|chatterbox|dia\b|f5|melo|styletts/i;

/** A form without a file, which every transcription server refuses. */
const BOUNDARY = 'svc-relay-probe';
const EMPTY_FORM = `--${BOUNDARY}--\r\n`;

const headersFor = (secret: string): Record<string, string> => authHeaders(bearer, { secret });

/** Sends an empty request to a path: a server that supports the path complains about the body. Never rejects. */
async function askPath(
  { upstream, clock, timeout, signal }: ProbeDeps,
  url: string,
  key: string,
  request: { type: string; body: string },
): Promise<PathState> {
  const timeoutError = () => new Error(`no answer in ${timeout / 1000} s`);
  try {
    return await withDeadline({ clock, timeout, signal, timeoutError }, async (end) => {
      const headers = { 'content-type': request.type, ...headersFor(key) };
      const reply = await upstream({ method: 'POST', url, headers, body: request.body, signal: end });
      if (reply.status === 401 || reply.status === 403) return { is: 'there', needsKey: true };
      if ([404, 405, 501].includes(reply.status)) return { is: 'missing' };
      const answer = parseObject(decodeUtf8(await readUpTo(reply.body, MAX_BODY)));
      const complains = /file|input|field|form|body/i.test(JSON.stringify(answer?.error ?? answer?.detail ?? ''));
      if (reply.status >= 500 && !complains) return { is: 'failed', status: reply.status };
      // Some servers answer 200 to any path, with an error in the body.
      const isOther = isSuccess(reply.status) && !complains;
      return isOther ? { is: 'missing' } : { is: 'there', needsKey: false };
    });
  } catch (error) {
    return { is: 'unreachable', reason: upstreamReason(error) };
  }
}

/** Checks that a server speaks at this base URL, without generating speech. */
export const askTts = (deps: ProbeDeps, baseUrl: string, key = ''): Promise<PathState> =>
  askPath(deps, `${baseUrl}/audio/speech`, key, { type: 'application/json', body: '{}' });

/** Checks that a server transcribes at this base URL, or at the path of whisper.cpp if the URL is that. */
export function askStt(deps: ProbeDeps, baseUrl: string, key = ''): Promise<PathState> {
  const url = baseUrl.endsWith('/inference') ? baseUrl : `${baseUrl}/audio/transcriptions`;
  return askPath(deps, url, key, { type: `multipart/form-data; boundary=${BOUNDARY}`, body: EMPTY_FORM });
}

/** Checks that a server opens the socket of the realtime protocol. */
export async function askRealtime(
  { dialUpstream, timeout, signal }: ProbeDeps,
  baseUrl: string,
  model: string,
  key = '',
): Promise<PathState> {
  const url = `${baseUrl.replace(/^http/, 'ws').replace(/\/realtime$/, '')}/realtime?model=${encodeURIComponent(model)}`;
  try {
    const request = { url, headers: headersFor(key), signal, maxMessage: MAX_BODY, connectTimeout: timeout };
    const socket = await dialUpstream(request, { message() {}, closed() {} });
    socket.close(1000);
    return { is: 'there', needsKey: false };
  } catch (error) {
    const { status } = error as { status?: number };
    if (status === 401 || status === 403) return { is: 'there', needsKey: true };
    if (status !== undefined && status < 500) return { is: 'missing' };
    return status === undefined ? { is: 'unreachable', reason: upstreamReason(error) } : { is: 'failed', status };
  }
}

/** Models of a server that match a kind; all of them if no name indicates a kind. */
function modelsFor(kind: ServerKind, models: readonly string[]): string[] {
  const pattern = kind === 'stt' ? STT_MODEL : kind === 'tts' ? TTS_MODEL : /realtime/i;
  const other = kind === 'stt' ? TTS_MODEL : STT_MODEL;
  const fitting = models.filter((model) => pattern.test(model) && (kind === 'realtime' || !other.test(model)));
  return fitting.length > 0 ? fitting : [...models];
}

/** The usual base URL of a server on a port of this machine. */
export const usualUrl = (port: number): string => `http://127.0.0.1:${port}/v1`;

/** The abilities of a server; empty if it is not a speech server. Never rejects. */
export async function findAt(deps: ProbeDeps, url: string, key = ''): Promise<FoundServer[]> {
  const [tts, stt] = await Promise.all([askTts(deps, url, key), askStt(deps, url, key)]);
  if (tts.is === 'unreachable' && stt.is === 'unreachable') return [];
  const whisperCpp = `${new URL(url).origin}/inference`;
  const [{ models, voices }, plain] = await Promise.all([
    discoverLocal(deps, { secret: key, baseUrl: url, source: 'none' }),
    stt.is === 'missing' ? askStt(deps, whisperCpp, key) : stt,
  ]);
  const ids = models.map(({ id }) => id);
  const [model] = modelsFor('realtime', ids);
  const realtime = ids.length > 0 ? await askRealtime(deps, url, model ?? '', key) : { is: 'missing' as const };
  const found = (kind: ServerKind, at: string, state: PathState): FoundServer[] =>
    state.is === 'there'
      ? [
          {
            url: at,
            kind,
            models: modelsFor(kind, ids),
            voices: kind === 'tts' ? voices.map(({ id }) => id) : [],
            needs_key: state.needsKey,
          },
        ]
      : [];
  return [
    ...found('stt', stt.is === 'there' ? url : whisperCpp, plain),
    ...found('tts', url, tts),
    ...found('realtime', url, realtime),
  ];
}

import { describeError, RelayError } from '../../errors.ts';
import { base64 } from '../../kit/bytes.ts';
import type { Clock } from '../../kit/clock.ts';
import { isObject, type JsonObject } from '../../kit/json.ts';
import { withTimeout } from '../../kit/timeouts.ts';
import type { Log } from '../../log.ts';
import type { SessionArtifacts } from '../artifacts.ts';
import { MAX_TEXT } from '../limits.ts';
import type { EventBody } from '../socket/types.ts';
import type { Adapter, AudioChunk, Rendered, RenderRequest } from '../streaming/adapter.ts';
import { levelsOf } from '../streaming/pcm.ts';

/** Milliseconds to the first audio: the phone gives up at 15 s (contract 05 §12). */
const FIRST_AUDIO_TIMEOUT = 12_000;
/** Milliseconds for which an attached client may accept no audio. */
const STALL_TIMEOUT = 60_000;

/** Receives the events of a render. */
export interface RenderSink {
  publish(event: EventBody): void;
  publishAudio(event: EventBody): void;
  /** Undefined if more audio may be published; otherwise resolves once it may. */
  room(): Promise<void> | undefined;
  readonly isAttached: boolean;
}

export interface RenderOptions {
  provider: string;
  adapter: Adapter;
  /** Its `signal` ends the render without a further event. */
  request: RenderRequest;
  sink: RenderSink;
  artifacts: SessionArtifacts;
  /** Events before the audio; `voice.response.started` is the first. */
  before(request: RenderRequest): EventBody[];
  /** Members of the error of a failed render, besides `message` and `provider`. */
  failed?: JsonObject;
  /** Members of `voice.response.done` beyond the common ones. */
  done?: JsonObject;
  clock: Clock;
  log: Log;
}

/** The first 5000 code points of a text. */
export const cutText = (text: string): string => [...text.slice(0, MAX_TEXT * 2)].slice(0, MAX_TEXT).join('');

/** `voice.response.started` of a render. */
export const startedEvent = (provider: string, request: RenderRequest, more: JsonObject): EventBody => ({
  type: 'voice.response.started',
  provider,
  model: request.model,
  voice: request.voice,
  render_mode: request.renderMode,
  text_chars: [...request.text].length,
  ...more,
});

/** Renders one text as the events of contract 05 §12, and a transcript if there is one (§14). Never rejects. */
export async function render(options: RenderOptions): Promise<void> {
  const { provider, request, sink, artifacts, log } = options;
  for (const event of options.before(request)) sink.publish(event);
  try {
    const { rendered, audioPath, metrics } = await renderAudio(options);
    const facts = { provider: rendered.provider, model: rendered.model, voice: rendered.voice };
    if (rendered.transcript) sink.publish({ type: 'voice.transcript.final', text: rendered.transcript });
    sink.publish({ type: 'voice.audio.done' });
    // A reader of the event may read the file at once.
    const savedPath = audioPath === '' ? '' : await artifacts.savedAudio(audioPath);
    if (request.signal.aborted) return;
    sink.publish({
      type: 'voice.response.done',
      ...facts,
      audio_path: savedPath,
      event_log_path: artifacts.logPath,
      metrics: { ...facts, ...metrics },
      metadata: redacted(rendered.metadata),
      ...options.done,
    });
  } catch (error) {
    if (request.signal.aborted) return;
    if (!(error instanceof RelayError)) log.error(`a render failed: ${describeError(error)}`);
    sink.publish({
      type: 'voice.error',
      message: error instanceof RelayError ? error.message : 'the render failed',
      provider,
      ...options.failed,
    });
  } finally {
    artifacts.endAudio();
  }
}

interface Outcome {
  rendered: Rendered;
  audioPath: string;
  metrics: JsonObject;
}

async function renderAudio({ adapter, request, sink, artifacts, clock }: RenderOptions): Promise<Outcome> {
  const end = new AbortController();
  const abort = () => end.abort(request.signal.reason);
  request.signal.addEventListener('abort', abort, { once: true });
  if (request.signal.aborted) abort();
  const cancelFirst = clock.after(FIRST_AUDIO_TIMEOUT, () =>
    end.abort(new RelayError('gateway-timeout', `no audio within ${FIRST_AUDIO_TIMEOUT / 1000} s`)),
  );
  const audio = adapter({ ...request, signal: end.signal });
  const started = clock.monotonic();
  let audioPath = '';
  let firstAudio: number | null = null;
  let largestGap: number | null = null;
  try {
    for (;;) {
      await roomFor(sink, clock, end.signal);
      const asked = clock.monotonic();
      const next = await unlessAborted(audio.next(), end.signal);
      const now = clock.monotonic();
      if (next.done) {
        const metrics = metricsOf({ firstAudio, largestGap, done: now - started });
        return { rendered: next.value, audioPath, metrics };
      }
      if (firstAudio === null) {
        cancelFirst();
        firstAudio = now - started;
        audioPath = artifacts.startAudio(next.value.sampleRate);
      } else largestGap = Math.max(largestGap ?? 0, now - asked);
      artifacts.audio(next.value.pcm);
      sink.publishAudio(deltaOf(next.value));
    }
  } finally {
    cancelFirst();
    request.signal.removeEventListener('abort', abort);
    end.abort();
    // Not awaited: a provider that ignores the abort must not hold up the session.
    void audio.return(undefined as never).catch(() => {});
  }
}

function deltaOf({ pcm, sampleRate, label }: AudioChunk): EventBody {
  const { peak, rms } = levelsOf(pcm);
  return {
    type: 'voice.audio.delta',
    audio_base64: base64(pcm),
    byte_count: pcm.length,
    sample_rate: sampleRate,
    channels: 1,
    sample_width: 2,
    label,
    peak_level: peak,
    rms_level: rms,
  };
}

/** Waits until the client has room: without limit while it is detached, and for a minute while it is attached. */
async function roomFor(sink: RenderSink, clock: Clock, signal: AbortSignal): Promise<void> {
  for (let room = sink.room(); room; room = sink.room()) {
    let hasTimedOut = false;
    const onTimeout = () => {
      hasTimedOut = true;
    };
    await withTimeout({ clock, timeout: STALL_TIMEOUT, signal }, room, onTimeout);
    signal.throwIfAborted();
    if (hasTimedOut && sink.isAttached) {
      throw new RelayError('timeout', `the client took no audio for ${STALL_TIMEOUT / 1000} s`);
    }
  }
}

/** The outcome of `work`, or the reason of the signal once it aborts, regardless of the work. */
function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason);
    signal.addEventListener('abort', abort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort));
    if (signal.aborted) abort();
  });
}

const milliseconds = (value: number | null): number | null => (value === null ? null : Math.round(value * 1000) / 1000);

function metricsOf(times: { firstAudio: number | null; largestGap: number | null; done: number }): JsonObject {
  return {
    first_audio_ms: milliseconds(times.firstAudio),
    response_done_ms: milliseconds(times.done),
    audio_chunk_gap_ms: milliseconds(times.largestGap),
    audio_underruns: 0,
    speech_pacing: null,
    tone_consistency: null,
    emotion_consistency: null,
    voice_drift: null,
    interrupt_latency: null,
    pronunciation_quality: null,
    context_retention: null,
  };
}

const SECRET_KEY = /token|secret|key/i;

/** An adapter's facts, without the values of members whose names suggest secrets (contract 05 §12). */
export function redacted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(redacted);
  if (!isObject(value)) return value;
  const members = Object.entries(value).map(([key, member]) => [
    key,
    SECRET_KEY.test(key) ? '<redacted>' : redacted(member),
  ]);
  return Object.fromEntries(members);
}

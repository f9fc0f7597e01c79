import { describe, expect, it, vi } from 'vitest';
import { RelayError } from '../../../../lib/errors.ts';
import type { SessionArtifacts } from '../../../../lib/voice/artifacts.ts';
import { cutText, type RenderSink, redacted, render, startedEvent } from '../../../../lib/voice/output/render.ts';
import type { EventBody } from '../../../../lib/voice/socket/types.ts';
import { type Adapter, type AudioChunk, renderRequest } from '../../../../lib/voice/streaming/adapter.ts';
import { renderStub } from '../../../../lib/voice/streaming/stub.ts';
import { createTestClock } from '../../../support/clock.ts';
import { createTestLog } from '../../../support/log.ts';

const SETTINGS = {
  model: 'm',
  voice: 'v',
  sampleRate: 16_000,
  language: 'en',
  codec: 'pcm',
  optimizeStreamingLatency: 1,
  textNormalization: false,
  autoSpeechTags: false,
};
const MODE = { output_mode: 'streaming_tts_renderer' };
const ARTIFACTS: SessionArtifacts = {
  logPath: '/logs/x.jsonl',
  record() {},
  recordEnd() {},
  startAudio: () => '/logs/x.wav',
  audio() {},
  endAudio() {},
  savedAudio: async (path) => path,
  settled: async () => {},
};
const chunk = (bytes = 4): AudioChunk => ({ pcm: new Uint8Array(bytes), sampleRate: 16_000, label: 'l' });

function setUp(adapter: Adapter, text = 'hello', client: { room?: RenderSink['room']; isAttached?(): boolean } = {}) {
  const clock = createTestClock();
  const end = new AbortController();
  const events: EventBody[] = [];
  const sink: RenderSink = {
    publish: (event) => events.push(event),
    publishAudio: (event) => events.push(event),
    room: client.room ?? (() => undefined),
    get isAttached() {
      return client.isAttached?.() ?? true;
    },
  };
  const log = createTestLog();
  const request = renderRequest(SETTINGS, {
    text,
    renderMode: 'verbatim',
    expression: undefined,
    providerOptions: undefined,
    signal: end.signal,
  });
  const done = render({
    provider: 'stub',
    adapter,
    request,
    sink,
    artifacts: ARTIFACTS,
    before: (made) => [startedEvent('stub', made, MODE)],
    failed: { fallback_enabled: true },
    done: MODE,
    clock,
    log,
  });
  return { clock, end, events, done, log, types: () => events.map(({ type }) => type) };
}
const RENDERED = {
  provider: 'stub',
  model: 'tone',
  voice: 'sine',
  metadata: { request_id: 'r', api_key: 'k', deep: [{ Token: 1 }] },
};

it('names its recording once that is there (issue 23, 3.2)', async () => {
  let save = (_path: string) => {};
  const saving = vi.spyOn(ARTIFACTS, 'savedAudio').mockReturnValue(
    new Promise((resolve) => {
      save = resolve;
    }),
  );
  const { done, types, events } = setUp(async function* () {
    yield chunk();
    return RENDERED;
  });
  await vi.waitFor(() => expect(saving).toHaveBeenCalledWith('/logs/x.wav'));
  expect(types().at(-1)).toBe('voice.audio.done');
  save('/logs/x.wav');
  await done;
  expect(events.at(-1)).toMatchObject({ type: 'voice.response.done', audio_path: '/logs/x.wav' });
  saving.mockRestore();
});

describe('a render (contract 05 §12)', () => {
  it('is started, deltas, audio.done, response.done', async () => {
    const { events, done } = setUp(renderStub, 'x'.repeat(60));
    await done;
    expect(events[0]).toEqual({
      type: 'voice.response.started',
      provider: 'stub',
      model: 'm',
      voice: 'v',
      render_mode: 'verbatim',
      text_chars: 60,
      output_mode: 'streaming_tts_renderer',
    });
    expect(events.slice(1, -2)).toHaveLength(8);
    expect(events[1]).toMatchObject({
      type: 'voice.audio.delta',
      byte_count: 2000,
      sample_rate: 16_000,
      channels: 1,
      sample_width: 2,
      label: 'frames:0-1000',
      peak_level: 0.2441,
      rms_level: 0.1726,
    });
    expect(events.at(-2)).toEqual({ type: 'voice.audio.done' });
    expect(events.at(-1)).toMatchObject({
      type: 'voice.response.done',
      provider: 'stub',
      model: 'local-tone',
      voice: 'sine',
      audio_path: '/logs/x.wav',
      event_log_path: '/logs/x.jsonl',
      metadata: { frequency_hz: 440 },
    });
  });

  it('reports its timing on the monotonic clock, without the time in which the client had no room', async () => {
    let go = () => {};
    let hasRoom = true;
    const { clock, events, done } = setUp(
      async function* () {
        clock.advance(1.23456);
        yield chunk();
        clock.advance(2);
        yield chunk();
        hasRoom = false;
        clock.advance(5);
        yield chunk();
        return RENDERED;
      },
      'hello',
      {
        room: () =>
          hasRoom
            ? undefined
            : new Promise<void>((resolve) => {
                go = () => {
                  hasRoom = true;
                  resolve();
                };
              }),
      },
    );
    await clock.advanceAsync(1000);
    go();
    await done;
    expect(events.at(-1)).toMatchObject({
      metrics: {
        provider: 'stub',
        first_audio_ms: 1.235,
        audio_chunk_gap_ms: 5,
        response_done_ms: 1000,
        audio_underruns: 0,
        voice_drift: null,
        context_retention: null,
      },
    });
  });

  it('has no gap with one chunk, and hides secrets among the facts of an adapter', async () => {
    const { events, done } = setUp(async function* () {
      yield chunk();
      return RENDERED;
    });
    await done;
    expect(events.at(-1)).toMatchObject({
      metrics: { audio_chunk_gap_ms: null },
      metadata: { request_id: 'r', api_key: '<redacted>', deep: [{ Token: '<redacted>' }] },
    });
    expect(redacted(null)).toBeNull();
  });

  it.each([
    [
      'an expected failure',
      new RelayError('bad-gateway', 'OpenAI TTS answered HTTP 500'),
      'OpenAI TTS answered HTTP 500',
    ],
    ['an unexpected one', new Error('secret stack'), 'the render failed'],
  ])('ends with voice.error after %s', async (_name, error, message) => {
    const { events, done, types } = setUp(async function* () {
      yield chunk();
      throw error;
    });
    await done;
    expect(types()).toEqual(['voice.response.started', 'voice.audio.delta', 'voice.error']);
    expect(events.at(-1)).toEqual({
      type: 'voice.error',
      message,
      provider: 'stub',
      fallback_enabled: true,
    });
  });

  it('fails without audio after 12 s, even if the provider ignores the abort', async () => {
    let wasAborted = false;
    const { clock, events, done } = setUp(async function* ({ signal }) {
      signal.addEventListener('abort', () => {
        wasAborted = true;
      });
      await new Promise(() => {});
      yield chunk();
      return RENDERED;
    });
    await clock.advanceAsync(11_999);
    expect(events).toHaveLength(1);
    await clock.advanceAsync(1);
    await done;
    expect(events.at(-1)).toMatchObject({ type: 'voice.error', message: 'no audio within 12 s' });
    expect(wasAborted).toBe(true);
    expect(clock.pending).toBe(0);
  });

  it('says nothing more once its session has ended, and lets go of the provider', async () => {
    let isReleased = false;
    const { clock, end, done, types } = setUp(async function* ({ signal }) {
      try {
        yield chunk();
        await new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
        return RENDERED;
      } finally {
        isReleased = true;
      }
    });
    await clock.advanceAsync(0);
    end.abort(new Error('over'));
    await done;
    expect(types()).toEqual(['voice.response.started', 'voice.audio.delta']);
    await clock.advanceAsync(0);
    expect(isReleased).toBe(true);
    expect(clock.pending).toBe(0);
  });

  it('pulls no further while there is no room: for as long as the client is away, a minute while it is there', async () => {
    let taken = 0;
    let isAttached = false;
    const { clock, events, done } = setUp(
      async function* () {
        for (;;) {
          taken++;
          yield chunk();
        }
      },
      'hello',
      {
        room: () => (taken < 3 ? undefined : new Promise<void>(() => {})),
        isAttached: () => isAttached,
      },
    );
    await clock.advanceAsync(600_000);
    expect(taken).toBe(3);
    isAttached = true;
    await clock.advanceAsync(60_000);
    await done;
    expect(events.at(-1)).toMatchObject({ type: 'voice.error', message: 'the client took no audio for 60 s' });
  });
});

it('cuts a text to 5000 code points, never through one', () => {
  expect(cutText('short ')).toBe('short ');
  expect(cutText('😀'.repeat(6000))).toBe('😀'.repeat(5000));
  expect(cutText(`a${'😀'.repeat(6000)}`)).toBe(`a${'😀'.repeat(4999)}`);
});

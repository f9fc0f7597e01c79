import type { SpeechCreateParams } from 'openai/resources/audio/speech';
import { describe, expect, it, vi } from 'vitest';
import { createVoiceCredentials } from '../../../../lib/voice/credentials.ts';
import { parseExpression, parseProviderOptions } from '../../../../lib/voice/streaming/adapter.ts';
import { createAdapters } from '../../../../lib/voice/streaming/adapters.ts';
import { wavFile } from '../../../../lib/voice/streaming/wav.ts';
import { withSpeechTags } from '../../../../lib/voice/streaming/xai-tts.ts';
import { createTestClock } from '../../../support/clock.ts';
import { closedPort } from '../../../support/closed-port.ts';
import { sinePcm } from '../../../support/voice/audio.ts';
import { aRequest, audioBytes, rendered, SECRET, startAdapters } from './support.ts';

const TTS = ['openai_tts', 'elevenlabs_tts', 'xai_tts'];
/** Markup, blank lines and invisible characters: all of it must arrive as it is. */
const VERBATIM = '  **Hi** “there”!\n\n\tGo to `x`: https://a.test/?b=1 …\u200b 😀  ';

it('05 §13: openai_tts asks for PCM with the exact text', async () => {
  const { provider, adapter } = await startAdapters();
  const audio = audioBytes(10_000);
  provider.onCall((call) => call.audio(audio));
  const { pcm, chunks, result } = await rendered(
    adapter('openai_tts'),
    aRequest({ text: VERBATIM, model: 'gpt-4o-mini-tts', voice: 'coral', sampleRate: 16_000 }),
  );
  const call = await provider.call(0);
  expect([call.method, call.path]).toEqual(['POST', '/v1/audio/speech']);
  expect(call.headers).toMatchObject({ authorization: `Bearer ${SECRET}`, 'content-type': 'application/json' });
  expect(call.json()).toEqual({
    model: 'gpt-4o-mini-tts',
    voice: 'coral',
    input: VERBATIM,
    response_format: 'pcm',
  } satisfies SpeechCreateParams);
  expect(pcm.equals(audio)).toBe(true);
  expect(chunks.map(({ pcm, label, sampleRate }) => [pcm.length, label, sampleRate])).toEqual([
    [4096, 'openai_tts_stream', 24_000],
    [4096, 'openai_tts_stream', 24_000],
    [1808, 'openai_tts_stream', 24_000],
  ]);
  expect(result).toEqual({
    provider: 'openai_tts',
    model: 'gpt-4o-mini-tts',
    voice: 'coral',
    metadata: { sample_rate: 24_000, requests: 1 },
  });
});

it('05 §18: a renderer takes key and base URL of the tts section, and needs no key on loopback', async () => {
  const { provider, deps } = await startAdapters();
  provider.onCall((call) => call.audio(audioBytes(2)));
  const adapters = createAdapters({ ...deps, credentials: createVoiceCredentials({ env: {} }) });
  const sectionOf = (name: string) => ({ provider: 'nous', [name]: { base_url: `${provider.url}/v1` } });
  for (const name of ['openai', 'xai', 'elevenlabs']) {
    await rendered(adapters(`${name}_tts`) ?? expect.fail(), aRequest({ servers: { tts: sectionOf(name) } }));
  }
  const keyed = { openai: { base_url: `${provider.url}/v1`, api_key: SECRET } };
  await rendered(adapters('openai_tts') ?? expect.fail(), aRequest({ servers: { tts: keyed } }));
  expect(provider.calls.map(({ headers }) => headers.authorization ?? headers['xi-api-key'])).toEqual([
    undefined,
    undefined,
    undefined,
    `Bearer ${SECRET}`,
  ]);
  const remote = { openai: { base_url: 'https://tts.test/v1' } };
  const refused = rendered(adapters('openai_tts') ?? expect.fail(), aRequest({ servers: { tts: remote } }));
  await expect(refused).rejects.toThrow('has no API key');
});

it('05 §13: openai_tts sends delivery in `instructions`, and none for tts-1 models', async () => {
  const { provider, adapter } = await startAdapters();
  provider.onCall((call) => call.audio(audioBytes(2)));
  const expression = parseExpression({ emotion: 'calm' });
  const options = parseProviderOptions({ instructions: 'Whisper.', speed: 9 });
  for (const [model, changes] of [
    ['gpt-4o-mini-tts', { options }],
    ['gpt-4o-mini-tts', { expression }],
    ['tts-1', { expression, options }],
    ['tts-1-hd', { expression }],
  ] as const) {
    await rendered(adapter('openai_tts'), aRequest({ model, text: 'x', ...changes }));
  }
  const bodies = provider.calls.map((call) => call.json());
  expect(bodies.map(({ input }) => input)).toEqual(['x', 'x', 'x', 'x']);
  expect(bodies.map(({ instructions }) => instructions)).toEqual([
    'Whisper.',
    'emotion: calm. intensity: 0.45 of 1',
    undefined,
    undefined,
  ]);
  expect(bodies.map(({ speed }) => speed)).toEqual([4, undefined, 4, undefined]);
});

it('05 §7: openai_tts splits a text over 4096 characters, and its audio is one stream', async () => {
  const { provider, adapter } = await startAdapters();
  provider.onCall((call) => call.audio(Buffer.from([provider.calls.length, 0, 9])));
  const text = Array.from({ length: 250 }, (_, at) => `Sentence number ${at} 😀.`)
    .join(' ')
    .slice(0, 5000);
  const { pcm, result } = await rendered(adapter('openai_tts'), aRequest({ text, model: 'tts-1' }));
  const inputs = provider.calls.map((call) => call.json().input as string);
  expect(inputs.length).toBe(2);
  expect(inputs.join('')).toBe(text);
  expect(inputs.every((input) => [...input].length <= 4096)).toBe(true);
  // The odd byte at the end of the first reply must not shift the samples of the second.
  expect([...pcm]).toEqual([1, 0, 2, 0]);
  expect(result.metadata).toEqual({ sample_rate: 24_000, requests: 2 });
});

it('05 §13: elevenlabs_tts asks for raw PCM at an advertised rate', async () => {
  const { provider, adapter } = await startAdapters();
  const audio = audioBytes(100);
  provider.onCall((call) => call.audio(audio, { headers: { 'request-id': 'r-1', 'x-character-count': '42' } }));
  const { pcm, chunks, result } = await rendered(
    adapter('elevenlabs_tts'),
    aRequest({ text: VERBATIM, model: 'eleven_flash_v2_5', voice: 'voice/9', sampleRate: 44_100 }),
  );
  const call = await provider.call(0);
  expect([call.method, call.path, String(call.query)]).toEqual([
    'POST',
    '/v1/text-to-speech/voice%2F9/stream',
    'output_format=pcm_44100',
  ]);
  expect(call.headers['xi-api-key']).toBe(SECRET);
  expect(call.json()).toEqual({ text: VERBATIM, model_id: 'eleven_flash_v2_5' });
  expect(pcm.equals(audio)).toBe(true);
  expect(chunks[0]).toMatchObject({ sampleRate: 44_100, label: 'elevenlabs_stream' });
  expect(result).toEqual({
    provider: 'elevenlabs_tts',
    model: 'eleven_flash_v2_5',
    voice: 'voice/9',
    metadata: { sample_rate: 44_100, request_id: 'r-1', character_count: 42 },
  });
});

it.each(['.', '..', '\ud800', '%2e%2e', '...', '?x#y'])(
  '05 §8: the voice %j cannot lead to another path',
  async (voice) => {
    const { provider, adapter } = await startAdapters();
    provider.onCall((call) => call.audio(audioBytes(2)));
    const result = await rendered(adapter('elevenlabs_tts'), aRequest({ voice })).catch((error) => error);
    if (/^\.{1,2}$/.test(voice)) expect(result.message).toContain('is not the id of a voice');
    expect(provider.calls.every(({ path }) => /^\/v1\/text-to-speech\/[^/]+\/stream$/.test(path))).toBe(true);
    expect(provider.calls.length).toBe(/^\.{1,2}$/.test(voice) ? 0 : 1);
  },
);

it('05 §13: elevenlabs_tts falls back to 24 kHz, and sends only settings that were asked for', async () => {
  const { provider, adapter } = await startAdapters();
  provider.onCall((call) => call.audio(audioBytes(2)));
  const options = parseProviderOptions({ stability: 0, similarity_boost: 7, use_speaker_boost: false });
  const { chunks } = await rendered(adapter('elevenlabs_tts'), aRequest({ sampleRate: 8000, options }));
  const call = await provider.call(0);
  expect(call.query.get('output_format')).toBe('pcm_24000');
  expect(chunks[0]?.sampleRate).toBe(24_000);
  expect(call.json().voice_settings).toEqual({ stability: 0, similarity_boost: 1, use_speaker_boost: false });
});

it('05 §13: xai_tts sends its fields, with one /v1 in the path', async () => {
  const { provider, adapter } = await startAdapters();
  const audio = audioBytes(100);
  provider.onCall((call) => call.audio(audio));
  const { pcm, chunks, result } = await rendered(
    adapter('xai_tts'),
    aRequest({ text: VERBATIM, model: 'other', voice: 'eve', language: 'de', sampleRate: 16_000 }),
  );
  const call = await provider.call(0);
  expect([call.method, call.path, call.headers.authorization]).toEqual(['POST', '/v1/tts', `Bearer ${SECRET}`]);
  expect(call.json()).toEqual({
    text: VERBATIM,
    voice_id: 'eve',
    language: 'de',
    output_format: { codec: 'pcm', sample_rate: 16_000 },
    optimize_streaming_latency: 1,
    text_normalization: false,
  });
  expect(pcm.equals(audio)).toBe(true);
  expect(chunks[0]).toMatchObject({ sampleRate: 16_000, label: 'xai_tts_stream' });
  expect(result).toMatchObject({ provider: 'xai_tts', model: 'xai-tts', voice: 'eve' });
});

it.each([
  [22_050, 0, 22_050, 0],
  [32_000, 7, 24_000, 2],
  [96_000, -1, 24_000, 0],
  [48_000, 0.6, 48_000, 1],
])('05 §13: xai_tts at %d Hz with a latency of %d asks for what xAI has', async (rate, step, sentRate, sentStep) => {
  const { provider, adapter } = await startAdapters();
  provider.onCall((call) => call.audio(audioBytes(2)));
  const request = aRequest({ sampleRate: rate, optimizeStreamingLatency: step });
  const { chunks } = await rendered(adapter('xai_tts'), request);
  expect((await provider.call(0)).json()).toMatchObject({
    output_format: { codec: 'pcm', sample_rate: sentRate },
    optimize_streaming_latency: sentStep,
  });
  expect(chunks.map(({ sampleRate }) => sampleRate)).toEqual([sentRate]);
});

it('05 §13: xai_tts writes pauses only with `auto_speech_tags`', async () => {
  const { provider, adapter } = await startAdapters();
  provider.onCall((call) => call.audio(audioBytes(2)));
  await rendered(adapter('xai_tts'), aRequest({ text: 'One.\n\nTwo.', autoSpeechTags: true }));
  expect((await provider.call(0)).json().text).toBe('One. [pause] Two.');
});

it.each([
  ['One.\n\nTwo.\r\n \r\nThree.', 'One. [pause] Two. [pause] Three.'],
  ['One,\ntwo\r\nthree', 'One, two three'],
  ['\n\nHello world, it is me. And you?\n\n', 'Hello world, it is me. [pause] And you?'],
  ['Hi. A longer sentence follows here.', 'Hi. A longer sentence follows here.'],
  ['Hello world, it is me.', 'Hello world, it is me.'],
  ['Hello world, [laugh] it is me. And you?', 'Hello world, [laugh] it is me. And you?'],
  [`${'x'.repeat(119)}. And you?`, `${'x'.repeat(119)}. [pause] And you?`],
  [`${'x'.repeat(120)}. And you?`, `${'x'.repeat(120)}. And you?`],
])('05 §13: speech tags of %j', (text, tagged) => {
  expect(withSpeechTags(text)).toBe(tagged);
});

it('finds speech tags in linear time', () => {
  const started = process.cpuUsage();
  for (const text of [' '.repeat(200_000), `${'['.repeat(100_000)}${'<a'.repeat(50_000)}`, '\n \n'.repeat(60_000)]) {
    withSpeechTags(`x${text}x`);
  }
  expect(process.cpuUsage(started).user).toBeLessThan(2_000_000);
});

it('05 §13: xai adapters use the token store of the profile, and send its token to the URL beside it only', async () => {
  const { provider, deps } = await startAdapters();
  const oauth = {
    paths: async () => [],
    isConfigured: async () => true,
    find: async (path?: string) =>
      path === '/profile/xai.json' ? { secret: 'oauth-token', baseUrl: `${provider.url}/stored/v1`, path } : null,
  };
  const env = { XAI_API_KEY: SECRET, XAI_BASE_URL: `${provider.url}/env/v1` };
  const adapters = createAdapters({ ...deps, credentials: createVoiceCredentials({ env, oauth }) });
  provider.onCall((call) => call.audio(audioBytes(2)));
  for (const oauthPath of ['/profile/xai.json', undefined]) {
    await rendered(adapters('xai_tts') ?? expect.fail(), aRequest({ oauthPath }));
  }
  expect(provider.calls.map(({ path, headers }) => [path, headers.authorization])).toEqual([
    ['/stored/v1/tts', 'Bearer oauth-token'],
    ['/env/v1/tts', `Bearer ${SECRET}`],
  ]);
});

describe.each(TTS)('%s', (id) => {
  it('05 §12: carries an odd byte over, however the reply is cut', async () => {
    const { provider, adapter } = await startAdapters();
    const audio = audioBytes(9001);
    provider.onCall((call) => call.audio(audio, { size: 333 }));
    const { pcm, chunks } = await rendered(adapter(id), aRequest());
    expect(pcm.equals(audio.subarray(0, 9000))).toBe(true);
    expect(chunks.every(({ pcm }) => pcm.length % 2 === 0 && pcm.length <= 4096)).toBe(true);
  });

  it('passes audio on before the provider has finished', async () => {
    const { provider, adapter } = await startAdapters();
    const audio = adapter(id)(aRequest());
    const first = audio.next();
    const call = await provider.call(0);
    call.begin();
    await call.write(audioBytes(4096));
    expect((await first).done).toBe(false);
    call.end();
    expect((await audio.next()).done).toBe(true);
  });

  it('05 §13: an HTTP error is shown redacted and shortened', async () => {
    const { provider, adapter } = await startAdapters();
    provider.onCall((call) =>
      call.answer(401, { error: { message: `bad key ${SECRET} in /home/me/x ${'y'.repeat(900)}` } }),
    );
    const error = await rendered(adapter(id), aRequest()).catch((error: Error) => error);
    expect(error).toMatchObject({ name: 'RelayError', kind: 'bad-gateway' });
    const { message } = error as Error;
    expect(message).toMatch(/answered HTTP 401: bad key <redacted> in <path> y+$/);
    expect(message.length).toBeLessThanOrEqual(300);
  });

  it.each([
    ['{"detail":{"message":"slow down"}}', 'slow down'],
    ['{"detail":"slow down"}', 'slow down'],
    ['slow\ndown', 'slow down'],
    ['', ''],
  ])('05 §13: reads the reason of a 429 from %j', async (body, reason) => {
    const { provider, adapter } = await startAdapters();
    provider.onCall((call) => call.answer(429, body));
    await expect(rendered(adapter(id), aRequest())).rejects.toThrow(
      new RegExp(`answered HTTP 429${reason && `: ${reason}`}$`),
    );
  });

  it('follows no redirect with its key', async () => {
    const { provider, adapter } = await startAdapters();
    provider.onCall((call) => call.answer(307, '', { location: `${provider.url}/other` }));
    await expect(rendered(adapter(id), aRequest())).rejects.toThrow('answered HTTP 307');
    expect(provider.calls.length).toBe(1);
  });

  it('05 §13: a reply without audio is an error', async () => {
    const { provider, adapter } = await startAdapters();
    provider.onCall((call) => call.audio(Buffer.from([1])));
    await expect(rendered(adapter(id), aRequest())).rejects.toThrow('returned no audio');
  });

  it('takes JSON and HTML with status 200 for the error that it is', async () => {
    const { provider, adapter } = await startAdapters();
    provider.onCall((call) =>
      call.answer(200, `{"error":"out of credit, ${SECRET}"}`, { 'content-type': 'application/json; charset=utf-8' }),
    );
    await expect(rendered(adapter(id), aRequest())).rejects.toThrow(/instead of audio: out of credit, <redacted>$/);
    provider.onCall((call) => call.answer(200, '<html>', { 'content-type': 'text/html' }));
    await expect(rendered(adapter(id), aRequest())).rejects.toThrow('sent text/html instead of audio');
  });

  it('a connection that breaks in the middle is an error', async () => {
    const { provider, adapter } = await startAdapters();
    const audio = adapter(id)(aRequest());
    const first = audio.next();
    const call = await provider.call(0);
    call.begin();
    await call.write(audioBytes(4096));
    await first;
    call.cut();
    await expect(audio.next()).rejects.toMatchObject({ name: 'RelayError', kind: 'bad-gateway' });
  });

  it('leaving early aborts the upstream call', async () => {
    const { provider, adapter } = await startAdapters();
    provider.onCall(async (call) => {
      call.begin();
      while (!call.isAbandoned) await call.write(audioBytes(64 * 1024));
    });
    for await (const { pcm } of adapter(id)(aRequest())) {
      expect(pcm.length).toBe(4096);
      break;
    }
    await expect.poll(() => provider.calls[0]?.isAbandoned).toBe(true);
  });

  it('reads the provider no faster than its audio is taken', async () => {
    const { provider, adapter } = await startAdapters();
    let sent = 0;
    provider.onCall(async (call) => {
      call.begin();
      while (!call.isAbandoned && sent < 64 * 1024 * 1024) {
        await call.write(audioBytes(64 * 1024));
        sent += 64 * 1024;
      }
    });
    const audio = adapter(id)(aRequest());
    await audio.next();
    const seen: number[] = [];
    // Until the buffers of both sides are full.
    await vi.waitFor(() => expect(seen.push(sent) > 1 && seen.at(-2) === sent).toBe(true), { interval: 200 });
    expect(sent).toBeLessThan(48 * 1024 * 1024);
    await audio.return(undefined as never);
  });

  it('a provider that hangs ends by the signal, and the call with it', async () => {
    const { provider, adapter } = await startAdapters();
    const end = new AbortController();
    const audio = adapter(id)(aRequest({ signal: end.signal }));
    const next = audio.next();
    await provider.call(0);
    end.abort(new Error('the session is over'));
    await expect(next).rejects.toThrow('the session is over');
    await expect.poll(() => provider.calls[0]?.isAbandoned).toBe(true);
  });

  it('05 §13: waits 60 s for the provider in all, however it drips', async () => {
    const clock = createTestClock();
    const { provider, adapter } = await startAdapters(clock);
    const audio = adapter(id)(aRequest());
    const first = audio.next();
    const call = await provider.call(0);
    call.begin();
    await clock.advanceAsync(59_000);
    await call.write(audioBytes(4096));
    await first;
    // Nobody takes the audio: this time does not count.
    await clock.advanceAsync(600_000);
    const second = audio.next();
    const settled = expect(second).rejects.toMatchObject({ kind: 'gateway-timeout' });
    await call.write(audioBytes(10));
    await clock.advanceAsync(1001);
    await settled;
    await expect.poll(() => call.isAbandoned).toBe(true);
  });

  it('05 §13: renders only PCM, and does not call otherwise', async () => {
    const { provider, adapter } = await startAdapters();
    await expect(rendered(adapter(id), aRequest({ codec: 'mp3' }))).rejects.toThrow('only the codec pcm, not mp3');
    expect(provider.calls).toEqual([]);
  });

  it('05 §13: a missing key names its variables', async () => {
    const { deps } = await startAdapters();
    const adapter = createAdapters({ ...deps, credentials: createVoiceCredentials({ env: { XAI_API_KEY: ' ' } }) })(id);
    if (!adapter) throw new Error('no adapter');
    await expect(rendered(adapter, aRequest())).rejects.toThrow(
      {
        openai_tts: /API key.*OPENAI_API_KEY/,
        elevenlabs_tts: /API key.*ELEVENLABS_API_KEY/,
        xai_tts: /API key.*XAI_API_KEY/,
      }[id],
    );
  });

  it('a provider that cannot be reached is an error without its address', async () => {
    const { provider, deps } = await startAdapters();
    const url = `http://127.0.0.1:${await closedPort()}`;
    const env = { OPENAI_BASE_URL: url, ELEVENLABS_BASE_URL: url, XAI_BASE_URL: url };
    const keys = { OPENAI_API_KEY: SECRET, ELEVENLABS_API_KEY: SECRET, XAI_API_KEY: SECRET };
    const adapter = createAdapters({ ...deps, credentials: createVoiceCredentials({ env: { ...env, ...keys } }) })(id);
    if (!adapter) throw new Error('no adapter');
    await expect(rendered(adapter, aRequest())).rejects.toThrow(/: connection refused$/);
    expect(provider.calls).toEqual([]);
  });
});

it.each([
  ['MP3', 'audio/mpeg', 'ID3\u0004'],
  ['MP3', 'audio/mpeg', '\u00ff\u00fb\u0090\u0064'],
  ['Ogg', 'application/octet-stream', 'OggS'],
  ['WAV', 'audio/wav', 'RIFF'],
])('05 §13: %s instead of PCM (%s) is an error, and not samples', async (format, type, magic) => {
  const { provider, adapter } = await startAdapters();
  const bytes = Buffer.concat([Buffer.from(magic, 'latin1'), audioBytes(5000)]);
  provider.onCall((call) => call.audio(bytes, { size: 3, headers: { 'content-type': type } }));
  for (const id of TTS) {
    await expect(rendered(adapter(id), aRequest({ text: 'x' }))).rejects.toThrow(`sent ${format} instead of raw PCM`);
  }
});

it.each([
  ['a WAV', Buffer.from(wavFile(sinePcm(0.1, 16_000), 16_000)), 'audio/wav'],
  ['PCM at 16 kHz', Buffer.from(sinePcm(0.1, 16_000)), 'audio/L16;rate=16000'],
])('05 §18: %s is played at the rate of the session', async (_, bytes, type) => {
  const { provider, adapter } = await startAdapters();
  provider.onCall((call) => call.audio(bytes, { size: 777, headers: { 'content-type': type } }));
  for (const id of TTS) {
    const { pcm } = await rendered(adapter(id), aRequest({ text: 'x', sampleRate: 24_000 }));
    expect(Math.abs(pcm.length / 2 - 2400)).toBeLessThanOrEqual(2);
  }
});

it('05 §13: samples that look like the header of a frame stay samples', async () => {
  const { provider, adapter } = await startAdapters();
  const bytes = Buffer.from([0xff, 0xfb, 0x90, 0x64, 1, 0]);
  provider.onCall((call) => call.audio(bytes, { size: 1 }));
  for (const id of TTS) expect((await rendered(adapter(id), aRequest({ text: 'x' }))).pcm.equals(bytes)).toBe(true);
});

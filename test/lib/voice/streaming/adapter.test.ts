import { expect, it } from 'vitest';
import {
  describeExpression,
  parseExpression,
  parseProviderOptions,
  renderRequest,
} from '../../../../lib/voice/streaming/adapter.ts';
import { SETTINGS } from './support.ts';

const request = (providerOptions: unknown) =>
  renderRequest(SETTINGS, {
    text: 't',
    renderMode: 'verbatim',
    expression: null,
    providerOptions,
    signal: new AbortController().signal,
  });

it('05 §12: an absent expression has the defaults of the contract', () => {
  const defaults = {
    emotion: 'neutral',
    tone: 'natural',
    intensity: 0.45,
    pace: 'normal',
    style: 'natural',
    pronunciationHints: [],
    interruptionBehavior: 'allow',
    personaInstructions: '',
  };
  expect(parseExpression(undefined)).toEqual(defaults);
  expect(parseExpression({})).toEqual(defaults);
  expect(parseExpression({ emotion: ' ', tone: 7, pronunciation_hints: 'x', intensity: null })).toEqual(defaults);
});

it('05 §12: an expression is read by the names of the wire, and bounded', () => {
  const parsed = parseExpression({
    emotion: 'warm',
    intensity: 1,
    pronunciation_hints: [...Array.from({ length: 40 }, () => 'h'.repeat(500)), 3],
    interruption_behavior: 'finish',
    persona_instructions: 'A pilot.',
  });
  expect(parsed).toMatchObject({
    emotion: 'warm',
    intensity: 1,
    interruptionBehavior: 'finish',
    personaInstructions: 'A pilot.',
  });
  expect(parsed.pronunciationHints).toEqual(Array.from({ length: 32 }, () => 'h'.repeat(200)));
});

it.each([-0.01, 1.01, Number.NaN, '0.5', true])('05 §12: an intensity of %s is an error', (intensity) => {
  expect(() => parseExpression({ intensity })).toThrow('intensity must be a number from 0 to 1');
});

it('05 §12: an expression that is no object is an error', () => {
  for (const value of ['warm', 3, []]) expect(() => parseExpression(value)).toThrow('must be an object');
});

it('05 §13: the default expression asks for nothing; another names only what differs', () => {
  expect(describeExpression(parseExpression({ interruption_behavior: 'finish' }))).toBe('');
  expect(describeExpression(parseExpression({ emotion: 'calm', pronunciation_hints: ['svc:\nservice'] }))).toBe(
    'emotion: calm. intensity: 0.45 of 1. pronunciation: svc: service',
  );
});

it('05 §12: only listed provider options are honoured', () => {
  const options = parseProviderOptions({
    model: ' m2 ',
    voice_id: 'v2',
    speed: '1.5',
    stability: 0.4,
    use_speaker_boost: 'yes',
    text_normalization: false,
    style: {},
    url: 'http://evil.test',
    base_url: 'http://evil.test',
    api_key: 'k',
    token: 't',
    extra_headers: { a: 'b' },
    ssl_verify: false,
    ssl_ca_cert: '/x',
    __proto__: { baseUrl: 'http://evil.test' },
  });
  expect(JSON.parse(JSON.stringify(options))).toEqual({
    model: 'm2',
    voice: 'v2',
    speed: 1.5,
    stability: 0.4,
    useSpeakerBoost: true,
    textNormalization: false,
  });
  expect(JSON.stringify(options)).not.toContain('evil');
  expect(parseProviderOptions('x')).toEqual({});
  const deep: unknown = JSON.parse('['.repeat(20_000) + ']'.repeat(20_000));
  for (const value of [{ toString: 1 }, [true], deep]) {
    const { useSpeakerBoost, autoSpeechTags } = parseProviderOptions({
      use_speaker_boost: value,
      auto_speech_tags: value,
    });
    expect([useSpeakerBoost, autoSpeechTags]).toEqual([undefined, undefined]);
  }
});

it('05 §12: options of the message override the settings of the session', () => {
  expect(request(undefined)).toMatchObject(SETTINGS);
  expect(
    request({
      model: 'm2',
      voice: 'v2',
      voice_id: 'v3',
      language: 'de',
      auto_speech_tags: true,
      output_format: 'PCM_16000',
    }),
  ).toMatchObject({ model: 'm2', voice: 'v2', language: 'de', autoSpeechTags: true, codec: 'pcm', sampleRate: 16_000 });
});

it('05 §13: another output format reaches the adapter as a codec, which refuses it', () => {
  expect(request({ output_format: 'mp3_44100_128' })).toMatchObject({ codec: 'mp3_44100_128' });
  expect(request({ output_format: 'mp3' })).toMatchObject({ codec: 'mp3' });
  expect(() => request({ output_format: 'pcm_1' })).toThrow('sample rate');
});

import { expect, it } from 'vitest';
import { findProvider, isRealtime, isRenderer, streamingProviders } from '../../../lib/voice/registry.ts';

const ids = (providers: typeof streamingProviders) => providers.map(({ info }) => info.id);

it('contract 05 §9, §18: six providers and the two of the owner, sorted by id', () => {
  expect(ids(streamingProviders)).toEqual([
    'elevenlabs_tts',
    'local_realtime',
    'local_tts',
    'openai_realtime',
    'openai_tts',
    'stub',
    'xai_realtime',
    'xai_tts',
  ]);
});

it('contract 05 §9: every member is present and of its type', () => {
  for (const { info, defaultModel, defaultVoice, defaultSampleRate } of streamingProviders) {
    expect(Object.keys(info)).toEqual([
      'id',
      'name',
      'status',
      'description',
      'models',
      'voices',
      'languages',
      'sample_rates',
      'supports_tts',
      'supports_stt',
      'supports_speech_to_speech',
      'supports_tool_use',
      'supports_realtime',
      'supports_interruption',
      'supports_expression',
    ]);
    expect(info.description).not.toBe('');
    expect(info.models).toContain(defaultModel);
    expect(info.voices).toContain(defaultVoice);
    expect(info.sample_rates).toContain(defaultSampleRate);
  }
});

it('contract 05 §9: defaults, and what each provider supports', () => {
  const rows = streamingProviders.map(({ info, defaultModel, defaultVoice }) => [
    info.id,
    defaultModel,
    defaultVoice,
    Object.entries(info)
      .filter(([name, value]) => name.startsWith('supports_') && value)
      .map(([name]) => name.slice(9))
      .join(' '),
  ]);
  expect(rows).toEqual([
    ['elevenlabs_tts', 'eleven_flash_v2_5', 'JBFqnCBsd6RMkjVDRZzb', 'tts expression'],
    ['local_realtime', 'gpt-realtime', 'alloy', 'tts realtime expression'],
    ['local_tts', 'tts-1', 'alloy', 'tts expression'],
    ['openai_realtime', 'gpt-realtime-2.1', 'marin', 'tts realtime expression'],
    ['openai_tts', 'gpt-4o-mini-tts', 'coral', 'tts expression'],
    ['stub', 'stub-tone', 'sine', 'tts stt speech_to_speech expression'],
    ['xai_realtime', 'grok-voice-latest', 'eve', 'tts tool_use realtime interruption expression'],
    ['xai_tts', 'xai-tts', 'eve', 'tts expression'],
  ]);
});

it('contract 05 §9: renderers speak and are not realtime', () => {
  expect(ids(streamingProviders.filter(isRenderer))).toEqual([
    'elevenlabs_tts',
    'local_tts',
    'openai_tts',
    'stub',
    'xai_tts',
  ]);
  expect(ids(streamingProviders.filter(isRealtime))).toEqual(['local_realtime', 'openai_realtime', 'xai_realtime']);
  expect(findProvider('xai')).toBeUndefined();
  expect(findProvider('constructor')).toBeUndefined();
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EFFORTS, modelKey, providerKey, readEfforts } from '../../../lib/models/efforts.ts';
import { staticEfforts } from '../../../lib/models/static-rules.ts';

describe('efforts (contract 07 §3)', () => {
  it.each([
    [
      ['high', 'none', 'high'],
      ['none', 'high'],
    ],
    [
      [' OFF ', 'On'],
      ['none', 'medium'],
    ],
    [['on', 'medium'], ['medium']],
    [['ultra', 'max', 'xhigh', 'high', 'medium', 'low', 'minimal', 'none'], [...EFFORTS]],
    [['turbo', '', 7, null, {}, ['high'], '__proto__', 'constructor'], []],
  ])('%j is %j', (values, efforts) => {
    expect(readEfforts(values)).toEqual(efforts);
  });

  it('any list becomes efforts of the vocabulary, in its order, each once', () => {
    fc.assert(
      fc.property(fc.array(fc.oneof(fc.constantFrom<unknown>(...EFFORTS, 'off', 'ON'), fc.anything())), (values) => {
        const efforts = readEfforts(values);
        expect(EFFORTS.filter((effort) => efforts.includes(effort))).toEqual(efforts);
      }),
    );
  });
});

describe('names (contract 07 §3)', () => {
  it.each([
    [' GitHub ', 'copilot'],
    ['github-copilot', 'copilot'],
    ['github-models', 'copilot'],
    ['github-model', 'copilot'],
    ['LM-Studio', 'lmstudio'],
    ['ollama', 'ollama-cloud'],
    ['OpenRouter', 'openrouter'],
    ['constructor', 'constructor'],
  ])('provider %j is %j', (provider, key) => {
    expect(providerKey(provider)).toBe(key);
  });

  it('a model key is the lower-case name after the last slash', () => {
    expect(modelKey('Vendor/Sub/GLM-5.2')).toBe('glm-5.2');
    expect(modelKey('Plain')).toBe('plain');
  });
});

describe('static rules (contract 07 §3)', () => {
  const none_to_high = ['none', 'low', 'medium', 'high'];
  const none_to_max = [...none_to_high, 'max'];

  it.each([
    ['zai', 'GLM-5.2', ['none', 'high', 'max']],
    ['zai', 'z-ai/glm-5-2-air', ['none', 'high', 'max']],
    ['zai', 'x-glm-5p2', ['none', 'high', 'max']],
    ['deepseek', 'deepseek-v4', none_to_max],
    ['deepseek', 'DeepSeek/DeepSeek-Reasoner', none_to_max],
    ['opencode-go', 'deepseek-v5', none_to_max],
    ['opencode-go', 'glm-5.2', ['high', 'max']],
    ['opencode-go', 'kimi-k2-thinking', none_to_high],
    ['kimi-for-coding', 'anything', none_to_high],
    ['upstage', 'solar-mini-2', []],
    ['upstage', 'my-syn-pro', []],
    ['upstage', 'solar-pro', none_to_high],
    ['actual', 'anything', none_to_max],
  ])('%s %s', (provider, model, efforts) => {
    expect(staticEfforts(provider, model)).toEqual({ efforts, exact: true, source: 'provider-adapter' });
  });

  it.each([
    ['zai', 'glm-4.6'],
    ['zai', 'glm-5.2/other'],
    ['deepseek', 'deepseek-v3'],
    ['deepseek', 'deepseek-v3.2'],
    ['deepseek', 'deepseek-reasoner-2'],
    ['deepseek', 'glm-5.2'],
    ['opencode-go', 'my-kimi-k2'],
    ['openrouter', 'zai/glm-5.2'],
    ['lmstudio', 'qwen3'],
  ])('%s %s: the inexact fallback', (provider, model) => {
    expect(staticEfforts(provider, model)).toEqual({ efforts: EFFORTS, exact: false, source: 'canonical-fallback' });
  });
});

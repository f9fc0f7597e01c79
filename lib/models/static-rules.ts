import { EFFORTS, type Effort, type ModelEfforts, modelKey } from './efforts.ts';

type Rule = [providers: string[], matches: (model: string) => boolean, efforts: Effort[]];

const any = () => true;
const containing =
  (...parts: string[]) =>
  (model: string) =>
    parts.some((part) => model.includes(part));

const isGlm = containing('glm-5.2', 'glm-5-2', 'glm-5p2');
const isThinkingDeepseek = (model: string) =>
  (model.startsWith('deepseek-v') && !model.startsWith('deepseek-v3')) || model === 'deepseek-reasoner';
const isKimiK2 = (model: string) => model.startsWith('kimi-k2');

/**
 * THE table of efforts that are known without a call: provider keys, model key, efforts. The first match wins (contract 07
 * §3).
 */
const rules: Rule[] = [
  [['zai'], isGlm, ['none', 'high', 'max']],
  [['deepseek', 'opencode-go'], isThinkingDeepseek, ['none', 'low', 'medium', 'high', 'max']],
  [['opencode-go'], isGlm, ['high', 'max']],
  [['kimi-for-coding'], any, ['none', 'low', 'medium', 'high']],
  [['opencode-go'], isKimiK2, ['none', 'low', 'medium', 'high']],
  [['upstage'], containing('solar-mini', 'syn-pro'), []],
  [['upstage'], any, ['none', 'low', 'medium', 'high']],
  [['actual'], any, ['none', 'low', 'medium', 'high', 'max']],
];

const FALLBACK: ModelEfforts = { efforts: EFFORTS, exact: false, source: 'canonical-fallback' };

/** Efforts of a model without any call. `provider` is a provider key. */
export function staticEfforts(provider: string, model: string): ModelEfforts {
  const key = modelKey(model);
  const rule = rules.find(([providers, matches]) => providers.includes(provider) && matches(key));
  return rule ? { efforts: rule[2], exact: true, source: 'provider-adapter' } : FALLBACK;
}

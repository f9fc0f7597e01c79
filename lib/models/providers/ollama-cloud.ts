import { RelayError } from '../../errors.ts';
import { memberOf } from './catalog.ts';
import { bearer, type Provider, withoutV1 } from './provider.ts';

/** Models of one request that are asked for: there is no catalog, so that each one is a call. */
const MOST = 16;

/** Ollama's cloud, or another server that speaks as it does. */
export const ollamaCloud: Provider = {
  source: 'provider-catalog',
  base: { variables: ['OLLAMA_BASE_URL'], fallback: 'https://ollama.com/v1', fromModel: true },
  secret: { variables: ['OLLAMA_API_KEY'], required: false },

  questions(models) {
    const questions = new Map<string, string[]>();
    for (const model of models.slice(0, MOST)) {
      const name = model.split(':cloud', 1)[0];
      if (name) questions.set(name, [...(questions.get(name) ?? []), model]);
    }
    return questions;
  },

  async ask(name, target, call) {
    const url = `${withoutV1(target.base)}/api/show`;
    const answer = await call({ method: 'POST', url, headers: bearer(target), body: { name } });
    const capabilities = memberOf(answer, 'capabilities');
    if (!Array.isArray(capabilities)) throw new RelayError('bad-gateway', 'the answer has no capabilities');
    return () => (capabilities.includes('thinking') ? ['none', 'low', 'medium', 'high', 'max'] : []);
  },
};

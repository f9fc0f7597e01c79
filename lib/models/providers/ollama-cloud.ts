import { RelayError } from '../../errors.ts';
import { bearer, memberOf, type Provider, withoutV1 } from './provider.ts';

/** Models queried per request. There is no catalog, so each model takes a call. */
const MAX_MODELS = 16;

/** Ollama's cloud, or another server with its API. */
export const ollamaCloud: Provider = {
  source: 'provider-catalog',
  base: { variables: ['OLLAMA_BASE_URL'], fallback: 'https://ollama.com/v1', fromModel: true },
  secret: { variables: ['OLLAMA_API_KEY'], required: false },

  queries(models) {
    const queries = new Map<string, string[]>();
    for (const model of models.slice(0, MAX_MODELS)) {
      const name = model.split(':cloud', 1)[0];
      if (name) queries.set(name, [...(queries.get(name) ?? []), model]);
    }
    return queries;
  },

  async query(name, target, call) {
    const url = `${withoutV1(target.base)}/api/show`;
    const response = await call({ method: 'POST', url, headers: bearer(target), body: { name } });
    const capabilities = memberOf(response, 'capabilities');
    if (!Array.isArray(capabilities)) throw new RelayError('bad-gateway', 'the response lists no capabilities');
    return () => (capabilities.includes('thinking') ? ['none', 'low', 'medium', 'high', 'max'] : []);
  },
};

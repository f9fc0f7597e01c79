import { bearer, effortsOf, entriesOf, memberOf, type Provider, withoutV1 } from './provider.ts';

const isText = (value: unknown): value is string => typeof value === 'string';

/** LM Studio, on the host or nearby. */
export const lmstudio: Provider = {
  source: 'provider-catalog',
  base: { variables: ['LM_BASE_URL'], fallback: 'http://127.0.0.1:1234/v1', fromModel: true, onHost: true },
  secret: { variables: ['LM_API_KEY'], required: false },

  async query(_query, target, call) {
    const url = `${withoutV1(target.base)}/api/v1/models`;
    const entries = entriesOf(await call({ method: 'GET', url, headers: bearer(target) }), 'models', 'data');
    return (model) => {
      const name = model.toLowerCase();
      const entry = entries.find(({ id, key }) => [id, key].some((one) => isText(one) && one.toLowerCase() === name));
      return entry && effortsOf(memberOf(entry, 'capabilities', 'reasoning', 'allowed_options'));
    };
  },
};

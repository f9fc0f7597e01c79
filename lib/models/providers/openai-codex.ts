import { decodeJwt } from 'jose/jwt/decode';
import { isObject } from '../../kit/json.ts';
import { isPrintable } from '../../kit/text.ts';
import { modelKey } from '../efforts.ts';
import { bearer, effortsOf, entriesOf, memberOf, type Provider } from './provider.ts';

const CLAIM = 'https://api.openai.com/auth';

/** Codex with a ChatGPT account. */
export const openaiCodex: Provider = {
  source: 'provider-catalog',
  base: {
    variables: ['OPENAI_CODEX_BASE_URL'],
    fallback: 'https://chatgpt.com/backend-api/codex',
    fromModel: false,
  },
  secret: { variables: [], required: true },

  async query(_query, target, call) {
    const account = accountOf(target.secret ?? '');
    const headers = { ...bearer(target), ...(account === null ? {} : { 'chatgpt-account-id': account }) };
    const url = `${target.base}/models?client_version=1.0.0`;
    const entries = entriesOf(await call({ method: 'GET', url, headers }), 'models');
    return (model) => {
      const key = modelKey(model);
      const entry = entries.find(({ slug, id }) => [slug, id].some((one) => isNamed(one, key)));
      const levels = entry && memberOf(entry, 'supported_reasoning_levels');
      const efforts = Array.isArray(levels) ? levels.map((one) => (isObject(one) ? one.effort : one)) : levels;
      return entry && effortsOf(efforts);
    };
  },
};

const isNamed = (name: unknown, key: string): boolean => typeof name === 'string' && name.toLowerCase() === key;

/** The account in a token's claims. They are not verified here: the provider does that. */
function accountOf(token: string): string | null {
  try {
    const account = memberOf(decodeJwt(token)[CLAIM], 'chatgpt_account_id');
    return typeof account === 'string' && account !== '' && isPrintable(account) ? account : null;
  } catch {
    return null;
  }
}

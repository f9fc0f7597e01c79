import { RelayError } from '../../errors.ts';
import { cleanBase } from '../../kit/addresses.ts';
import { isPrintable } from '../../kit/text.ts';
import type { Call } from '../call.ts';
import { bearer, effortsOf, entriesOf, memberOf, type Provider, type Target } from './provider.ts';

const EXCHANGE = 'https://api.github.com/copilot_internal/v2/token';

/** GitHub Copilot. */
export const copilot: Provider = {
  source: 'github-catalog',
  base: {
    variables: ['COPILOT_BASE_URL', 'GITHUB_COPILOT_BASE_URL'],
    fallback: 'https://api.githubcopilot.com',
    fromModel: false,
  },
  secret: { variables: ['COPILOT_GITHUB_TOKEN', 'GH_TOKEN', 'GITHUB_TOKEN'], required: true },

  async query(_query, target, call) {
    const admitted = await exchangeToken(target, call);
    const headers = {
      ...bearer(admitted),
      'copilot-integration-id': 'vscode-chat',
      'editor-version': 'vscode/1.104.1',
    };
    const entries = entriesOf(await call({ method: 'GET', url: `${admitted.base}/models`, headers }), 'data');
    return (model) => {
      const entry = entries.find(({ id }) => id === model);
      return entry && effortsOf(memberOf(entry, 'capabilities', 'supports', 'reasoning_effort'));
    };
  },
};

/**
 * Exchanges a GitHub token for a Copilot token, and uses the address that comes with it. A token with `;` and `=` already is
 * a Copilot token.
 */
async function exchangeToken(target: Target, call: Call): Promise<Target> {
  const { secret = '' } = target;
  if (secret.includes(';') && secret.includes('=')) return target;
  const response = await call({ method: 'GET', url: EXCHANGE, headers: { authorization: `token ${secret}` } });
  const token = memberOf(response, 'token');
  if (typeof token !== 'string' || token === '' || !isPrintable(token)) {
    throw new RelayError('bad-gateway', 'the token exchange returned no token');
  }
  const api = memberOf(response, 'endpoints', 'api');
  const base = typeof api === 'string' && api.startsWith('https://') ? cleanBase(api) : null;
  return { base: base ?? target.base, secret: token };
}

import { RelayError } from '../../errors.ts';
import { isPrintable } from '../../kit/text.ts';
import { cleanBase } from '../base-url.ts';
import type { Call } from '../call.ts';
import { effortsOf, entriesOf, memberOf } from './catalog.ts';
import { bearer, oneCatalog, type Provider, type Target } from './provider.ts';

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
  questions: oneCatalog,

  async ask(_question, target, call) {
    const admitted = await exchanged(target, call);
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
 * Copilot's own token for a token of GitHub, and the address it is for when the answer names one. What has `;` and `=`
 * is a Copilot token already.
 */
async function exchanged(target: Target, call: Call): Promise<Target> {
  const { secret = '' } = target;
  if (secret.includes(';') && secret.includes('=')) return target;
  const answer = await call({ method: 'GET', url: EXCHANGE, headers: { authorization: `token ${secret}` } });
  const token = memberOf(answer, 'token');
  if (typeof token !== 'string' || token === '' || !isPrintable(token)) {
    throw new RelayError('bad-gateway', 'the token exchange gave no token');
  }
  const api = memberOf(answer, 'endpoints', 'api');
  const base = typeof api === 'string' && api.startsWith('https://') ? cleanBase(api) : null;
  return { base: base ?? target.base, secret: token };
}

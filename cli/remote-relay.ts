import { RelayError } from '../lib/errors.ts';
import { defaultPort, mayCarryCredentials, unbracket } from '../lib/kit/addresses.ts';
import { openOperatorSigner } from './operator-signer.ts';
import { asHttpUrl, type Options, option } from './options.ts';
import type { RelayAddress } from './relay-client.ts';

/** Seconds. Each call gets a token of its own. */
const TOKEN_TTL = 300;

/** Description of `--relay` in every command that takes it. */
export const RELAY_OPTION = [
  '--relay <url>',
  'a relay at the edge, by its public URL: signs as its operator with the key of this machine',
] as const;

/** The relay that `--relay` names, called as its operator; undefined without the option (contract 01 §12). */
export async function remoteRelay(options: Options, agentHome: string): Promise<RelayAddress | undefined> {
  const url = option(options, '--relay', asRelayUrl);
  if (!url) return undefined;
  const signer = await openOperatorSigner(agentHome);
  const tls = url.protocol === 'https:';
  return {
    host: unbracket(url.hostname),
    port: Number(url.port) || defaultPort(tls ? 'https' : 'http'),
    tls,
    url: url.origin,
    async authorize() {
      const { token } = await signer.sign(url.origin, TOKEN_TTL);
      return { authorization: `Bearer ${token}` };
    },
  };
}

function asRelayUrl(text: string): URL {
  const url = new URL(asHttpUrl(text));
  if (!mayCarryCredentials(url))
    throw new RelayError('invalid', 'must be an https:// URL: the call carries a credential');
  if (url.pathname !== '/' || url.search || url.hash)
    throw new RelayError('invalid', 'must not contain a path or query');
  return url;
}

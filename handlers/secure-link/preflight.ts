import { RelayError } from '../../lib/errors.ts';
import { json } from '../../lib/web/json.ts';
import { type Handler, lastOf } from '../request.ts';

/**
 * `GET /secure-link/preflight` (contract 08 §5): checks the requirements of Secure Link at a proposed origin. Changes
 * nothing.
 */
export const secureLinkPreflight: Handler = async ({ query }, relay) => {
  if (!relay.secureLink)
    throw new RelayError('unsupported', 'this relay runs without a host, so it has no Secure Link');
  const { host, port } = lastOf(query);
  const report = await relay.secureLink.preflight({ host, port });
  return json({ ...report, connected_clients: relay.sockets.count() });
};

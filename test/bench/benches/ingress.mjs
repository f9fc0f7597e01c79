import { join } from 'node:path';
import { download, upload } from '../support/media.mjs';
import { bulkRow, requestRow } from '../support/proxy-rows.mjs';

// The dashboard's ingress beside a bare pipe, both in front of the same server in the relay's place: the relay itself
// would take more of the two than the difference between them.

const PREFIX = '/api/plugins/svc-relay/transport';
const SESSION = 'A'.repeat(43);
/** Headers of a phone. */
const HEADERS = {
  accept: 'application/json',
  'accept-encoding': 'gzip',
  'user-agent': 'svc-relay-bench/1',
  'x-svc-relay-session': SESSION,
};
const BODY = JSON.stringify({ sessions: [{ device_name: 'Phone', token_prefix: 'abcd1234', grants: {} }] });
/** Below the limits of one body: 64 MiB down, 32 MiB up. */
const SIZE = 30 * 1024 * 1024;
const BODIES = 16;

async function startBoth(stage) {
  const upstream = await stage.bare('relay', { body: BODY });
  const relayPort = upstream.port;
  const plugin = join(stage.dist, 'cli/dashboard/plugin.js');
  const env = { SVC_RELAY_DASHBOARD_PROXY_SECRET: 'bench' };
  const ingress = await stage.bare('dashboard', { plugin, relayPort, agentHome: await stage.home(), env });
  return { relay: ingress, bare: await stage.bare('pipe', { relayPort, prefix: PREFIX }) };
}

const requests = requestRow({
  name: 'ingress',
  title: 'GET through the dashboard ingress',
  path: `${PREFIX}/sessions`,
  headers: HEADERS,
  prepare: startBoth,
});

const bulk = { size: SIZE, bodies: BODIES, prepare: startBoth };

const down = bulkRow({
  ...bulk,
  name: 'ingress-media',
  title: 'ranges of 30 MiB through the ingress',
  send: (server) =>
    download(server, `${PREFIX}/media/${'T'.repeat(32)}`, SIZE, { ...HEADERS, range: `bytes=0-${SIZE - 1}` }),
});

const up = bulkRow({
  ...bulk,
  name: 'ingress-upload',
  title: 'uploads of 30 MiB through the ingress',
  async send({ port }) {
    const status = await upload(port, SESSION, SIZE, `${PREFIX}/media/upload`, HEADERS);
    if (status !== 200) throw new Error(`an upload was answered with ${status}`);
  },
});

export default [requests, down, up];

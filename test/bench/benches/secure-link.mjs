import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { freePort } from '../support/processes.mjs';
import { bulkRow, requestRow } from '../support/proxy-rows.mjs';
import { phoneHeaders, transfer } from '../support/transfer.mjs';

// Secure Link's `/api` beside a bare pipe from `node:https` to `node:http`, both in front of the same server.

const BODY = JSON.stringify({ models: [{ id: 'agent', name: 'Agent' }], more: false });
/** Below the limits of one body: 64 MiB down, 16 MiB up. */
const [DOWN, UP] = [30 * 1024 * 1024, 15 * 1024 * 1024];
const BODIES = 16;

async function startBoth(stage) {
  const upstream = await stage.bare('relay', { body: BODY });
  const [linkPort, pipePort] = [await freePort(), await freePort()];
  const relay = await stage.relay({
    env: {
      RELAY_SECURE_LINK_ENABLED: '1',
      RELAY_SECURE_LINK_HOST: '127.0.0.1',
      RELAY_SECURE_LINK_PORT: String(linkPort),
      RELAY_WEBAPI_URL: `http://127.0.0.1:${upstream.port}`,
    },
  });
  await answers({ port: linkPort });
  const files = join(relay.home, 'relay-secure-link');
  const identity = {
    cert: readFileSync(join(files, 'cert.pem'), 'utf8'),
    key: readFileSync(join(files, 'key.pem'), 'utf8'),
  };
  const pipe = await stage.bare('tls-pipe', { tlsPort: pipePort, upstreamPort: upstream.port, ...identity });
  return { relay: { ...relay, port: linkPort, tls: true }, bare: { ...pipe, port: pipePort, tls: true } };
}

/** The listener opens shortly after the relay is healthy. */
async function answers(server) {
  for (let attempt = 0; attempt < 200; attempt++) {
    const status = await transfer(server, 'GET', '/api/x', {}).then(
      ({ status }) => status,
      () => 0,
    );
    if (status === 200) return;
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error('Secure Link does not answer');
}

const requests = requestRow({
  name: 'secure-link',
  title: 'GET through /api of Secure Link',
  path: '/api/models',
  headers: phoneHeaders,
  prepare: startBoth,
});

const bulk = { bodies: BODIES, prepare: startBoth };

const down = bulkRow({
  ...bulk,
  name: 'secure-link-down',
  title: '30 MiB down through /api of Secure Link',
  size: DOWN,
  async send(server) {
    const { received } = await transfer(server, 'GET', '/api/media', { range: `bytes=0-${DOWN - 1}` });
    if (received !== DOWN) throw new Error(`${received} bytes arrived`);
  },
});

const up = bulkRow({
  ...bulk,
  name: 'secure-link-up',
  title: '15 MiB up through /api of Secure Link',
  size: UP,
  async send(server) {
    const { status } = await transfer(server, 'POST', '/api/media', {}, UP);
    if (status !== 200) throw new Error(`an upload was answered with ${status}`);
  },
});

export default [requests, down, up];

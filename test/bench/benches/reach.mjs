import { once } from 'node:events';
import { Agent } from 'node:http';
import { connect } from 'node:tls';
import { httpRequest } from '../support/http.mjs';
import { freePort } from '../support/processes.mjs';
import { bulkRow } from '../support/proxy-rows.mjs';
import { digestOf, makeCertificate, openTunnel, random } from '../support/reach.mjs';
import { transfer } from '../support/transfer.mjs';

// `/api` over Reach beside the same over Secure Link, and beside the floor of Reach: one connection each. The CPU over
// Reach is that of home and broker together, and so is that of the floor, which is the least that TLS inside of TLS and a
// broker's TLS on both sides cost.

/** Below the limits of one body: 64 MiB down, 16 MiB up. */
const [DOWN, UP] = [30 * 1024 * 1024, 15 * 1024 * 1024];
const BODIES = 4;

async function startAll(stage) {
  const files = await makeCertificate(await stage.home());
  const [hostId, token] = [random(16), random(32)];
  const hosts = { [hostId]: { host_token_sha256: digestOf(token) } };
  const upstream = await stage.bare('relay');
  const broker = await stage.broker({ hosts }, files);
  const linkPort = await freePort();
  const relay = await stage.relay({
    hostId,
    env: {
      RELAY_SECURE_LINK_ENABLED: '1',
      RELAY_SECURE_LINK_HOST: '127.0.0.1',
      RELAY_SECURE_LINK_PORT: String(linkPort),
      RELAY_WEBAPI_URL: `http://127.0.0.1:${upstream.port}`,
      RELAY_EXPERIMENTAL_REACH_ENABLED: '1',
      RELAY_SECURE_LINK_BROKER_URL: `wss://127.0.0.1:${broker.port}`,
      RELAY_SECURE_LINK_BROKER_HOST_TOKEN: token,
      NODE_EXTRA_CA_CERTS: files.cert,
    },
  });
  const tunnel = await openTunnel(await mintRoute(relay));
  const direct = connect({ host: '127.0.0.1', port: linkPort, rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
  await once(direct, 'secureConnect');
  const sides = {
    reach: { agent: agentOf(tunnel), servers: [relay, broker] },
    link: { agent: agentOf(direct), servers: [relay] },
    floor: await startFloor(stage, upstream, files),
  };
  // A connection without a first request is closed after a while.
  for (const side of Object.values(sides)) await transfer(side, 'GET', '/api/models', {});
  return sides;
}

/** Home and broker that do nothing but the TLS passes of a tunnel. */
async function startFloor(stage, upstream, files) {
  const [homePort, clientPort] = [await freePort(), await freePort()];
  const broker = await stage.bare('tls-passes', { role: 'broker', homePort, clientPort, ...files });
  const home = await stage.bare('tls-passes', { role: 'home', homePort, upstreamPort: upstream.port, ...files });
  const outer = connect({ host: '127.0.0.1', port: clientPort, rejectUnauthorized: false });
  await once(outer, 'secureConnect');
  const inner = connect({ socket: outer, rejectUnauthorized: false, ALPNProtocols: ['http/1.1'] });
  await once(inner, 'secureConnect');
  return { agent: agentOf(inner), servers: [home, broker] };
}

/** The Reach route of a pairing code: there is one shortly after the relay is healthy. */
async function mintRoute(relay) {
  for (let attempt = 0; attempt < 200; attempt++) {
    const { status, body } = await httpRequest(relay.port, 'POST', '/pairing/mint', { body: '{}' });
    const { endpoints = [] } = status === 200 ? JSON.parse(JSON.parse(body).qr_payload) : {};
    const route = endpoints.find(({ role }) => role === 'outbound_broker')?.broker;
    if (route) return { url: route.url, hostId: route.host_id, token: route.token };
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error('the relay is not connected to the broker');
}

/** An agent whose one connection is this. */
const agentOf = (tls) => Object.assign(new Agent({ keepAlive: true, maxSockets: 1 }), { createConnection: () => tls });

/** A row of bodies over Reach and beside it. */
const rowBeside = (bare, row) =>
  bulkRow({
    ...row,
    bodies: BODIES,
    serversOf: ({ servers }) => servers,
    async prepare(stage) {
      const sides = await startAll(stage);
      return { relay: sides.reach, bare: sides[bare] };
    },
  });

const down = {
  size: DOWN,
  async send(side) {
    const { received } = await transfer(side, 'GET', '/api/media', { range: `bytes=0-${DOWN - 1}` });
    if (received !== DOWN) throw new Error(`${received} bytes arrived`);
  },
};

const up = {
  size: UP,
  async send(side) {
    const { status } = await transfer(side, 'POST', '/api/media', {}, UP);
    if (status !== 200) throw new Error(`an upload was answered with ${status}`);
  },
};

const besideLink = { minRatio: 0.7 };
const besideFloor = { minRatio: 0.77 };

export default [
  rowBeside('link', {
    ...down,
    ...besideLink,
    name: 'reach-down',
    title: '30 MiB down over Reach, beside Secure Link',
  }),
  rowBeside('link', { ...up, ...besideLink, name: 'reach-up', title: '15 MiB up over Reach, beside Secure Link' }),
  rowBeside('floor', {
    ...down,
    ...besideFloor,
    name: 'reach-down-floor',
    title: '30 MiB down over Reach, beside its TLS alone',
  }),
  rowBeside('floor', {
    ...up,
    ...besideFloor,
    name: 'reach-up-floor',
    title: '15 MiB up over Reach, beside its TLS alone',
  }),
];

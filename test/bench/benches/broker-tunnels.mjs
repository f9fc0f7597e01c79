import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { authFrame, collectedMemory } from '../support/processes.mjs';
import { digestOf, random } from '../support/reach.mjs';
import { openSocket } from '../support/websocket.mjs';

const TUNNELS = 1_000;
const PER_HOST = 16;

/** A socket of the broker, registered: its messages can be awaited by `next`. */
async function register(port, message) {
  // A source of its own for each: one source may only try 30 times a minute.
  const headers = { 'x-forwarded-for': [10, ...randomBytes(3)].join('.') };
  const socket = new WebSocket(`ws://127.0.0.1:${port}/v1/connect`, { perMessageDeflate: false, headers });
  await once(socket, 'open');
  const answer = next(socket);
  socket.send(JSON.stringify({ type: 'register', protocol_version: 1, connection_id: random(16), ...message }));
  const { type } = await answer;
  if (type !== 'registered' && type !== 'matched') throw new Error(`the broker answers with ${type}`);
  return socket;
}

async function next(socket) {
  const [data] = await once(socket, 'message');
  return JSON.parse(data);
}

/** Publishes a route of the host and opens a stream by it. */
async function openTunnel(port, { id, socket }) {
  const token = random(32);
  const published = next(socket);
  const expires_at = Math.floor(Date.now() / 1000) + 3600;
  const digests = { token_sha256: digestOf(token), device_id_hash: digestOf('device') };
  const route = { type: 'publish_route', protocol_version: 1, credential_id: random(16), expires_at, ...digests };
  socket.send(JSON.stringify(route));
  await published;
  const opened = next(socket);
  const client = await register(port, { role: 'client', host_id: id, credential_kind: 'route', token });
  await opened;
  return client;
}

export default {
  name: 'broker-tunnels',
  title: `memory of the Reach broker per idle tunnel, of ${TUNNELS}`,
  unit: 'KiB',
  max: 40,
  rounds: 1,
  async prepare(stage) {
    const broker = async () => {
      const count = Math.ceil(TUNNELS / PER_HOST);
      const known = Array.from({ length: count }, () => ({ id: random(16), token: random(32) }));
      const digests = known.map(({ id, token }) => [id, { host_token_sha256: digestOf(token) }]);
      const server = await stage.broker({ hosts: Object.fromEntries(digests) });
      const hosts = [];
      for (const { id, token } of known) {
        const message = { role: 'host', host_id: id, credential_kind: 'host', token };
        hosts.push({ id, socket: await register(server.port, message) });
      }
      const before = await collectedMemory(server);
      const clients = [];
      while (clients.length < TUNNELS) clients.push(await openTunnel(server.port, hosts[clients.length % count]));
      const after = await collectedMemory(server);
      for (const socket of [...clients, ...hosts.map((host) => host.socket)]) socket.terminate();
      await stage.stop(server);
      return (after - before) / TUNNELS / 1024;
    };
    const bare = async () => {
      const server = await stage.bare('ws', {}, { collectable: true });
      const before = await collectedMemory(server);
      const sockets = [];
      const offer = authFrame({ session_token: crypto.randomUUID() });
      while (sockets.length < TUNNELS) sockets.push(await openSocket(server.port, offer));
      const after = await collectedMemory(server);
      for (const socket of sockets) socket.end();
      await stage.stop(server);
      return (after - before) / TUNNELS / 1024;
    };
    return { relay: broker, bare };
  },
};

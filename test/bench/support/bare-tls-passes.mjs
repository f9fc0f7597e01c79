/**
 * The floor of Reach: the TLS passes of a tunnel, and nothing else. `bare-tls-passes.mjs PORT {"role":"broker","homePort",
 * "clientPort","cert","key"}` joins each connection of a client with one of a home; with `{"role":"home","homePort",
 * "upstreamPort","cert","key"}` it dials that broker, and forwards what comes in TLS inside of the connection as
 * `bare-tls-pipe.mjs` does. PORT itself answers in plain HTTP, to tell when it is up.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { Agent, createServer, request } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { connect, createServer as createTlsServer } from 'node:tls';

const [port, text] = process.argv.slice(2);
const options = JSON.parse(text);
const host = '127.0.0.1';
const identity = { cert: readFileSync(options.cert), key: readFileSync(options.key) };

async function startBroker({ homePort, clientPort }) {
  const homes = [];
  const forHomes = createTlsServer(identity, (home) => void homes.push(home.on('error', () => {})));
  const forClients = createTlsServer(identity, (client) => {
    const home = homes.shift();
    if (!home) return client.destroy();
    client.on('error', () => home.destroy());
    client.pipe(home).pipe(client);
  });
  await Promise.all([
    once(forHomes.listen(homePort, host), 'listening'),
    once(forClients.listen(clientPort, host), 'listening'),
  ]);
}

async function startHome({ homePort, upstreamPort }) {
  const agent = new Agent({ keepAlive: true, maxFreeSockets: 64 });
  const server = createHttpsServer({ ...identity, keepAliveTimeout: 0 }, (incoming, outgoing) => {
    const { method, headers, url } = incoming;
    const path = url.replace(/^\/api/, '');
    const upstream = request({ host, port: upstreamPort, agent, method, path, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode, answer.headers);
      answer.pipe(outgoing);
    });
    upstream.on('error', () => outgoing.destroy());
    incoming.pipe(upstream);
  });
  const tunnel = connect({ host, port: homePort, rejectUnauthorized: false });
  await once(tunnel, 'secureConnect');
  server.emit('connection', tunnel);
}

await (options.role === 'broker' ? startBroker(options) : startHome(options));
createServer((_request, response) => response.end('{}')).listen(Number(port), host);

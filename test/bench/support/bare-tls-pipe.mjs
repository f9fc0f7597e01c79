/**
 * The plain way of forwarding from TLS on `node:https` and `node:http`: `bare-tls-pipe.mjs PORT {"tlsPort","upstreamPort",
 * "cert","key"}`. PORT itself answers in plain HTTP, to tell when it is up.
 */
import { Agent, createServer, request } from 'node:http';
import { createServer as createTlsServer } from 'node:https';

const [port, options] = process.argv.slice(2);
const { tlsPort, upstreamPort, cert, key } = JSON.parse(options);
const agent = new Agent({ keepAlive: true, maxFreeSockets: 64 });

createTlsServer({ cert, key }, (incoming, outgoing) => {
  const { method, headers, url } = incoming;
  const path = url.replace(/^\/api/, '');
  const upstream = request({ host: '127.0.0.1', port: upstreamPort, agent, method, path, headers }, (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers);
    answer.pipe(outgoing);
  });
  upstream.on('error', () => outgoing.destroy());
  incoming.pipe(upstream);
}).listen(tlsPort, '127.0.0.1', () => {
  createServer((_request, response) => response.end('{}')).listen(Number(port), '127.0.0.1');
});

/** The plain way of forwarding on `node:http`: `bare-pipe.mjs PORT {"relayPort","prefix"}`. */
import { Agent, createServer, request } from 'node:http';

const [port, options] = process.argv.slice(2);
const { relayPort, prefix } = JSON.parse(options);
const agent = new Agent({ keepAlive: true, maxFreeSockets: 64 });

createServer((incoming, outgoing) => {
  const { method, headers, url } = incoming;
  const path = url.startsWith(prefix) ? url.slice(prefix.length) : url;
  const upstream = request({ host: '127.0.0.1', port: relayPort, agent, method, path, headers }, (answer) => {
    outgoing.writeHead(answer.statusCode, answer.headers);
    answer.pipe(outgoing);
  });
  upstream.on('error', () => outgoing.destroy());
  incoming.pipe(upstream);
}).listen(Number(port), '127.0.0.1');

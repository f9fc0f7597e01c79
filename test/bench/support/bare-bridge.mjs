/**
 * The minimum for carrying an HTTP request over one `ws` socket and back: `bare-bridge.mjs PORT {}`. The last socket to
 * connect is the phone. JSON is parsed and serialised both ways; nothing is validated.
 */
import { createServer } from 'node:http';
import { WebSocketServer } from 'ws';

const [port] = process.argv.slice(2);
const pending = new Map();
let phone;
let last = 0;

const server = createServer((request, response) => {
  if (request.url === '/health') return void response.end();
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    const id = String(++last);
    const body = chunks.length > 0 ? JSON.parse(Buffer.concat(chunks)) : {};
    const payload = { request_id: id, method: request.method, path: request.url, params: {}, body };
    pending.set(id, response);
    phone.send(JSON.stringify({ channel: 'bridge', type: 'bridge.command', id, payload }));
  });
});
const sockets = new WebSocketServer({ server, perMessageDeflate: false, clientTracking: false });
sockets.on('connection', (socket) => {
  socket.on('error', () => {});
  socket.on('message', (data) => {
    const { type, payload } = JSON.parse(data);
    if (type === 'auth') {
      phone = socket;
      socket.send(JSON.stringify({ channel: 'system', type: 'auth.ok', id: '1', payload: {} }));
    }
    if (type !== 'bridge.response') return;
    const response = pending.get(payload.request_id);
    pending.delete(payload.request_id);
    const body = JSON.stringify(payload.result);
    response.writeHead(payload.status, {
      'content-type': 'application/json; charset=utf-8',
      'content-length': Buffer.byteLength(body),
    });
    response.end(body);
  });
});
server.listen(Number(port), '127.0.0.1');

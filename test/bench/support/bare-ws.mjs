/**
 * The minimum for a message on `ws`: `bare-ws.mjs PORT {"answer":…}`. Answers every message with `answer`; without
 * one, parses the message and sends it back serialised again.
 */
import { createServer } from 'node:http';
import { WebSocketServer } from 'ws';

const [port, options] = process.argv.slice(2);
const { answer } = JSON.parse(options);

const server = createServer((_request, response) => response.end());
const sockets = new WebSocketServer({ server, perMessageDeflate: false, clientTracking: false });
sockets.on('connection', (socket) => {
  socket.on('error', () => {});
  socket.on('message', (data) => socket.send(answer ?? JSON.stringify(JSON.parse(data))));
});
server.listen(Number(port), '127.0.0.1');

/**
 * The minimum for a message or a reply that a crash must not lose: `bare-messages.mjs PORT {"state":…}`. The last socket to
 * connect is the phone. Each `POST`, and each text of the phone, is one row of the SQLite file `state`, written by the
 * relay's driver with its settings; what arrives during a commit shares the next one. A `POST` is answered, and passed on
 * to the phone, once its row is durable, and a text acknowledged. Nothing is validated, and no row is ever removed.
 */
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import Database from 'libsql';
import AsyncDatabase from 'libsql/promise';
import { WebSocketServer } from 'ws';

const [port, options] = process.argv.slice(2);
const database = new Database(JSON.parse(options).state);
database.exec(
  'PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;' +
    'CREATE TABLE items (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID',
);
const begin = database.prepare('BEGIN IMMEDIATE');
const put = database.prepare('INSERT OR REPLACE INTO items (key, value) VALUES (?, ?)');

/** Rows are written in turn, as the relay's history is. */
const SLOTS = 500;
let last = 0;
let waiting = [];
let isBusy = false;

function store(value, stored) {
  if (waiting.push({ value, stored }) === 1 && !isBusy) setImmediate(commit);
}

async function commit() {
  const batch = waiting;
  waiting = [];
  isBusy = true;
  begin.run();
  for (const { value } of batch) put.run(String(++last % SLOTS), value);
  await AsyncDatabase.prototype.exec.call(database, 'COMMIT');
  isBusy = false;
  for (const { stored } of batch) stored();
  if (waiting.length > 0) setImmediate(commit);
}

let phone;
const newId = () => randomBytes(6).toString('hex');

const server = createServer((request, response) => {
  if (request.method === 'GET') return void response.end();
  const chunks = [];
  request.on('data', (chunk) => chunks.push(chunk));
  request.on('end', () => {
    const payload = { message_id: newId(), ...JSON.parse(Buffer.concat(chunks)), sent_at: Date.now() };
    store(JSON.stringify(payload), () => {
      phone?.send(JSON.stringify({ channel: 'proactive', type: 'phone.message', id: payload.message_id, payload }));
      const body = JSON.stringify({ delivered: phone !== undefined, message_id: payload.message_id });
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(body) });
      response.end(body);
    });
  });
});
const sockets = new WebSocketServer({ server, perMessageDeflate: false, clientTracking: false });
sockets.on('connection', (socket) => {
  socket.on('error', () => {});
  socket.on('close', () => {
    if (phone === socket) phone = undefined;
  });
  socket.on('message', (data) => {
    const { channel, type, id, payload } = JSON.parse(data);
    const answer = (kind, content) => socket.send(JSON.stringify({ channel, type: kind, id, payload: content }));
    if (type === 'auth') answer('auth.ok', {});
    else if (type === 'proactive.subscribe') {
      phone = socket;
      answer('proactive.subscribed', {});
    } else {
      const reply = { message_id: newId(), ...payload, ts: Date.now() };
      store(JSON.stringify(reply), () => answer('proactive.reply.ack', { client_msg_id: reply.message_id }));
    }
  });
});
server.listen(Number(port), '127.0.0.1');

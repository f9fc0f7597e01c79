/**
 * The same minimum as `bare-messages.mjs`, by the packages that the relay is built on, used the plain way:
 * `bare-card.mjs PORT {"state":…,"body":…,"answer":…}`. itty-router routes, @whatwg-node/server serves, crossws holds the sockets, and
 * unstorage stores, through a driver that writes SQLite rows with a shared commit. `GET /sessions` is answered with `body`,
 * and the first frame of a socket with `answer`. Nothing is validated, authenticated or logged.
 */
import { randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import { createServerAdapter } from '@whatwg-node/server';
import crossws from 'crossws/adapters/node';
import { Router } from 'itty-router';
import Database from 'libsql';
import AsyncDatabase from 'libsql/promise';
import { createStorage, defineDriver } from 'unstorage';

const [port, options] = process.argv.slice(2);
const { state, body = '{}', answer: greeting } = JSON.parse(options);

/** What is set during a commit shares the next one. */
const sqlite = defineDriver((path) => {
  const database = new Database(path);
  database.exec(
    'PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;' +
      'CREATE TABLE items (key TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID',
  );
  const begin = database.prepare('BEGIN IMMEDIATE');
  const put = database.prepare('INSERT OR REPLACE INTO items (key, value) VALUES (?, ?)');
  let waiting = [];
  let isBusy = false;
  async function commit() {
    const batch = waiting;
    waiting = [];
    isBusy = true;
    begin.run();
    for (const { key, value } of batch) put.run(key, value);
    await AsyncDatabase.prototype.exec.call(database, 'COMMIT');
    isBusy = false;
    for (const { stored } of batch) stored();
    if (waiting.length > 0) setImmediate(commit);
  }
  return {
    name: 'sqlite',
    hasItem: () => false,
    getItem: () => null,
    getKeys: () => [],
    setItem: (key, value) =>
      new Promise((stored) => {
        if (waiting.push({ key, value, stored }) === 1 && !isBusy) setImmediate(commit);
      }),
  };
});

/** Rows are written in turn, as the relay's history is. */
const SLOTS = 500;
const storage = createStorage({ driver: sqlite(state) });
let last = 0;
const store = (item) => storage.setItem(`history:${++last % SLOTS}`, item);
const newId = () => randomBytes(6).toString('hex');
let phone;

const json = (text) =>
  new Response(text, {
    headers: { 'content-type': 'application/json', 'content-length': String(Buffer.byteLength(text)) },
  });

const router = Router()
  .get('/health', () => new Response())
  .get('/sessions', () => json(body))
  .post('/phone/message', async (request) => {
    const payload = { message_id: newId(), ...(await request.json()), sent_at: Date.now() };
    await store(payload);
    phone?.send(JSON.stringify({ channel: 'proactive', type: 'phone.message', id: payload.message_id, payload }));
    return json(JSON.stringify({ delivered: phone !== undefined, message_id: payload.message_id }));
  });

const sockets = crossws({
  hooks: {
    close(peer) {
      if (phone === peer) phone = undefined;
    },
    async message(peer, message) {
      const { channel, type, id, payload } = message.json();
      const answer = (kind, content) => peer.send(JSON.stringify({ channel, type: kind, id, payload: content }));
      if (type === 'auth') return greeting === undefined ? answer('auth.ok', {}) : peer.send(greeting);
      if (type === 'proactive.subscribe') {
        phone = peer;
        return answer('proactive.subscribed', {});
      }
      const reply = { message_id: newId(), ...payload, ts: Date.now() };
      await store(reply);
      answer('proactive.reply.ack', { client_msg_id: reply.message_id });
    },
  },
});
createServer(createServerAdapter(router.fetch)).on('upgrade', sockets.handleUpgrade).listen(Number(port), '127.0.0.1');

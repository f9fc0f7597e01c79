import { join } from 'node:path';
import { httpRate } from '../support/http.mjs';
import { authFrame, pairDevices } from '../support/processes.mjs';
import { openSocket, roundTripRate, textFrame } from '../support/websocket.mjs';

const MESSAGE = { method: 'POST', body: JSON.stringify({ text: 'Dinner is ready' }) };

/** Posts messages to a server, over so many connections. */
const post = (server, token, connections) =>
  httpRate(server, '/phone/message', { authorization: `Bearer ${token}` }, { ...MESSAGE, connections });

/** The same while a phone takes them. */
async function postLive(server, token, connections) {
  const socket = await openSocket(server.port, authFrame({ session_token: token }));
  const isSubscribed = new Promise((resolve, reject) => {
    socket.listen({ failed: reject, text: (frame) => frame.includes('proactive.subscribed') && resolve() });
  });
  try {
    socket.write(textFrame(JSON.stringify({ channel: 'proactive', type: 'proactive.subscribe', payload: {} })));
    await isSubscribed;
    return await post(server, token, connections);
  } finally {
    socket.end();
  }
}

const REPLY = JSON.stringify({ channel: 'proactive', type: 'proactive.reply', payload: { text: 'On my way' } });

/** Replies of a phone, which a socket takes one after another. */
async function reply(server, token) {
  const socket = await openSocket(server.port, authFrame({ session_token: token }));
  try {
    const isAnswer = (text) => JSON.parse(text).type === 'proactive.reply.ack';
    return await roundTripRate(server, socket, REPLY, { inFlight: 1, isAnswer });
  } finally {
    socket.end();
  }
}

/**
 * A row that compares with a bare server that makes the same bytes durable: with `messages` alone, or with `card` by the
 * packages that the relay is built on.
 */
const beside = (bareName, name, title, connections, send) => ({
  name,
  title,
  unit: 'messages/s',
  minRatio: 0.1,
  operation: 'message',
  async prepare(stage) {
    const relay = await stage.relay();
    const [token] = await pairDevices(relay, 1);
    const bare = await stage.bare(bareName, { state: join(await stage.home(), 'state.db') });
    return {
      relay: () => send(relay, token, connections),
      bare: () => send(bare, token, connections),
    };
  },
});

const rows = [
  ['phone-live', 'POST /phone/message with a phone', 8, postLive],
  ['phone-queued', 'POST /phone/message without a phone', 8, post],
  ['commit', 'messages stored one by one, a commit each', 1, post],
  ['phone-reply', 'replies of a phone, one by one', 1, reply],
];

export default rows.flatMap(([name, title, ...how]) => [
  beside('messages', name, title, ...how),
  beside('card', `${name}-card`, `  beside the card's packages alone`, ...how),
]);

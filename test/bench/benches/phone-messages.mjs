import { httpRate } from '../support/http.mjs';
import { authFrame, pairDevices } from '../support/processes.mjs';
import { openSocket, roundTripRate, textFrame } from '../support/websocket.mjs';

const MESSAGE = { method: 'POST', body: JSON.stringify({ text: 'Dinner is ready' }) };

/** Posts messages to a relay, over so many connections. */
const post = (relay, token, connections) =>
  httpRate(relay, '/phone/message', { authorization: `Bearer ${token}` }, { ...MESSAGE, connections });

/** The same while a phone takes them. */
async function postLive(relay, token, connections) {
  const socket = await openSocket(relay.port, authFrame({ session_token: token }));
  const isSubscribed = new Promise((resolve, reject) => {
    socket.listen({ failed: reject, text: (frame) => frame.includes('proactive.subscribed') && resolve() });
  });
  try {
    socket.write(textFrame(JSON.stringify({ channel: 'proactive', type: 'proactive.subscribe', payload: {} })));
    await isSubscribed;
    return await post(relay, token, connections);
  } finally {
    socket.end();
  }
}

const REPLY = JSON.stringify({ channel: 'proactive', type: 'proactive.reply', payload: { text: 'On my way' } });

/** Replies of a phone, which a socket takes one after another. */
async function reply(relay, token) {
  const socket = await openSocket(relay.port, authFrame({ session_token: token }));
  try {
    const isAnswer = (text) => JSON.parse(text).type === 'proactive.reply.ack';
    return await roundTripRate(relay, socket, REPLY, { inFlight: 1, isAnswer });
  } finally {
    socket.end();
  }
}

const ACCEPTED = JSON.stringify({ message_id: 'x'.repeat(12), delivered: true, buffered: 0 });

/** A row that compares with a bare server, which answers like the relay, and reads and stores nothing. */
const besideBare = (name, title, connections, send) => ({
  name,
  title,
  unit: 'requests/s',
  minRatio: 0.01,
  operation: 'message',
  async prepare(stage) {
    const relay = await stage.relay();
    const [token] = await pairDevices(relay, 1);
    const bare = await stage.bare('http', { body: ACCEPTED });
    return {
      relay: () => send(relay, token, connections),
      bare: () => httpRate(bare, '/phone/message', {}, { ...MESSAGE, connections }),
    };
  },
});

/**
 * The first two rows compare with a bare server, for `--former`: a message to a phone that is there, with the sign of life
 * that is asked of it, and one that is committed alone. The others compare the way to an absent phone, or back from a
 * phone, with the way to a connected one.
 */
export default [
  besideBare('phone-live', 'POST /phone/message with a phone, beside a bare server', 8, postLive),
  besideBare('commit', 'messages stored one by one, a commit each, beside a bare server', 1, post),
  {
    name: 'phone-queued',
    title: 'POST /phone/message without a phone, beside one with it',
    unit: 'requests/s',
    minRatio: 0.4,
    operation: 'message',
    async prepare(stage) {
      const [away, here] = [await stage.relay(), await stage.relay()];
      const [[first], [second]] = [await pairDevices(away, 1), await pairDevices(here, 1)];
      return { relay: () => post(away, first, 8), bare: () => postLive(here, second, 8) };
    },
  },
  {
    name: 'phone-reply',
    title: 'replies of a phone one by one, beside messages to it',
    unit: 'messages/s',
    minRatio: 0.4,
    operation: 'message',
    async prepare(stage) {
      const relay = await stage.relay();
      const [token] = await pairDevices(relay, 1);
      return { relay: () => reply(relay, token), bare: () => postLive(relay, token, 1) };
    },
  },
];

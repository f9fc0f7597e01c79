import { authFrame, pairDevices } from '../support/processes.mjs';
import { connectRate, openSocket } from '../support/websocket.mjs';

const AT_ONCE = 8;

export default {
  name: 'connect',
  title: 'connect and auth, 8 at once',
  unit: 'sockets/s',
  minRatio: 0.7,
  operation: 'socket',
  rounds: 5,
  async prepare(stage) {
    const relay = await stage.relay();
    const tokens = await pairDevices(relay, AT_ONCE);
    const offers = tokens.map((token) => authFrame({ session_token: token }));
    const sample = await openSocket(relay.port, offers[0]);
    sample.end();
    const bare = await stage.bare('ws', { answer: sample.first });
    const isAnswer = (text) => JSON.parse(text).type === 'auth.ok';
    return {
      relay: () => connectRate(relay, offers, { isAnswer }),
      bare: () => connectRate(bare, offers, { isAnswer }),
    };
  },
};

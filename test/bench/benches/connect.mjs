import { join } from 'node:path';
import { authFrame, pairDevices } from '../support/processes.mjs';
import { connectRate, openSocket } from '../support/websocket.mjs';

const AT_ONCE = 8;

/** A row that compares with a bare server: one on `ws`, or one of the packages that the relay is built on. */
const beside = (bareName, row) => ({
  ...row,
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
    const bare = await stage.bare(bareName, { answer: sample.first, state: join(await stage.home(), 'state.db') });
    const isAnswer = (text) => JSON.parse(text).type === 'auth.ok';
    return {
      relay: () => connectRate(relay, offers, { isAnswer }),
      bare: () => connectRate(bare, offers, { isAnswer }),
    };
  },
});

export default [
  beside('ws', { name: 'connect', title: 'connect and auth, 8 at once' }),
  beside('card', { name: 'connect-card', title: "  beside the card's packages alone" }),
];

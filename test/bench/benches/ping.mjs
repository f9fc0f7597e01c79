import { authFrame, pairDevices } from '../support/processes.mjs';
import { openSocket, roundTripRate } from '../support/websocket.mjs';

const PING = JSON.stringify({ channel: 'system', type: 'ping', id: 'bench-ping-0001', payload: { ts: 1_700_000_000 } });

export default {
  name: 'ping',
  title: 'system/ping, 64 in flight on one socket',
  unit: 'round trips/s',
  minRatio: 0.6,
  operation: 'round trip',
  rounds: 5,
  async prepare(stage) {
    const relay = await stage.relay();
    const [token] = await pairDevices(relay, 1);
    const bare = await stage.bare('ws');
    const measure = async (server, hello, type) => {
      const socket = await openSocket(server.port, hello);
      try {
        return await roundTripRate(server, socket, PING, {
          inFlight: 64,
          isAnswer: (text) => JSON.parse(text).type === type && JSON.parse(text).id === 'bench-ping-0001',
        });
      } finally {
        socket.end();
      }
    };
    return {
      relay: () => measure(relay, authFrame({ session_token: token }), 'pong'),
      bare: () => measure(bare, authFrame({ session_token: token }), 'ping'),
    };
  },
};

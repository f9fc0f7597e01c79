import { authFrame, collectedMemory, pairDevices } from '../support/processes.mjs';
import { openSocket } from '../support/websocket.mjs';

const SOCKETS = 2_000;
const PER_SESSION = 8;
const AT_ONCE = 8;

export default {
  name: 'sockets',
  title: `memory per idle socket, of ${SOCKETS}`,
  unit: 'KiB',
  max: 15,
  async prepare(stage) {
    // Each measurement has its own process: reused freed memory would make a second one look too small.
    const measure = async (start, pair) => {
      const server = await start();
      const offers = await pair(server);
      const before = await collectedMemory(server);
      const sockets = [];
      while (sockets.length < SOCKETS) {
        const batch = Array.from({ length: AT_ONCE }, (_, at) => offers[(sockets.length + at) % offers.length]);
        sockets.push(...(await Promise.all(batch.map((offer) => openSocket(server.port, offer)))));
      }
      const after = await collectedMemory(server);
      for (const socket of sockets) socket.end();
      await stage.stop(server);
      return (after - before) / SOCKETS / 1024;
    };
    const collectable = true;
    const pair = async (relay) => {
      const tokens = await pairDevices(relay, SOCKETS / PER_SESSION);
      return tokens.map((token) => authFrame({ session_token: token }));
    };
    return {
      relay: () => measure(() => stage.relay({ collectable }), pair),
      bare: () =>
        measure(
          () => stage.bare('ws', {}, { collectable }),
          () => [authFrame({ session_token: crypto.randomUUID() })],
        ),
    };
  },
};

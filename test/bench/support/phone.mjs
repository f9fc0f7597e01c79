import { authFrame, pairDevices } from './processes.mjs';
import { openSocket, textFrame } from './websocket.mjs';

const envelope = (type, payload) => JSON.stringify({ channel: 'bridge', type, id: 'phone', payload });
const RESULT = { x: 540, y: 1200, duration_ms: 100 };

/** A phone that answers every command immediately. `end()` disconnects it. */
export async function startPhone(port, token) {
  const socket = await openSocket(port, authFrame({ session_token: token }));
  let frames = [];
  socket.listen({
    failed: (error) => process.stderr.write(`the bench's phone failed: ${error.message}\n`),
    text(buffer, start, end) {
      const { type, payload } = JSON.parse(buffer.toString('utf8', start, end));
      if (type !== 'bridge.command') return;
      frames.push(
        textFrame(envelope('bridge.response', { request_id: payload.request_id, status: 200, result: RESULT })),
      );
      // Commands that arrived in one chunk are answered in one chunk.
      if (frames.length === 1) queueMicrotask(flush);
    },
  });
  function flush() {
    socket.write(frames.length === 1 ? frames[0] : Buffer.concat(frames));
    frames = [];
  }
  socket.write(textFrame(envelope('bridge.status', { bridge: { device_control_supported: true } })));
  return socket;
}

/**
 * Prepares a bench of one call over the bridge, measured by `call(server, headers, TAP)`. The baseline is a bare server
 * that hands the same bytes to the same phone.
 */
export async function prepareTaps(stage, call) {
  const relay = await stage.relay();
  const [token] = await pairDevices(relay, 1);
  const bare = await stage.bare('bridge');
  const measure = async (server) => {
    const phone = await startPhone(server.port, token);
    try {
      return await call(server, { authorization: `Bearer ${token}` }, TAP);
    } finally {
      phone.end();
    }
  };
  return { relay: () => measure(relay), bare: () => measure(bare) };
}

export const TAP = { method: 'POST', path: '/tap', body: JSON.stringify({ x: 540, y: 1200, duration_ms: 100 }) };

import type { Channel } from '../../lib/socket/channel.ts';

/** Characters of a ping whose time is sent back, whatever JSON it is. A longer one gets the relay's time. */
const MAX_ECHOED = 4096;

/** `system`: answers `ping`, takes `pong` as a sign of life, and ignores everything else (contract 02 §2). */
export const system: Channel = {
  anyDepth: true,

  message(connection, { type, id, payload }, text) {
    if (type === 'pong') return connection.ponged(payload.ts);
    if (type !== 'ping') return;
    const ts = text.length > MAX_ECHOED ? undefined : payload.ts;
    connection.send('system', 'pong', { ts: ts ?? Date.now() }, id);
  },
};

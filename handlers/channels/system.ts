import type { Channel } from '../../lib/socket/channel.ts';

/** `system`: answers `ping`, and ignores everything else including a second `auth` (contract 02 §2). */
export const system: Channel = {
  message(connection, { type, id, payload }) {
    if (type === 'ping') connection.send('system', 'pong', { ts: payload.ts ?? Date.now() }, id);
  },
};

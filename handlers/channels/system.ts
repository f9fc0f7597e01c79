import type { Channel } from '../../lib/socket/channel.ts';

/** `system`: ping and pong; everything else, a second `auth` too, is ignored (contract 02 §2). */
export const system: Channel = {
  message(connection, { type, id, payload }) {
    if (type === 'ping') connection.send('system', 'pong', { ts: payload.ts ?? Date.now() }, id);
  },
};

import type { Channels } from '../../lib/socket/channel.ts';
import { system } from './system.ts';

/** THE channel table. Inbound `pairing` is no channel: it only carries pushes to the client. */
export const channels: Channels = {
  system,
};

import type { Relay } from '../../lib/relay.ts';
import type { Channels } from '../../lib/socket/channel.ts';
import { createBridgeChannel } from './bridge.ts';
import { createChatChannel } from './chat.ts';
import { createDesktopChannel } from './desktop.ts';
import { createNotificationsChannel } from './notifications.ts';
import { createProactiveChannel } from './proactive.ts';
import { system } from './system.ts';
import { createTerminalChannel } from './terminal.ts';
import { createTuiChannel } from './tui.ts';

/**
 * THE channel table; in this order channels are cleaned up when a socket ends. Inbound `pairing` is no channel: it
 * only carries pushes to the client.
 */
export const createChannels = (relay: Relay): Channels => ({
  system,
  bridge: createBridgeChannel(relay),
  chat: createChatChannel(relay),
  desktop: createDesktopChannel(relay),
  notifications: createNotificationsChannel(relay),
  proactive: createProactiveChannel(relay),
  tui: createTuiChannel(relay),
  terminal: createTerminalChannel(relay),
});

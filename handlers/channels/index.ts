import type { Relay } from '../../lib/relay.ts';
import type { Channel, Channels } from '../../lib/socket/channel.ts';
import { homeOnlyChannel } from '../mirror.ts';
import { createBridgeChannel } from './bridge.ts';
import { createChatChannel } from './chat.ts';
import { createDesktopChannel } from './desktop.ts';
import { createNotificationsChannel } from './notifications.ts';
import { createProactiveChannel } from './proactive.ts';
import { createSystemChannel } from './system.ts';
import { createTerminalChannel } from './terminal.ts';
import { createTuiChannel } from './tui.ts';

/**
 * THE channel table, in the order in which channels are closed when a socket ends. `pairing` is missing, because it only
 * carries messages to the client.
 */
export const createChannels = (relay: Relay): Channels => {
  const ofHome = (channel: Channel) => homeOnlyChannel(channel, relay);
  return {
    system: createSystemChannel(relay),
    bridge: ofHome(createBridgeChannel(relay)),
    chat: ofHome(createChatChannel(relay)),
    desktop: ofHome(createDesktopChannel(relay)),
    notifications: createNotificationsChannel(relay),
    proactive: createProactiveChannel(relay),
    tui: ofHome(createTuiChannel(relay)),
    terminal: ofHome(createTerminalChannel(relay)),
  };
};

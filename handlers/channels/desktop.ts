import type { Relay } from '../../lib/relay.ts';
import type { Channel } from '../../lib/socket/channel.ts';

/** Clients send types with and without the channel's name as a prefix. */
const unprefixed = (type: string): string => (type.startsWith('desktop.') ? type.slice('desktop.'.length) : type);

/** Messages in which a desktop describes itself. They need no grant. */
const DESCRIPTIONS = new Set(['status', 'workspace', 'active_editor']);

/** `desktop`: desktops describe themselves and answer commands (contract 07 §2.2). Invalid messages get no answer. */
export const createDesktopChannel = ({ desktop, log }: Pick<Relay, 'desktop' | 'log'>): Channel => ({
  grant: { name: 'desktop', label: 'Desktop' },
  large: true,
  needsGrant: ({ type }) => !DESCRIPTIONS.has(unprefixed(type)),

  message(connection, { type, payload }, text) {
    const kind = unprefixed(type);
    switch (kind) {
      case 'response':
        return desktop.answered(connection, payload, text);
      case 'command.waiting':
        return desktop.waiting(connection, payload);
      case 'status':
        return desktop.report(connection, payload, text);
      case 'workspace':
      case 'active_editor':
        return desktop.hint(connection, kind, payload, text);
      case 'command':
        log.warn(`ignored a desktop.command from session ${connection.session.prefix}`);
        break;
      default:
        log.debug(`ignored a desktop message of type ${type.slice(0, 64)} from session ${connection.session.prefix}`);
    }
  },

  badPayload(connection) {
    log.debug(`ignored a desktop message without a payload object from session ${connection.session.prefix}`);
  },
  describe: (connection) => ({ tools: desktop.toolsOf(connection) }),
  opened: (connection, slept) => desktop.opened(connection, slept),
  closed: (connection) => desktop.closed(connection),
  grantLost: (connection) => desktop.grantLost(connection),
});

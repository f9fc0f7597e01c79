import type { Relay } from '../../lib/relay.ts';
import type { Channel } from '../../lib/socket/channel.ts';

/** `bridge`: phones report their state and answer commands (contract 03 §1). Invalid messages get no answer. */
export const createBridgeChannel = ({ bridge, log }: Pick<Relay, 'bridge' | 'log'>): Channel => ({
  grant: { name: 'bridge', label: 'Bridge' },
  large: true,

  message(connection, { type, payload }, text) {
    switch (type) {
      case 'bridge.response':
        return bridge.answered(connection, payload, text);
      case 'command.waiting':
        return bridge.waiting(connection, payload);
      case 'bridge.status':
        return bridge.report(connection, payload, text.length);
      default:
        log.warn(`ignored a bridge message of type ${type.slice(0, 64)} from session ${connection.session.prefix}`);
    }
  },

  badPayload() {},
  denied(connection, { type }) {
    if (type === 'bridge.status') bridge.denied(connection);
  },
  describe: (connection) => bridge.describe(connection),
  opened: (connection, slept) => bridge.opened(connection, slept),
  closed: (connection) => bridge.closed(connection),
  grantLost: (connection) => bridge.grantLost(connection),
});

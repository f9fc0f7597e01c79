import { PHONE_GRANT } from '../../lib/phone/phone.ts';
import type { Relay } from '../../lib/relay.ts';
import type { Channel } from '../../lib/socket/channel.ts';

/** `proactive`: messages to the phone and its replies (contract 04 §5.1). Invalid messages get no answer. */
export const createProactiveChannel = ({ phone, log: root }: Pick<Relay, 'phone' | 'log'>): Channel => {
  const log = root.named('phone');
  return {
    grant: { name: PHONE_GRANT, label: 'Phone' },
    message(connection, { type, id, payload }) {
      switch (type) {
        case 'proactive.subscribe':
          return payload.mirror === true ? phone.mirror(connection, id) : phone.subscribe(connection, id);
        case 'proactive.unsubscribe':
          return phone.leave(connection);
        case 'proactive.reply':
          return phone.reply(connection, payload, id);
        case 'proactive.shown':
          return phone.shown(connection, payload.message_id);
        case 'proactive.cancel':
          return cancel(payload.message_id);
        default:
          log.debug(`ignored a proactive message of type ${type.slice(0, 64)}`);
      }
    },
    badPayload() {},
    // A reply that could not be stored is not acknowledged, so the phone sends it again.
    failed() {},
    describe: (connection) => ({ subscribed: phone.isSubscribed(connection), mirror: phone.isMirror(connection) }),
    opened: (connection, slept) => (slept ? phone.restore(connection) : undefined),
    closed: (connection) => phone.ended(connection),
    grantLost: (connection) => phone.leave(connection),
  };

  /** A cancel without a message id clears the queue. A cancel with an invalid id must not. */
  async function cancel(id: unknown): Promise<void> {
    if (id === undefined || id === null) await phone.cancel();
    else if (typeof id === 'string' || typeof id === 'number') await phone.cancel(String(id));
  }
};

import { PHONE_GRANT } from '../../lib/phone/phone.ts';
import type { Relay } from '../../lib/relay.ts';
import type { Channel } from '../../lib/socket/channel.ts';

/** `notifications`: phones report the notifications they show, and get no answer (contract 02 §6). */
export function createNotificationsChannel({ notifications, log: root }: Relay): Channel {
  const log = root.named('notifications');
  return {
    grant: { name: PHONE_GRANT, label: 'Phone' },
    message(_connection, { type, payload }) {
      if (type !== 'notification.posted') return;
      const name = typeof payload.package_name === 'string' ? payload.package_name.slice(0, 128) : 'an unnamed app';
      const posted = notifications.post(payload);
      log.debug(`notification of ${name}${posted ? '' : ' dropped: too large'}`);
    },
    badPayload() {},
  };
}

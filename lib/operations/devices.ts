import * as v from 'valibot';
import { type Clock, seconds } from '../kit/clock.ts';
import { PHONE_GRANT } from '../phone/phone.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Session } from '../sessions/session.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { ConnectionRow } from '../socket/connection.ts';
import type { PhoneControl } from './android.ts';
import type { Operation } from './operation.ts';

export interface DeviceListDeps {
  sessions: Sessions;
  sockets: { describe(session: Session): ConnectionRow[] };
  bridge: Pick<PhoneControl, 'hasPhone'>;
  clock: Clock;
}

/** The abilities of a device, each with the grant that the device and its caller need. */
const USES = [
  { can: 'messages', grant: PHONE_GRANT },
  { can: 'android tools', grant: 'bridge' },
  { can: 'desktop tools', grant: 'desktop' },
] as const;
type Use = (typeof USES)[number]['can'];

/** `device_list`: connected devices with proof of life (contract 09 §7) that the caller may see or use. */
export function deviceList({ sessions, sockets, bridge, clock }: DeviceListDeps): Operation {
  const has = (session: Session, grant: string) => isGranted(session.grants, grant, seconds(clock));

  /** True if one of the device's connections has shown that it supports this. */
  function isReady(use: Use, session: Session, { channels: { proactive, desktop } }: ConnectionRow): boolean {
    switch (use) {
      case 'messages':
        return proactive?.subscribed === true || proactive?.mirror === true;
      case 'android tools':
        return bridge.hasPhone(session);
      case 'desktop tools':
        return Array.isArray(desktop?.tools) && desktop.tools.length > 0;
    }
  }

  return {
    name: 'device_list',
    title: 'List connected devices',
    description:
      'Lists the connected phones and desktops: `name` (the value for `device` in other tools), `platform`, what each `can` ' +
      'do, and `proof_age_ms`, the time since it was last heard. `stale: true` means that it is probably gone.',
    grant: null,
    effect: 'read',
    hints: { idempotent: true },
    ignoresFreeze: true,
    input: v.object({}),
    async run(_input, { actor }) {
      const mayUse = (grant: string) => actor.kind === 'operator' || has(actor.session, grant);
      const rows = sessions.list().flatMap((session) => {
        const connections = sockets.describe(session);
        const can = USES.flatMap(({ can, grant }) => {
          if (!has(session, grant) || !(mayUse(grant) || mayUse('devices'))) return [];
          return connections.some((connection) => isReady(can, session, connection)) ? [can] : [];
        });
        if (connections.length === 0 || (can.length === 0 && !mayUse('devices'))) return [];
        const { name, id, platform, formFactor } = session.device;
        return {
          name: name || id,
          device_id: id,
          platform,
          form_factor: formFactor,
          can,
          proof_age_ms: Math.min(...connections.map(({ proof_age_ms: age }) => age)),
          stale: connections.every(({ stale }) => stale),
        };
      });
      return { json: JSON.stringify({ devices: rows }) };
    },
  };
}

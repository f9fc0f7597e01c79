import type { Clock } from '../kit/clock.ts';
import { isGranted } from '../sessions/grants.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Connection } from '../socket/channel.ts';

/** The socket of a client that is sent commands. */
export type Link = Pick<Connection, 'id' | 'session' | 'isOpen' | 'sendFrame'>;

/** Creates the check whether a socket may be sent commands now: it is open, and its session has this grant. */
export const createUseCheck =
  (grant: string, { sessions, clock }: { sessions: Sessions; clock: Clock }) =>
  ({ isOpen, session }: Link): boolean =>
    isOpen && sessions.isAlive(session) && isGranted(session.grants, grant, clock.now() / 1000);

/** True if an id belongs to a device of another session. */
export type IsForeign = (id: string, family: string) => boolean;

/**
 * True if a device may use an id that only its report gives (contract 03 §1.2, 07 §2.2). The id must not belong to
 * another session's device, connected or not, nor look like that of a socket.
 */
export function mayClaim(
  id: string,
  { session: { family } }: Link,
  { devices, isForeign }: { devices: Iterable<{ id: string; link: Link }>; isForeign: IsForeign },
): boolean {
  if (id.startsWith('ws-') || isForeign(id, family)) return false;
  for (const { id: other, link } of devices) if (other === id && link.session.family !== family) return false;
  return true;
}

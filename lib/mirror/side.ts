import { createTurns, type Turns } from '../kit/semaphore.ts';
import type { Log } from '../log.ts';
import type { Notifications } from '../notifications/notifications.ts';
import type { Gate } from '../operations/gate.ts';
import type { PhoneMessaging } from '../phone/phone.ts';
import type { Push } from '../push/push.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { Origin } from './frames.ts';
import type { Outbox } from './outbox.ts';
import type { RecordDeps } from './records.ts';

/** Dependencies of both sides. */
export interface MirrorDeps extends Omit<RecordDeps, 'records'> {
  sessions: Sessions;
  phone: PhoneMessaging;
  notifications: Notifications;
  gate: Gate;
  push: Push;
}

/** This side of the mirror, as everything sees it that both sides have. */
export interface Side {
  side: Origin;
  outbox: Outbox;
  log: Log;
  /** True while there is another side. */
  isOn(): boolean;
  isLinked(): boolean;
}

/** Changes of the other side that may wait for the one before. */
const MAX_WAITING = 16;

/** Changes of the other side, such as its key, run one after another. */
export const createSideTurns = (): Turns => createTurns(MAX_WAITING);

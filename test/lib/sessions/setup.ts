import { createStorage, type Storage } from 'unstorage';
import memoryDriver from 'unstorage/drivers/memory';
import type { Policy } from '../../../lib/sessions/grants.ts';
import type { Device, EndReason, Session } from '../../../lib/sessions/session.ts';
import { openSessions, type SessionsDeps } from '../../../lib/sessions/sessions.ts';
import type { SessionRecord } from '../../../storage/schema.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { memoryStores } from '../../support/states.ts';

export const DAY = 86_400;

export const PHONE: Device = {
  name: 'Pixel',
  id: 'device-1',
  model: 'Pixel 10',
  platform: 'Android 17',
  surface: 'android',
  formFactor: 'phone',
};

/** Sessions on a store in memory, with a test clock. */
export async function setup(
  store: Storage<SessionRecord> = createStorage<SessionRecord>({ driver: memoryDriver() }),
  clock = createTestClock(),
  deps: Partial<SessionsDeps> = {},
) {
  const log = createTestLog();
  const sessions = await openSessions({ store, ended: memoryStores().open('ended-sessions'), clock, log, ...deps });
  const ended: [string, EndReason][] = [];
  const reduced: Session[] = [];
  sessions.onEnd((session, reason) => ended.push([session.prefix, reason]));
  sessions.onReduce((session) => reduced.push(session));
  return {
    store,
    clock,
    log,
    sessions,
    ended,
    reduced,
    now: () => clock.now() / 1000,
    pair: (device: Partial<Device> = {}, policy: Policy = {}) =>
      sessions.create({ device: { ...PHONE, ...device }, policy, transportHint: 'ws' }),
    /** The same store, opened by the next process. */
    restart: () => setup(store, clock, deps),
  };
}

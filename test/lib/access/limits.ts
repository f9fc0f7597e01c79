import type { Limiter } from '../../../lib/access/limiter.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';
import { limiterOf, memoryStores } from '../../support/states.ts';

export async function create() {
  const clock = createTestClock();
  const stores = memoryStores();
  const log = createTestLog();
  const limiter = await limiterOf(clock, stores, log);
  const warnings = () => log.lines.filter((line) => line.includes('[WARNING]'));
  return { clock, stores, limiter, warnings, block: (peer: string) => block(limiter, peer) };
}

/** Five failed tokens: five minutes. */
export function block(limiter: Limiter, peer: string): void {
  for (let count = 0; count < 5; count++) limiter.fail(peer, 'session');
}

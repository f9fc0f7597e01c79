import { expect, it, onTestFinished } from 'vitest';
import { createShiftedClock } from '../support/clock.ts';
import { startCompanion } from '../support/companion.ts';
import { startNodeTarget } from '../support/relay.ts';

const DAY = 24 * 3_600_000;

it('a companion keeps its pairing while the clock of its relay is wrong, says why it is away, and comes back (11 §2)', async () => {
  const clock = createShiftedClock();
  const target = await startNodeTarget({ clock });
  onTestFinished(() => target.stop());
  const companion = await startCompanion(target);
  onTestFinished(() => companion.stop());
  await target.restart(async () => {
    clock.offset = 31 * DAY;
  });
  await expect
    .poll(() => companion.link.state)
    .toMatchObject({ name: 'waiting', reason: expect.stringContaining("the clock of the relay's machine") });
  await target.restart(async () => {
    clock.offset = 0;
  });
  companion.link.start();
  await companion.until('online');
});

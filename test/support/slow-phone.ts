import type { Page } from 'playwright-core';
import { median } from './limits.ts';

/**
 * Milliseconds that a slow phone takes for `work`: four times those of the machine on which the bounds of issue 25 were
 * first measured. A share of the speed of whatever machine runs the tests would be another phone on each.
 */
const PHONE = 200;
/**
 * "CPU x4" of issue 25: no machine is slowed down by more. On some, `work` is so fast that the phone above would be a seventh
 * of their speed, while the frames of the app are not (2026-11).
 */
const MAX_RATE = 4;
const ROUNDS = 9;

/** Lets the page run as fast as a slow phone would, until it is closed. */
export async function slowDown(page: Page): Promise<void> {
  const bare = await page.context().newPage();
  const times: number[] = [];
  for (let round = 0; round < ROUNDS; round++) times.push(await bare.evaluate(work));
  await bare.close();
  const rate = Math.min(MAX_RATE, Math.max(1, PHONE / median(times)));
  const devtools = await page.context().newCDPSession(page);
  await devtools.send('Emulation.setCPUThrottlingRate', { rate });
}

/** What a page does with a text: it reads, draws and lays it out. Returns milliseconds. */
function work(): number {
  const begun = performance.now();
  const list = document.createElement('div');
  document.body.append(list);
  for (let at = 0; at < 60; at++) {
    const words = `${'some *text* of an `answer` '.repeat(20)}${at}`.split(/([*`][^*`]+[*`])/);
    const paragraph = document.createElement('p');
    for (const word of words) {
      const part = document.createElement(/^[*`]/.test(word) ? 'em' : 'span');
      part.textContent = word;
      paragraph.append(part);
    }
    list.append(paragraph);
    list.scrollTop = list.offsetHeight;
  }
  list.remove();
  return performance.now() - begun;
}

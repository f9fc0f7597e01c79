import { it } from 'vitest';
import { describeInBrowser } from '../support/browser.ts';
import { playDay } from '../support/day.ts';
import { companionDevice, pageDevice } from '../support/day-devices.ts';

const seed = Number(process.env.DAY_SEED ?? 1);

describeInBrowser('the companion and the web app at home and its edge (issue 28)', ({ open }) => {
  it(`a day with 20 cuts loses and doubles nothing (DAY_SEED=${seed})`, { timeout: 600_000 }, async () => {
    await playDay({
      seed,
      devices: [companionDevice, pageDevice(open)],
      times: {
        'the link is reset': 3,
        'the link is cut': 1,
        'home is out of reach of its devices': 1,
        'home is killed and starts at once': 6,
        'home is off for a while': 1,
        'home is killed between its offer and the acknowledgement': 2,
        'home is killed between a reply and its acknowledgement': 1,
        'home is killed while it pulls an upload': 1,
        'the edge is killed': 1,
        'both are killed': 1,
        'the object of the edge is evicted': 1,
        'the object of the edge is evicted while home is off': 1,
      },
    });
  });
});

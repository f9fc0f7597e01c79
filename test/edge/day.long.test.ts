import { it } from 'vitest';
import { playDay } from '../support/day.ts';
import { linkDevice } from '../support/day-devices.ts';

const seed = Number(process.env.DAY_SEED ?? 1);

it(`a day with 20 cuts loses and doubles nothing (contract 12 §2, §5; DAY_SEED=${seed})`, async () => {
  await playDay({
    seed,
    devices: [linkDevice('phone'), linkDevice('tablet')],
    times: {
      'the link is reset': 1,
      'the link is cut': 1,
      'home is out of reach of its devices': 2,
      'home is killed and starts at once': 2,
      'home is off for a while': 2,
      'home is killed between its offer and the acknowledgement': 3,
      'home is killed between a reply and its acknowledgement': 2,
      'home is killed while it pulls an upload': 3,
      'the edge is killed': 1,
      'both are killed': 1,
      'the object of the edge is evicted': 1,
      'the object of the edge is evicted while home is off': 1,
    },
  });
}, 600_000);

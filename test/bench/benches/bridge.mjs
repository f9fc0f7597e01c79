import { httpRate } from '../support/http.mjs';
import { prepareTaps } from '../support/phone.mjs';

export default {
  name: 'bridge',
  title: 'POST /tap over the bridge, 8 in flight',
  unit: 'requests/s',
  least: 0.5,
  rounds: 5,
  prepare: (stage) =>
    prepareTaps(stage, (port, headers, { method, path, body }) =>
      httpRate(port, path, headers, { method, body, connections: 8 }),
    ),
};

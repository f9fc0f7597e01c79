import { httpRate } from '../support/http.mjs';
import { prepareTaps } from '../support/phone.mjs';

export default {
  name: 'bridge',
  title: 'POST /tap over the bridge, 8 in flight',
  unit: 'requests/s',
  minRatio: 0.5,
  operation: 'request',
  rounds: 5,
  prepare: (stage) =>
    prepareTaps(stage, (server, headers, { method, path, body }) =>
      httpRate(server, path, headers, { method, body, connections: 8 }),
    ),
};

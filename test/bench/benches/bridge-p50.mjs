import { httpLatency } from '../support/http.mjs';
import { prepareTaps } from '../support/phone.mjs';

export default {
  name: 'bridge-p50',
  title: 'POST /tap over the bridge, 1 in flight, p50',
  unit: 'ms',
  max: 1,
  operation: 'request',
  prepare: (stage) =>
    prepareTaps(stage, (server, headers, { path, ...tap }) => httpLatency(server, path, headers, tap)),
};

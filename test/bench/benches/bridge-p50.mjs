import { httpLatency } from '../support/http.mjs';
import { prepareTaps } from '../support/phone.mjs';

export default {
  name: 'bridge-p50',
  title: 'POST /tap over the bridge, median of one',
  unit: 'ms',
  most: 1,
  prepare: (stage) => prepareTaps(stage, (port, headers, { path, ...call }) => httpLatency(port, path, headers, call)),
};

import { httpLatency } from '../support/http.mjs';
import { startPhone, TAP } from '../support/phone.mjs';
import { pairDevices } from '../support/processes.mjs';

export default {
  name: 'bridge-p50',
  title: 'POST /tap over the bridge, median of one',
  unit: 'ms',
  most: 1,
  async prepare(stage) {
    const relay = await stage.relay();
    const [token] = await pairDevices(relay, 1);
    const bare = await stage.bare('bridge');
    const measure = async ({ port }) => {
      const phone = await startPhone(port, token);
      try {
        return await httpLatency(port, TAP.path, { authorization: `Bearer ${token}` }, TAP);
      } finally {
        phone.end();
      }
    };
    return { relay: () => measure(relay), bare: () => measure(bare) };
  },
};

import { httpRate } from '../support/http.mjs';
import { startPhone, TAP } from '../support/phone.mjs';
import { pairDevices } from '../support/processes.mjs';

export default {
  name: 'bridge',
  title: 'POST /tap over the bridge, 8 in flight',
  unit: 'requests/s',
  least: 0.5,
  rounds: 5,
  async prepare(stage) {
    const relay = await stage.relay();
    const [token] = await pairDevices(relay, 1);
    const bare = await stage.bare('bridge');
    const measure = async ({ port }) => {
      const phone = await startPhone(port, token);
      try {
        const { method, body } = TAP;
        return await httpRate(port, TAP.path, { authorization: `Bearer ${token}` }, { method, body, connections: 8 });
      } finally {
        phone.end();
      }
    };
    return { relay: () => measure(relay), bare: () => measure(bare) };
  },
};

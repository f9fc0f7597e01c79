import { httpRate, httpRequest } from '../support/http.mjs';

export default {
  name: 'health',
  title: 'GET /health',
  unit: 'requests/s',
  minRatio: 0.7,
  operation: 'request',
  rounds: 5,
  async prepare(stage) {
    const relay = await stage.relay();
    const { body } = await httpRequest(relay.port, 'GET', '/health');
    const bare = await stage.bare('http', { body });
    return { relay: () => httpRate(relay, '/health'), bare: () => httpRate(bare, '/health') };
  },
};

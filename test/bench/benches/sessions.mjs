import { httpRate, httpRequest } from '../support/http.mjs';
import { pairDevices } from '../support/processes.mjs';

export default {
  name: 'sessions',
  title: 'GET /sessions with a bearer',
  unit: 'requests/s',
  minRatio: 0.5,
  operation: 'request',
  rounds: 5,
  async prepare(stage) {
    const relay = await stage.relay();
    const [token] = await pairDevices(relay, 1);
    const headers = { authorization: `Bearer ${token}` };
    const { status, body } = await httpRequest(relay.port, 'GET', '/sessions', { headers });
    if (status !== 200) throw new Error(`GET /sessions was answered with ${status} ${body}`);
    const bare = await stage.bare('http', { body });
    return {
      relay: () => httpRate(relay, '/sessions', headers),
      bare: () => httpRate(bare, '/sessions', headers),
    };
  },
};

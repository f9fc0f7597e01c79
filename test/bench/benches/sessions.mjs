import { join } from 'node:path';
import { httpRate, httpRequest } from '../support/http.mjs';
import { pairDevices } from '../support/processes.mjs';

/** A row that compares with a bare server: one on `node:http`, or one of the packages that the relay is built on. */
const beside = (bareName, row) => ({
  ...row,
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
    const bare = await stage.bare(bareName, { body, state: join(await stage.home(), 'state.db') });
    return {
      relay: () => httpRate(relay, '/sessions', headers),
      bare: () => httpRate(bare, '/sessions', headers),
    };
  },
});

export default [
  beside('http', { name: 'sessions', title: 'GET /sessions with a bearer' }),
  beside('card', { name: 'sessions-card', title: "  beside the card's packages alone" }),
];

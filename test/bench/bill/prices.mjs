/**
 * THE table of prices, in US dollars: Cloudflare's "Workers Paid" plan with Durable Objects on SQLite, as its public price
 * pages ("Workers: pricing", "Durable Objects: pricing", "R2: pricing") gave them. Check them before you rely on a sum.
 */
export const PRICES = {
  source: 'the price pages of Cloudflare for Workers, Durable Objects and R2, plan "Workers Paid"',
  /** As they were known then; this program asks nobody. */
  date: '2026-01',
  /** Dollars a month for an account. */
  plan: 5,
  /** Incoming WebSocket messages that count as one request of an object. */
  messagesPerRequest: 20,
  /** GB of memory that a second of an object is billed with. */
  memory: 0.128,
  /** For each quantity of a month: what the plan includes, and dollars for `unit` of it beyond. */
  items: {
    workerRequests: { included: 10e6, unit: 1e6, price: 0.3 },
    workerCpuMs: { included: 30e6, unit: 1e6, price: 0.02 },
    objectRequests: { included: 1e6, unit: 1e6, price: 0.15 },
    gbSeconds: { included: 400e3, unit: 1e6, price: 12.5 },
    rowsRead: { included: 25e9, unit: 1e6, price: 0.001 },
    rowsWritten: { included: 50e6, unit: 1e6, price: 1 },
    storedGb: { included: 5, unit: 1, price: 0.2 },
  },
};

/** Days of the month that is billed. */
const DAYS = 30;

/**
 * The bill of a month for `homes` of one account, in dollars: a sum for each item, and all of them with the plan.
 * @param day quantities of one home on one day, as `countDay` gives them; `storedBytes` is what it keeps
 */
export function billOf(day, homes, { pingsAreCharged = false } = {}) {
  const month = (quantity) => quantity * DAYS * homes;
  const messages = day.messages + (pingsAreCharged ? day.pings : 0);
  const quantities = {
    workerRequests: month(day.workerRequests),
    workerCpuMs: month(day.cpuMs),
    objectRequests: month(day.requests + day.alarms + messages / PRICES.messagesPerRequest),
    gbSeconds: month((day.awakeMs / 1000) * PRICES.memory),
    rowsRead: month(day.rowsRead),
    rowsWritten: month(day.rowsWritten),
    storedGb: (day.storedBytes * homes) / 1e9,
  };
  const sums = Object.entries(PRICES.items).map(([name, { included, unit, price }]) => [
    name,
    (Math.max(0, quantities[name] - included) / unit) * price,
  ]);
  const total = sums.reduce((sum, [, dollars]) => sum + dollars, PRICES.plan);
  return { homes, quantities, dollars: Object.fromEntries(sums), total };
}

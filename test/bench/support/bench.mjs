/**
 * Each file in `benches/` exports as its default:
 *
 * - `name`: selects it on the command line; `title`: its line in the table; `unit`: of the measured value
 * - `minRatio`: lower bound of `relay / bare`, for rates; or `maxRatio`: its upper bound, for times beside a bare one;
 *   or `max`: upper bound of `relay` itself, for times and sizes
 * - `operation`: what server CPU is counted per ("request"); only for benches whose measurements carry `cpu`
 * - `rounds`: how often each side is measured (3); the medians count
 * - `prepare(stage)`: starts the servers and returns `{ relay, bare }`, two functions that measure once and return
 *   a number or `{ value, cpu }`
 */

/**
 * Runs a bench. Relay, baseline and former head (with `formerStage`) take turns, so that whatever else happens on the
 * machine hits all of them.
 */
export async function runBench({ prepare, rounds: usual = 3, ...bench }, { stage, formerStage, rounds = usual }) {
  const sides = await prepare(stage);
  if (formerStage) sides.former = (await prepare(formerStage)).relay;
  const measured = { relay: [], bare: [], former: [] };
  for (let round = 0; round < rounds; round++) {
    for (const [side, measure] of Object.entries(sides)) measured[side].push(await measure());
  }
  const { relay, bare, ratio, ...rest } = compare(measured, plainValue);
  const {
    minRatio = Number.NEGATIVE_INFINITY,
    maxRatio = Number.POSITIVE_INFINITY,
    max = Number.POSITIVE_INFINITY,
  } = bench;
  const ok = ratio >= minRatio && ratio <= maxRatio && relay <= max;
  const cpu = bench.operation && compare(measured, ({ cpu }) => cpu);
  return { ...bench, relay, bare, ratio, ...rest, ok, ...(cpu && { cpu }) };
}

const plainValue = (measurement) => (typeof measurement === 'number' ? measurement : measurement.value);

/** Medians of each side and of the ratios per round, which cancel out what a busy machine does to a round. */
function compare({ relay, bare, former }, figure) {
  const rounds = { relay: relay.map(figure), bare: bare.map(figure), former: former.map(figure) };
  const ratioTo = (side) => median(rounds.relay.map((value, round) => value / rounds[side][round]));
  const figures = { relay: median(rounds.relay), bare: median(rounds.bare), ratio: ratioTo('bare') };
  if (former.length === 0) return { ...figures, rounds: { relay: rounds.relay, bare: rounds.bare } };
  return { ...figures, former: median(rounds.former), formerRatio: ratioTo('former'), rounds };
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

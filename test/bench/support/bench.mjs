/**
 * What a file of `benches/` exports by default:
 *
 * - `name`: selects it on the command line; `title`: its line in the table; `unit`: of `relay` and `bare`
 * - `least`: bound of `relay / bare`, for rates; or `most`: bound of `relay` itself, for times and sizes
 * - `rounds`: how often it is measured (3); the median counts
 * - `prepare(stage)`: starts what it needs and returns `{ relay, bare }`, two functions that measure once and return
 *   a number
 */

/** Runs a bench. Relay and baseline take turns, so that what else happens on the machine hits both. */
export async function runBench({ name, title, unit, least, most, rounds = 3, prepare }, stage) {
  const sides = await prepare(stage);
  const relay = [];
  const bare = [];
  for (let round = 0; round < rounds; round++) {
    relay.push(await sides.relay());
    bare.push(await sides.bare());
  }
  const ratio = median(relay.map((value, round) => value / bare[round]));
  const figures = { relay: median(relay), bare: median(bare), ratio };
  const ok = least === undefined ? figures.relay <= most : ratio >= least;
  return {
    name,
    title,
    unit,
    ...figures,
    ...(least === undefined ? { most } : { least }),
    ok,
    rounds: { relay, bare },
  };
}

export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Zero crossings of the filter on each side: steep enough for speech, with a delay of a millisecond. */
const CROSSINGS = 8;
/** Entries of the filter's table for each input sample. */
const DENSITY = 256;
/** Leaves room for the slope of the filter below the highest frequency of the result. */
const MARGIN = 0.92;

/**
 * Resamples a stream of mono samples from one rate to a lower one (hertz), chunk by chunk. Frequencies above the lower
 * rate's limit are filtered out, since hisses would otherwise alias to tones and be misheard.
 */
export function createResampler(from: number, to: number): (input: Float32Array) => Float32Array {
  if (from === to) return (input) => input;
  const step = from / to;
  const cutoff = Math.min(1, to / from) * MARGIN;
  const reach = Math.ceil(CROSSINGS / cutoff);
  const table = filterOf(cutoff, reach);
  /** The end of the input so far, which later results need. */
  let held = new Float32Array(reach);
  /** Position of the next result in `held` and the following input. */
  let position = reach;

  return (input) => {
    const all = new Float32Array(held.length + input.length);
    all.set(held);
    all.set(input, held.length);
    const results = new Float32Array(Math.max(0, Math.ceil((all.length - reach - position) / step)));
    for (let index = 0; index < results.length; index++, position += step) {
      let sum = 0;
      const last = Math.floor(position) + reach;
      for (let at = Math.ceil(position) - reach; at <= last; at++) {
        sum += (all[at] ?? 0) * (table[Math.round(Math.abs(at - position) * DENSITY)] ?? 0);
      }
      results[index] = sum;
    }
    const done = Math.max(0, Math.floor(position) - reach);
    held = all.slice(done);
    position -= done;
    return results;
  };
}

/** One side of a sinc in a Hann window, whose sum over whole samples is one. */
function filterOf(cutoff: number, reach: number): Float32Array {
  const side = Float32Array.from({ length: reach * DENSITY + 1 }, (_, index) => {
    const at = index / DENSITY;
    const angle = Math.PI * at * cutoff;
    const sinc = at === 0 ? 1 : Math.sin(angle) / angle;
    return cutoff * sinc * (0.5 + 0.5 * Math.cos((Math.PI * at) / reach));
  });
  let sum = side[0] ?? 0;
  for (let at = 1; at <= reach; at++) sum += 2 * (side[at * DENSITY] ?? 0);
  return side.map((value) => value / sum);
}

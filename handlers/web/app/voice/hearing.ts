/**
 * Measurements of the speech detector per frame: its loudness in the band of speech, the loudness of the room without
 * speech, and whether it is voiced. Nothing here allocates while it runs.
 */

/** A second-order filter (Butterworth) that changes samples in place. */
export function createFilter(kind: 'low' | 'high', hertz: number, rate: number): (samples: Float32Array) => void {
  const angle = (2 * Math.PI * hertz) / rate;
  const cosine = Math.cos(angle);
  const slope = Math.sin(angle) * Math.SQRT1_2;
  const scale = 1 + slope;
  const outer = (kind === 'low' ? 1 - cosine : 1 + cosine) / 2 / scale;
  const middle = kind === 'low' ? 2 * outer : -2 * outer;
  const first = (-2 * cosine) / scale;
  const second = (1 - slope) / scale;
  let [x1, x2, y1, y2] = [0, 0, 0, 0];
  return (samples) => {
    for (let at = 0; at < samples.length; at++) {
      const x = samples[at] ?? 0;
      const y = outer * (x + x2) + middle * x1 - first * y1 - second * y2;
      x2 = x1;
      x1 = x;
      y2 = y1;
      y1 = y;
      samples[at] = y;
    }
  };
}

/** Parts of the window in which the quietest moment is searched. */
const ROOM_PARTS = 8;
/** Ratio of a steady noise to its quietest moment. */
const ROOM_BIAS = 1.15;
/** Weight of a new frame in the smoothed loudness. */
const ROOM_SMOOTHING = 0.4;

/**
 * Tracks the loudness of the room by its quietest moment in the last frames (minimum statistics), since even a fast speaker
 * is quiet between two words.
 */
export function createRoom(windowFrames: number): (loudness: number) => number {
  const part = Math.max(1, Math.round(windowFrames / ROOM_PARTS));
  const minima = new Float32Array(ROOM_PARTS).fill(Number.POSITIVE_INFINITY);
  let lowest = Number.POSITIVE_INFINITY;
  let smoothed = 0;
  let frames = 0;
  return (loudness) => {
    smoothed += (loudness - smoothed) * ROOM_SMOOTHING;
    lowest = Math.min(lowest, smoothed);
    const room = minima.reduce((least, one) => Math.min(least, one), lowest);
    if (++frames % part === 0) {
      minima[(frames / part) % ROOM_PARTS] = lowest;
      lowest = Number.POSITIVE_INFINITY;
    }
    return room * ROOM_BIAS;
  };
}

/** Pitches of voices in hertz. */
const LOWEST_PITCH = 75;
const HIGHEST_PITCH = 400;
/** Hertz above which no signal is needed to find a pitch, and the sample rate that suffices for it. */
const PITCH_BAND = 900;
const PITCH_RATE = 4000;
/** Seconds that are compared with the preceding period. Longer windows miss a steeply falling pitch. */
const PITCH_WINDOW = 0.03;
const SILENCE = 1e-9;

/** Maximum similarity of a frame to itself one period earlier, over all pitches: 0 for noise, 1 for a clear voice. */
export function createVoicing(rate: number, frameLength: number): (frame: Float32Array) => number {
  const step = Math.max(1, Math.round(rate / PITCH_RATE));
  const pitchRate = rate / step;
  const filter = createFilter('low', PITCH_BAND, rate);
  const shortest = Math.floor(pitchRate / HIGHEST_PITCH);
  const longest = Math.ceil(pitchRate / LOWEST_PITCH);
  const recent = new Float32Array(Math.round(pitchRate * PITCH_WINDOW) + longest);
  const filtered = new Float32Array(frameLength);
  const fresh = Math.ceil(frameLength / step);
  const end = recent.length;

  return (frame) => {
    filtered.set(frame);
    filter(filtered);
    recent.copyWithin(0, fresh);
    for (let from = 0, to = end - fresh; to < end; from += step, to++) recent[to] = filtered[from] ?? 0;
    let own = SILENCE;
    for (let at = longest; at < end; at++) own += (recent[at] ?? 0) ** 2;
    let best = 0;
    for (let lag = shortest; lag <= longest; lag++) {
      let product = 0;
      let earlier = SILENCE;
      for (let at = longest; at < end; at++) {
        const before = recent[at - lag] ?? 0;
        product += (recent[at] ?? 0) * before;
        earlier += before * before;
      }
      best = Math.max(best, product / Math.sqrt(own * earlier));
    }
    return best;
  };
}

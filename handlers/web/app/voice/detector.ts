import { createFilter, createRoom, createVoicing } from './hearing.ts';
import { FRAME } from './speech.ts';

/**
 * Change in a frame. `noticed`: somebody may be speaking. `began`: they are, and their utterance starts. `doubted`: the
 * noticed sound was not speech. `ended`: the utterance is over.
 */
export type Detection = 'noticed' | 'began' | 'doubted' | 'ended' | null;

/** Milliseconds of loud and of voiced sound within a time span, as a condition. */
interface Evidence {
  within: number;
  loud: number;
  voiced: number;
}

/** Possible speech: enough to make the agent quieter. */
const NOTICES: Evidence = { within: 160, loud: 100, voiced: 40 };
/** Speech, while nobody else is audible. */
const BEGINS: Evidence = { within: 240, loud: 100, voiced: 60 };
/**
 * Speech, while the agent is audible. A cough lasts some 300 ms and is hardly voiced, so speech must last longer, or be
 * voiced throughout like a short word, or last so long that a small voiced share suffices.
 */
const INTERRUPTS: readonly Evidence[] = [
  { within: 800, loud: 340, voiced: 180 },
  { within: 500, loud: 220, voiced: 220 },
  { within: 800, loud: 440, voiced: 120 },
];
/** The sound continues, so it was not a click. */
const GOES_ON: Evidence = { within: 160, loud: 60, voiced: 0 };
const LONGEST_EVIDENCE = 800;

/** Milliseconds of silence that end an utterance; a pause of one second belongs to it. */
const ENDS = 1300;
/** Milliseconds after which it ends even without silence, as beside a radio. */
const LONGEST = 60_000;
/**
 * Milliseconds after making the agent quieter before anything counts as an interruption, by which time its echo has faded.
 */
const PROVES = 160;
/** Milliseconds of silence, and of waiting, after which a notice is withdrawn. */
const DOUBTS = 400;
const LONGEST_DOUBT = 1600;
/** Milliseconds between two notices that belong to the same utterance. */
const TOGETHER = 2000;

/** Minimum ratio of speech to the loudness of the room, and its minimum root mean square. */
const ABOVE_ROOM = 1.7;
const MIN_LOUDNESS = 0.004;
/** Milliseconds within which every speaker pauses for a moment. */
const ROOM_WINDOW = 3000;
/** Similarity of neighbouring periods above which a frame is voiced. */
const VOICED = 0.6;
/** Hertz of the band in which speech is loud. */
const BAND = [200, 3500] as const;

/**
 * Share of the loudspeaker's sound in the microphone: the initial value, and the bounds for learning. Every `ECHO_DELAY` it
 * falls slightly if the agent was heard less than that; it rises when a notice was withdrawn.
 */
const ECHO = 0.1;
const MIN_ECHO = 0.02;
const MAX_ECHO = 0.7;
const ECHO_MARGIN = 1.3;
const ECHO_FALLS = 0.8;
const ECHO_RISES = 1.5;
/** Maximum delay of an echo in milliseconds. */
const ECHO_DELAY = 400;
/** Played root mean square above which the echo can be measured. */
const MEASURABLE = 0.02;

export type Detector = ReturnType<typeof createDetector>;

/**
 * Detects in the frames of a microphone of `rate` hertz when somebody begins to speak, and when they have finished. While
 * the agent is audible, possible speech is noticed first, so that the agent can be made quieter; it counts as speech if it
 * then continues and is voiced.
 */
export function createDetector(rate: number) {
  const framesOf = (ms: number): number => Math.round((ms * rate) / (FRAME * 1000));
  const inFrames = ({ within, loud, voiced }: Evidence): Evidence => ({
    within: framesOf(within),
    loud: framesOf(loud),
    voiced: framesOf(voiced),
  });
  const [notices, begins, goesOn] = [inFrames(NOTICES), inFrames(BEGINS), inFrames(GOES_ON)];
  const interrupts = INTERRUPTS.map(inFrames);
  const filters = [createFilter('high', BAND[0], rate), createFilter('low', Math.min(BAND[1], rate * 0.45), rate)];
  const voicingOf = createVoicing(rate, FRAME);
  const roomOf = createRoom(framesOf(ROOM_WINDOW));
  const band = new Float32Array(FRAME);
  const memory = framesOf(LONGEST_EVIDENCE);
  const loudFrames = new Uint8Array(memory);
  const voicedFrames = new Uint8Array(memory);
  const played = new Float32Array(framesOf(ECHO_DELAY));
  let echo = ECHO;
  let strongestEcho = 0;
  let echoFrames = 0;
  let now = 0;
  let noticedAt = Number.NEGATIVE_INFINITY;
  let state: 'quiet' | 'noticed' | 'speaking' = 'quiet';
  /** Frames since the last sound, and since the state began. */
  let quiet = 0;
  let length = 0;

  function sumOf(frames: Uint8Array, within: number): number {
    let sum = 0;
    for (let back = 0; back < within; back++) sum += frames[(now + memory - back) % memory] ?? 0;
    return sum;
  }

  const has = ({ within, loud, voiced }: Evidence): boolean =>
    sumOf(loudFrames, within) >= loud && (voiced === 0 || sumOf(voicedFrames, within) >= voiced);

  function enter(next: typeof state): void {
    [state, length, quiet] = [next, 0, 0];
  }

  function forget(): void {
    loudFrames.fill(0);
    voicedFrames.fill(0);
  }

  /** `rise`: factor by which the echo may be louder than estimated. */
  function learnEcho(rise: number): void {
    const seen = Math.min(MAX_ECHO, Math.max(MIN_ECHO, strongestEcho * ECHO_MARGIN));
    echo = Math.min(echo * rise, Math.max(seen, echo * ECHO_FALLS));
    [strongestEcho, echoFrames] = [0, 0];
  }

  /** Measures a frame, and remembers whether it is loud and voiced. */
  function measure(frame: Int16Array, playing: number): void {
    for (let at = 0; at < FRAME; at++) band[at] = (frame[at] ?? 0) / 32_768;
    for (const filter of filters) filter(band);
    let energy = 0;
    for (const sample of band) energy += sample * sample;
    const loudness = Math.sqrt(energy / FRAME);
    const aboveRoom = roomOf(loudness) * ABOVE_ROOM;
    played[now % played.length] = playing;
    const loudest = played.reduce((most, one) => Math.max(most, one), 0);
    const isLoud = loudness > Math.max(MIN_LOUDNESS, aboveRoom, loudest * echo);
    const voicing = voicingOf(band);
    loudFrames[now % memory] = isLoud ? 1 : 0;
    voicedFrames[now % memory] = isLoud && voicing > VOICED ? 1 : 0;
    quiet = isLoud && has(goesOn) ? 0 : quiet + 1;
    if (loudest < MEASURABLE) return;
    if (loudness > aboveRoom) strongestEcho = Math.max(strongestEcho, loudness / loudest);
    if (state === 'quiet' && ++echoFrames >= played.length) learnEcho(1);
  }

  function isBegun(isAgentHeard: boolean): boolean {
    if (!isAgentHeard) return has(begins);
    return state === 'noticed' && length >= framesOf(PROVES) && has(goesOn) && interrupts.some(has);
  }

  return {
    /**
     * Processes a frame. `playing`: root mean square of the present playback, as if the agent were not made quieter; null
     * while the agent is silent.
     */
    hear(frame: Int16Array, playing: number | null): Detection {
      now++;
      length++;
      measure(frame, playing ?? 0);
      if (state === 'speaking') {
        if (quiet < framesOf(ENDS) && length < framesOf(LONGEST)) return null;
        enter('quiet');
        forget();
        return 'ended';
      }
      if (isBegun(playing !== null)) {
        if (now - noticedAt > framesOf(TOGETHER)) noticedAt = now;
        enter('speaking');
        return 'began';
      }
      if (state === 'quiet') {
        if (!has(notices)) return null;
        if (now - noticedAt > framesOf(TOGETHER)) noticedAt = now;
        enter('noticed');
        return 'noticed';
      }
      if (quiet < framesOf(DOUBTS) && length < framesOf(LONGEST_DOUBT)) return null;
      enter('quiet');
      forget();
      learnEcho(ECHO_RISES);
      return 'doubted';
    },

    /** Frames since the notice of the utterance that has just begun. */
    sinceNoticed: (): number => now - noticedAt,

    /** Starts over; the estimates of room and echo stay. */
    reset(): void {
      enter('quiet');
      forget();
      noticedAt = Number.NEGATIVE_INFINITY;
    },
  };
}

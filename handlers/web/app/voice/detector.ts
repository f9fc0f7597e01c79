import { createFilter, createRoom, createVoicing } from './hearing.ts';
import { FRAME } from './speech.ts';

/**
 * Changes made by a frame. `noticed`: somebody may be speaking. `began`: they are, and their request begins. `doubted`:
 * what was noticed was no speech. `ended`: the request is over.
 */
export type Heard = 'noticed' | 'began' | 'doubted' | 'ended' | null;

/** Milliseconds of loud and of voiced sound within the last time that prove something. */
interface Evidence {
  within: number;
  loud: number;
  voiced: number;
}

/** Perhaps speech: enough to make the agent quieter. */
const NOTICES: Evidence = { within: 160, loud: 100, voiced: 40 };
/** Speech, while nobody else is heard. */
const BEGINS: Evidence = { within: 240, loud: 100, voiced: 60 };
/**
 * Speech, while the agent is heard. A cough lasts some 300 ms and is hardly voiced, so it takes longer, or is voiced all
 * the time as a short word is, or lasts so long that a little of it may be voiced.
 */
const INTERRUPTS: readonly Evidence[] = [
  { within: 800, loud: 340, voiced: 180 },
  { within: 500, loud: 220, voiced: 220 },
  { within: 800, loud: 440, voiced: 120 },
];
/** Something goes on, and was not a click. */
const GOES_ON: Evidence = { within: 160, loud: 60, voiced: 0 };
const LONGEST_EVIDENCE = 800;

/** Milliseconds of silence that end a request: a pause of one second is part of it. */
const ENDS = 1300;
/** Milliseconds after which it ends although it is not quiet, as beside a radio. */
const LONGEST = 60_000;
/**
 * Milliseconds that the quieter agent leaves before anything counts as interrupting it: what was its echo has gone by
 * then.
 */
const PROVES = 160;
/** Milliseconds of silence, and of waiting, after which what was noticed is doubted. */
const DOUBTS = 400;
const PATIENCE = 1600;
/** Milliseconds between two notices that belong to one request. */
const TOGETHER = 2000;

/** Speech is so many times louder than the room, and has at least this root mean square. */
const ABOVE_ROOM = 1.7;
const MIN_LOUDNESS = 0.004;
/** Milliseconds in which everybody who speaks is quiet for a moment. */
const ROOM_WINDOW = 3000;
/** Similarity of neighbouring periods above which a frame is voiced. */
const VOICED = 0.6;
/** Hertz of the band in which speech is loud. */
const BAND = [200, 3500] as const;

/**
 * Part of the loudspeaker's sound that the microphone hears: at first, and the bounds of what is learned.
 * Every `ECHO_DELAY` it falls a little when the agent was heard less than that; it rises when something was doubted.
 */
const ECHO = 0.1;
const MIN_ECHO = 0.02;
const MAX_ECHO = 0.7;
const ECHO_MARGIN = 1.3;
const ECHO_FALLS = 0.8;
const ECHO_RISES = 1.5;
/** Milliseconds that an echo comes late at most. */
const ECHO_DELAY = 400;
/** Played root mean square from which the echo can be measured. */
const MEASURABLE = 0.02;

export type Detector = ReturnType<typeof createDetector>;

/**
 * Tells from the frames of a microphone of `rate` hertz when somebody begins to speak, and when they are done. While the
 * agent is heard, what may be speech is noticed first, so that the agent can be made quieter; it is speech when it then
 * goes on and is voiced as a voice is.
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
  /** Frames since something went on, and since the state began. */
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

  /** `rise`: factor by which the echo may be louder than it was thought to be. */
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
     * Takes a frame. `playing`: root mean square of what is played at the moment, as it would be if the agent were not
     * made quieter; null while there is nothing to hear of the agent.
     */
    hear(frame: Int16Array, playing: number | null): Heard {
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
      if (quiet < framesOf(DOUBTS) && length < framesOf(PATIENCE)) return null;
      enter('quiet');
      forget();
      learnEcho(ECHO_RISES);
      return 'doubted';
    },

    /** Frames since the request was noticed that has just begun. */
    sinceNoticed: (): number => now - noticedAt,

    /** Starts over; what it knows of the room and of the echo stays. */
    reset(): void {
      enter('quiet');
      forget();
      noticedAt = Number.NEGATIVE_INFINITY;
    },
  };
}

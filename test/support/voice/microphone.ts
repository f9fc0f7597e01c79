import { createDetector, type Detection } from '../../../handlers/web/app/voice/detector.ts';
import { FRAME, SPEECH_RATE } from '../../../handlers/web/app/voice/speech.ts';
import { seeded } from '../flaky-proxy.ts';

/** Samples of mono sound, -1 to 1. */
export type Sound = Float32Array;

/** Raw 16-bit PCM as samples. */
export const samplesOf = (pcm: Buffer): Sound =>
  Float32Array.from({ length: pcm.length >> 1 }, (_, at) => pcm.readInt16LE(at * 2) / 32_768);

/** The same the other way round. */
export function pcmOf(sound: Sound): Uint8Array {
  const pcm = Buffer.alloc(sound.length * 2);
  sound.forEach((sample, at) => {
    pcm.writeInt16LE(Math.round(Math.max(-1, Math.min(1, sample)) * 32_767), at * 2);
  });
  return pcm;
}

export const silence = (seconds: number, rate = SPEECH_RATE): Sound => new Float32Array(Math.round(seconds * rate));

export function joined(...sounds: readonly Sound[]): Sound {
  const all = new Float32Array(sounds.reduce((length, sound) => length + sound.length, 0));
  let at = 0;
  for (const sound of sounds) {
    all.set(sound, at);
    at += sound.length;
  }
  return all;
}

/** Without the silence around what is said. */
export function trimmed(sound: Sound): Sound {
  const isLoud = (sample: number) => Math.abs(sample) > 0.02;
  return sound.slice(sound.findIndex(isLoud), sound.findLastIndex(isLoud) + 1);
}

const powerOf = (sound: Sound): number =>
  Math.sqrt(sound.reduce((sum, sample) => sum + sample * sample, 0) / sound.length);

/** Normally distributed samples with a deviation of 1 (Box and Muller). */
export function noiseOf(seed: number): () => number {
  const random = seeded(seed);
  return () => Math.sqrt(-2 * Math.log(1 - random())) * Math.cos(2 * Math.PI * random());
}

/** A vowel-like sound of this pitch in hertz, in syllables of 0.25 seconds. */
export function vowels(pitch: number, seconds: number): Sound {
  return silence(seconds).map((_, at) => {
    const time = at / SPEECH_RATE;
    const syllable = Math.max(0, Math.sin(2 * Math.PI * 4 * time)) ** 0.5;
    let sample = 0;
    for (let harmonic = 1; harmonic <= 8; harmonic++)
      sample += Math.sin(2 * Math.PI * pitch * harmonic * time) / harmonic;
    return 0.1 * syllable * sample;
  });
}

/**
 * A cough of 300 ms and a root mean square of 0.2: a burst of coloured noise that decays, with some voice near the end in
 * every other one.
 */
export function cough(seed: number): Sound {
  const random = seeded(seed);
  const noise = noiseOf(seed);
  const [centre, quality, pitch] = [400 + random() * 1500, 0.7 + random() * 2, 110 + random() * 150];
  const voice = random() < 0.5 ? random() * 0.5 : 0;
  const angle = (2 * Math.PI * centre) / SPEECH_RATE;
  const width = Math.sin(angle) / (2 * quality);
  let [x1, x2, y1, y2] = [0, 0, 0, 0];
  const sound = silence(0.3).map((_, at, all) => {
    const time = at / all.length;
    const share = time > 0.4 ? voice : 0;
    const x = noise() * (1 - share) + (((pitch * at) / SPEECH_RATE) % 1) * 4 * share;
    const y = (width * (x - x2) + 2 * Math.cos(angle) * y1 - (1 - width) * y2) / (1 + width);
    [x2, x1, y2, y1] = [x1, x, y1, y];
    const edges = Math.min(1, time / 0.05, (1 - time) / 0.1);
    return y * edges * Math.exp(-3 * Math.max(0, time - 0.35));
  });
  const power = powerOf(sound);
  return sound.map((sample) => (sample * 0.2) / power);
}

interface Room {
  /** What the person says, from this second on, at this level. */
  said?: Sound;
  from?: number;
  level?: number;
  seconds: number;
  /** What the agent says over and over, and how much of it the microphone still hears, in decibels. */
  agent?: Sound;
  echo?: number;
  /** Root mean square of the white noise of the room. */
  noise?: number;
  seed?: number;
}

/** Seconds that the loudspeaker's sound takes to the microphone, and how loud the page leaves the agent meanwhile. */
const ECHO_LATE = 0.1;
const DUCKED = 0.2;

/** What the page's detector says of a room, with the seconds since the person began. It stops at an interruption. */
export function listen({ said, from = 0, level = 1, seconds, agent, echo = -25, noise = 0.01, seed = 1 }: Room) {
  const detector = createDetector(SPEECH_RATE);
  const noiseSample = noiseOf(seed);
  const played = silence(seconds);
  const [start, late] = [Math.round(from * SPEECH_RATE), Math.round(ECHO_LATE * SPEECH_RATE)];
  const changes: { change: Exclude<Detection, null>; at: number }[] = [];
  let gain = 1;
  for (let begin = 0; begin + FRAME <= played.length; begin += FRAME) {
    const spoken = new Float32Array(FRAME).map((_, at) => agent?.[(begin + at) % agent.length] ?? 0);
    played.set(
      spoken.map((sample) => sample * gain),
      begin,
    );
    const frame = new Int16Array(FRAME).map((_, at) => {
      const own = said?.[begin + at - start] ?? 0;
      const leaked = (played[begin + at - late] ?? 0) * 10 ** (echo / 20);
      return Math.max(-1, Math.min(1, own * level + leaked + noiseSample() * noise)) * 32_767;
    });
    const change = detector.hear(frame, agent ? powerOf(spoken) : null);
    if (change === null) continue;
    changes.push({ change, at: (begin + FRAME) / SPEECH_RATE - from });
    gain = change === 'noticed' ? DUCKED : 1;
    if (change === 'began' && agent) break;
  }
  return changes;
}

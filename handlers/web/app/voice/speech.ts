/** Sample rate of speech sent to the relay (contract 06 §9). A slower microphone sends its own rate. */
export const SPEECH_RATE = 16_000;
/** Samples per frame of the microphone: 20 milliseconds. */
export const FRAME = 320;
/** Name of the processor that captures the microphone. */
export const PROCESSOR = 'svc-microphone';

const FULL_SCALE = 32_768;

/** Root mean square of 16-bit samples, 0 to 1. */
export function loudnessOf(samples: Int16Array): number {
  const squares = samples.reduce((sum, sample) => sum + sample * sample, 0);
  return Math.sqrt(squares / Math.max(samples.length, 1)) / FULL_SCALE;
}

/** Root mean square that fills the meter, since speech is quiet. */
const LOUD = 0.25;

/** Meter reading for a root mean square, 0 to 1. */
export const meterOf = (loudness: number): number => Math.min(1, loudness / LOUD);

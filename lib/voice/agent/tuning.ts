import type { Mapping } from '../../kit/yaml.ts';
import { numberOf, textOf } from '../section.ts';

/** Optional settings of a realtime provider, from what files nest for it. Each is sent only when it is set. */
export interface Tuning {
  /** Distance of the microphone: `near_field` for a headset or a phone, `far_field` for a room. */
  noiseReduction?: string;
  /** Language of transcripts, such as `de`. */
  transcriptionLanguage?: string;
  /** Speed of speech: 0.25 to 1.5. */
  speed?: number;
  /** Truncation of a long conversation: `auto`, `disabled`, or the share (0 to 1) of it that is kept. */
  truncation?: 'auto' | 'disabled' | number;
}

const MIN_SPEED = 0.25;
const MAX_SPEED = 1.5;
const LANGUAGE = /^[a-z]{2,3}(?:-[A-Za-z0-9]{2,8})?$/;

const matching = (value: unknown, pattern: RegExp): string | undefined => {
  const word = textOf(value);
  return word !== undefined && pattern.test(word) ? word : undefined;
};

const between = (value: unknown, min: number, max: number): number | undefined => {
  const number = numberOf(value);
  return number !== undefined && number >= min && number <= max ? number : undefined;
};

const READERS: { readonly [K in keyof Required<Tuning>]: [name: string, read: (value: unknown) => Tuning[K]] } = {
  noiseReduction: ['noise_reduction', (value) => matching(value, /^(?:near|far)_field$/)],
  transcriptionLanguage: ['transcription_language', (value) => matching(value, LANGUAGE)],
  speed: ['speed', (value) => between(value, MIN_SPEED, MAX_SPEED)],
  truncation: [
    'truncation',
    (value) => {
      const word = textOf(value);
      return word === 'auto' || word === 'disabled' ? word : between(value, Number.MIN_VALUE, 1);
    },
  ],
};

/** The settings in sections, the last one first. Invalid values are ignored and reported by name to `onInvalid`. */
export function tuningIn(levels: readonly Mapping[], onInvalid: (name: string) => void): Tuning {
  const tuning: Record<string, unknown> = {};
  for (const level of levels) {
    for (const [key, [name, read]] of Object.entries(READERS)) {
      const given = level[name];
      if (given === undefined || given === null) continue;
      const value = read(given);
      if (value === undefined) onInvalid(name);
      else tuning[key] = value;
    }
  }
  return tuning as Tuning;
}

import type { Mapping } from '../../kit/yaml.ts';

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

type Read<K extends keyof Tuning> = (value: unknown) => Tuning[K];

const numberIn = (value: unknown): number =>
  typeof value === 'boolean'
    ? Number.NaN
    : typeof value === 'string'
      ? Number(value.trim() || Number.NaN)
      : Number(value);
const wordIn = (value: unknown): string => String(value).trim();

const READERS: { readonly [K in keyof Required<Tuning>]: [name: string, read: Read<K>] } = {
  noiseReduction: [
    'noise_reduction',
    (value) => (/^(?:near|far)_field$/.test(wordIn(value)) ? wordIn(value) : undefined),
  ],
  transcriptionLanguage: [
    'transcription_language',
    (value) => (LANGUAGE.test(wordIn(value)) ? wordIn(value) : undefined),
  ],
  speed: [
    'speed',
    (value) => (numberIn(value) >= MIN_SPEED && numberIn(value) <= MAX_SPEED ? numberIn(value) : undefined),
  ],
  truncation: [
    'truncation',
    (value) => {
      const word = wordIn(value);
      if (word === 'auto' || word === 'disabled') return word;
      const share = numberIn(value);
      return share > 0 && share <= 1 ? share : undefined;
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

import { isObject, type JsonObject } from '../../kit/json.ts';

/** A conversation's usage in the provider's own counts: tokens, and seconds of transcription. */
export interface Usage {
  input_tokens: number;
  output_tokens: number;
  input_audio_tokens: number;
  output_audio_tokens: number;
  /** Part of the input that the provider had in its cache. */
  cached_tokens: number;
  /** Seconds of audio whose transcription is charged by time. */
  transcribed_seconds: number;
}

export const NO_USAGE: Usage = {
  input_tokens: 0,
  output_tokens: 0,
  input_audio_tokens: 0,
  output_audio_tokens: 0,
  cached_tokens: 0,
  transcribed_seconds: 0,
};

const NAMES = Object.keys(NO_USAGE) as (keyof Usage)[];
const MAX = 1e9;

const countIn = (value: unknown, name: string): number => {
  const count = isObject(value) ? value[name] : undefined;
  return typeof count === 'number' && count > 0 && count <= MAX ? count : 0;
};

/** `usage` of a provider's event, with the details of OpenAI and xAI. Undefined if it counts nothing. */
export function readUsage(value: unknown): Usage | undefined {
  if (!isObject(value)) return undefined;
  const { input_token_details: input, output_token_details: output } = value;
  const usage: Usage = {
    input_tokens: countIn(value, 'input_tokens'),
    output_tokens: countIn(value, 'output_tokens'),
    input_audio_tokens: countIn(input, 'audio_tokens'),
    output_audio_tokens: countIn(output, 'audio_tokens'),
    cached_tokens: countIn(input, 'cached_tokens'),
    transcribed_seconds: countIn(value, 'seconds'),
  };
  return NAMES.some((name) => usage[name] > 0) ? usage : undefined;
}

/** The sum, for each count. */
export const added = (a: Usage, b: Usage): Usage =>
  Object.fromEntries(NAMES.map((name) => [name, a[name] + b[name]])) as unknown as Usage;

/** Counts from an event of the relay; missing and invalid ones count as 0. */
export const usageIn = (value: unknown): Usage =>
  Object.fromEntries(NAMES.map((name) => [name, countIn(value, name)])) as unknown as Usage;

/** The usage so far, as a member of events; omitted before the first usage. */
export const usageMember = (usage: Usage): JsonObject => (usage === NO_USAGE ? {} : { usage: { ...usage } });

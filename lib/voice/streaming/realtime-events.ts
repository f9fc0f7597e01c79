import { fromBase64 } from '../../kit/bytes.ts';
import { asObject, isObject, type JsonObject } from '../../kit/json.ts';
import { parseSimpleJson } from '../../kit/long-json.ts';

/** Events of a response that both realtime providers send, each under its present and its former name. */
export const AUDIO_DELTA: ReadonlySet<unknown> = new Set(['response.output_audio.delta', 'response.audio.delta']);
export const AUDIO_DONE: ReadonlySet<unknown> = new Set(['response.output_audio.done', 'response.audio.done']);
export const TEXT_DELTA: ReadonlySet<unknown> = new Set([
  'response.output_audio_transcript.delta',
  'response.audio_transcript.delta',
  'response.output_text.delta',
  'response.text.delta',
]);

export const NOT_AN_EVENT = 'an event is not a JSON object with a type';
export const NOT_BASE64 = 'the audio is not valid base64';

/** A message of a provider; null unless it is an object with a type. */
export function readEvent(text: string): (JsonObject & { type: string }) | null {
  const event = asObject(parseSimpleJson(text));
  return event && typeof event.type === 'string' ? (event as JsonObject & { type: string }) : null;
}

/** The audio of a delta; null when it is not base64. */
export function audioOf({ delta, audio }: JsonObject): Uint8Array | null {
  const text = delta ?? audio;
  return typeof text === 'string' ? fromBase64(text) : null;
}

/** Why a response failed, from its `response.done`; undefined if it did not fail. */
export function failureOf(event: JsonObject): string | undefined {
  const response = isObject(event.response) ? event.response : {};
  if (response.status !== 'failed') return undefined;
  const details = isObject(response.status_details) ? response.status_details : {};
  return errorText(details.error ?? details);
}

/** The error of an `error` event. xAI may put message and code beside it, or in its place. */
export const errorIn = (event: JsonObject): unknown =>
  isObject(event.error) ? { message: event.message, code: event.code, ...event.error } : (event.error ?? event);

/** The text of an error: its message, else its code, else its type. */
export function errorText(error: unknown): string {
  const { message, code, type } = isObject(error) ? error : { message: error };
  for (const text of [message, code, type]) if (typeof text === 'string' && text.trim() !== '') return text.trim();
  return 'failed without a reason';
}

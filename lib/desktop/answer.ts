import { textOf } from '../dispatch/json-text.ts';
import type { Payload } from '../socket/envelope.ts';
import { summarise } from './redact.ts';
import { isPrivateTool } from './tools.ts';

/** A `desktop.response`: everything in it is the desktop's word. */
export interface Answer {
  payload: Payload;
  /** The payload as it stands in the frame. */
  text: string;
}

/** Reads a `desktop.response`; `frame` is the text that it came in. */
export const readAnswer = (payload: Payload, frame: string): Answer => ({
  payload,
  text: textOf(frame, 'payload') ?? JSON.stringify(payload),
});

/** What the caller gets: the payload as it is, and who answered where it does not say so (contract 07 §2.3). */
export function replyTo({ payload, text }: Answer, target: { device_id: string; device_name: string }): string {
  if (Object.hasOwn(payload, 'target')) return text;
  return `${text.slice(0, -1)},"target":${JSON.stringify(target)}}`;
}

export type Decision = 'pending' | 'executed' | 'error' | 'timeout';

const statusIn = ({ status }: Payload): number | undefined =>
  Number.isInteger(status) ? (status as number) : undefined;

/** What became of an answered command: the newer `ok`, or the older `status`. */
export function decide({ payload }: Answer): Decision {
  if (typeof payload.ok === 'boolean') return payload.ok ? 'executed' : 'error';
  return (statusIn(payload) ?? Infinity) < 400 ? 'executed' : 'error';
}

/** The desktop's own status; 200 for a success without one, null for a failure without one. */
export const statusOf = ({ payload }: Answer): number | null => statusIn(payload) ?? (payload.ok === true ? 200 : null);

/** What is written down of the result: no secrets, and of private content its size alone. */
export function summaryOf(tool: string, { payload, text }: Answer): string | null {
  if (!isPrivateTool(tool) || payload.result === undefined || payload.result === null) return summarise(payload.result);
  return `[${new TextEncoder().encode(textOf(text, 'result') ?? '').length} bytes]`;
}

/** The sentence of a failure; of an error that is no text, its JSON. */
export const errorOf = ({ payload: { error } }: Answer): string | null =>
  typeof error === 'string' ? error : summarise(error);

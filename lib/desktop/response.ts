import { textOf } from '../kit/json-text.ts';
import type { Payload } from '../socket/envelope.ts';
import { summarise } from './redact.ts';
import { isPrivateTool } from './tools.ts';

/** A `desktop.response`. The desktop chose everything in it. */
export interface DesktopResponse {
  payload: Payload;
  /** The payload exactly as in the frame. */
  text: string;
}

/** Reads a `desktop.response`; `frame` is the text of its frame. */
export const readResponse = (payload: Payload, frame: string): DesktopResponse => ({
  payload,
  text: textOf(frame, 'payload') ?? JSON.stringify(payload),
});

/** The reply to the caller: the payload unchanged, with the desktop that answered unless it says so (contract 07 §2.3). */
export function replyTo(
  { payload, text }: DesktopResponse,
  target: { device_id: string; device_name: string },
): string {
  if (Object.hasOwn(payload, 'target')) return text;
  return `${text.slice(0, -1)},"target":${JSON.stringify(target)}}`;
}

export type Decision = 'pending' | 'executed' | 'error' | 'timeout';

const statusIn = ({ status }: Payload): number | undefined =>
  Number.isInteger(status) ? (status as number) : undefined;

/** The recorded outcome of an answered command, from the newer `ok` or the older `status`. */
export function decide({ payload }: DesktopResponse): Decision {
  if (typeof payload.ok === 'boolean') return payload.ok ? 'executed' : 'error';
  return (statusIn(payload) ?? Infinity) < 400 ? 'executed' : 'error';
}

/** The desktop's own status; 200 for a success without one, null for a failure without one. */
export const statusOf = ({ payload }: DesktopResponse): number | null =>
  statusIn(payload) ?? (payload.ok === true ? 200 : null);

/** The recorded result: no secrets, and of private content only its size. */
export function summaryOf(tool: string, { payload, text }: DesktopResponse): string | null {
  if (!isPrivateTool(tool) || payload.result === undefined || payload.result === null) return summarise(payload.result);
  return `[${new TextEncoder().encode(textOf(text, 'result') ?? '').length} bytes]`;
}

/** The error sentence of a failure; JSON if the error is not a text. */
export const errorOf = ({ payload: { error } }: DesktopResponse): string | null =>
  typeof error === 'string' ? error : summarise(error);

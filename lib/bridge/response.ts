import { isObject } from '../kit/json.ts';
import { memberNamed, membersOf } from '../kit/json-text.ts';
import type { Payload } from '../socket/envelope.ts';

/** A parsed `bridge.response`. The phone chose everything in it. */
export interface PhoneResponse {
  /** As sent by the phone, even outside 200..599; 200 if it sent no integer. */
  status: number;
  result: unknown;
  /** `result` exactly as in the frame. */
  resultText: string;
  error?: string;
  blocked: boolean;
}

/** The HTTP answer to the caller. */
export interface Reply {
  status: number;
  /** JSON. */
  body: string;
}

/** Reads the payload of a `bridge.response`; `frame` is the text of its frame. */
export function readResponse({ status, result, error, blocked }: Payload, frame: string): PhoneResponse {
  return {
    status: Number.isInteger(status) ? (status as number) : 200,
    result,
    resultText: typeof result === 'object' && result !== null ? resultIn(frame) : '',
    error: typeof error === 'string' ? error : undefined,
    blocked: blocked === true,
  };
}

function resultIn(frame: string): string {
  const payload = memberNamed(membersOf(frame), 'payload');
  const result = payload && memberNamed(membersOf(frame, payload.valueStart), 'result');
  return result ? frame.slice(result.valueStart, result.end) : '{}';
}

/** True if HTTP can carry the status (contract 03 §4.3). */
const isStatus = (status: number): boolean => status >= 200 && status <= 599;

/** The reply to the caller (contract 03 §4.3); undefined for a status that HTTP cannot carry. */
export function replyTo({ status, result, resultText, error }: PhoneResponse): Reply | undefined {
  if (!isStatus(status)) return undefined;
  if (resultText !== '') return { status, body: resultText };
  if (result !== undefined && result !== null) return { status, body: JSON.stringify({ value: result }) };
  return { status, body: error === undefined ? '{}' : JSON.stringify({ error }) };
}

export type Decision = 'pending' | 'executed' | 'blocked' | 'confirmed' | 'timeout' | 'error';

const REFUSALS = new Set([
  'user_denied',
  'bridge_disabled',
  'device_control_sideload_only',
  'sideload_only',
  'unknown_bridge_command',
]);

const isRefusal = (code: unknown): boolean =>
  typeof code === 'string' && (REFUSALS.has(code) || /^bridge_(?:capability|policy)_/.test(code));

/** The recorded outcome of an answered command; the first match wins (contract 03 §6). */
export function decide({ status, result, error, blocked }: PhoneResponse): Decision {
  const body: Payload = isObject(result) ? result : {};
  if (body.blocked === true || blocked || (error !== undefined && /safety/i.test(error))) return 'blocked';
  if (status === 403) {
    const blockedPackage = typeof body.error === 'string' && body.error.startsWith('blocked package');
    if (body.status === 'blocked' || blockedPackage || isRefusal(body.error_code)) return 'blocked';
  }
  if (body.confirmation_required === true || body.confirmed === true) return 'confirmed';
  return status >= 400 || !isStatus(status) ? 'error' : 'executed';
}

/** The error sentence of a failed response: the frame's own, else the body's. */
export function errorOf({ status, result, error }: PhoneResponse): string | null {
  if (error !== undefined) return error;
  return status >= 400 && isObject(result) && typeof result.error === 'string' ? result.error : null;
}

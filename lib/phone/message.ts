import type { PhoneMessage } from '../../storage/schema.ts';
import { RelayError } from '../errors.ts';
import { newUuid } from '../kit/uuid.ts';
import { sanitizeMetadata } from './metadata.ts';
import { readAnswers, withAnswers } from './question.ts';
import { sealedOf } from './sealed.ts';

const MAX_TEXT = 16_384;
const MAX_LABEL = 256;
const MAX_ID = 128;

/**
 * Makes the id of a message or reply that came without one: 12 random hex characters, the first of a UUID. Node makes UUIDs in
 * batches, whereas a call for six random bytes costs ten times as much.
 */
export const newMessageId = (): string => newUuid().replace('-', '').slice(0, 12);

/**
 * Reads the body of `POST /phone/message` (contract 04 §5.3), with its answers in the metadata (09 §10). `now` is epoch
 * milliseconds.
 * @throws RelayError `invalid` naming the field.
 */
export function readMessage(body: Readonly<Record<string, unknown>>, now: number): PhoneMessage {
  const { text } = body;
  if (typeof text !== 'string' || text.trim() === '') {
    throw new RelayError('invalid', 'text must be a string that is not blank');
  }
  if (text.length > MAX_TEXT) throw new RelayError('invalid', `text must have at most ${MAX_TEXT} characters`);
  return {
    message_id: idOf(body.message_id),
    chat_id: label(body, 'chat_id'),
    title: label(body, 'title'),
    text,
    surfacing: label(body, 'surfacing'),
    reply_to: label(body, 'reply_to'),
    metadata: withAnswers(text, sanitizeMetadata(body.metadata), readAnswers(body.answers)),
    sent_at: Math.trunc(now),
  };
}

/**
 * Reads a message from the store or from the other relay.
 * @throws RelayError `invalid` naming the field.
 */
export function readGivenMessage(value: Readonly<Record<string, unknown>>, sentAt: number): PhoneMessage {
  const sealed = sealedOf(value);
  if (!sealed) throw new RelayError('invalid', 'sealed cannot be read');
  return { ...readMessage(value, sentAt), ...sealed };
}

function label(body: Readonly<Record<string, unknown>>, field: string): string | null {
  const value = body[field];
  if (value === undefined || value === null) return null;
  if (typeof value !== 'string') throw new RelayError('invalid', `${field} must be a string or null`);
  if (value.length > MAX_LABEL) throw new RelayError('invalid', `${field} must have at most ${MAX_LABEL} characters`);
  return value;
}

function idOf(value: unknown): string {
  if (value === undefined || value === null) return newMessageId();
  const id = typeof value === 'number' ? String(value) : value;
  if (typeof id === 'string' && id.length >= 1 && id.length <= MAX_ID) return id;
  throw new RelayError('invalid', `message_id must be a string of 1 to ${MAX_ID} characters`);
}

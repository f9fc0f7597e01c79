import type { PhoneMessage, Reply, SealedText } from '../../storage/schema.ts';
import { readSealed } from '../kit/box.ts';

/** Text of a message or a reply shown where it cannot be opened. */
export const SEALED_TEXT = 'Sealed: only home and its devices can read this.';

/** Prefix for unsealed text that arrived at the edge while the mailbox is sealed. */
export const UNSEALED = 'It was not sealed, so anybody at the edge may have written it: ';

/** The purpose of a sealed text, which opens for that purpose only (contract 12 §4). */
export interface Purpose {
  direction: 'to-device' | 'to-home';
  kind: 'message' | 'reply' | 'notification' | 'upload';
  /** Empty for an upload, whose token names its sealed bytes. */
  id: string;
  /** The device that opens the text or sealed it; `home` for home's own copy. */
  deviceId: string;
  /** Id of home's key. */
  epoch: string;
}

export const contextOf = ({ direction, kind, id, deviceId, epoch }: Purpose): string =>
  JSON.stringify(['svc-relay mailbox v1', direction, kind, id, deviceId, epoch]);

/** The text that the identity pinned in a pairing link signs for home's key. */
export const homeBoxText = (key: string): string => `svc-relay home box v1\n${key}`;

/** A message as sent to the edge: ids, times, and whether it is a question. */
export const coveredMessage = (message: PhoneMessage, sealed: SealedText): PhoneMessage => ({
  ...message,
  title: null,
  text: SEALED_TEXT,
  surfacing: null,
  metadata: message.metadata.question === true ? { question: true } : {},
  sealed,
});

/** True for a message that arrived unsealed at the edge while home sealed its own. */
export const isUnsealed = ({ metadata }: Pick<PhoneMessage, 'metadata'>): boolean => metadata.sealed === false;

/** The sealed text of a message or a reply, as its only member; `null` if there is an unreadable one. */
export function sealedOf(value: Readonly<Record<string, unknown>>): Pick<Reply, 'sealed'> | null {
  if (value.sealed === undefined) return {};
  const sealed = readSealed(value.sealed);
  return sealed ? { sealed } : null;
}

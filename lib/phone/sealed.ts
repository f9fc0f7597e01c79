import type { PhoneMessage, Reply, SealedText } from '../../storage/schema.ts';
import { readSealed } from '../kit/box.ts';

/** Text of a message or a reply in a place where nobody can open it. */
export const SEALED_TEXT = 'Sealed: only home and its devices can read this.';

/** Before what came to the edge without a seal while the mailbox is sealed. */
export const UNSEALED = 'It was not sealed, so anybody at the edge may have written it: ';

/** A sealed text opens for its purpose alone (contract 12 §4). */
export interface Purpose {
  direction: 'to-device' | 'to-home';
  kind: 'message' | 'reply' | 'notification' | 'upload';
  /** Empty for an upload, whose token names its sealed bytes. */
  id: string;
  /** The device that opens or has sealed it; `home` where home keeps a copy for itself. */
  deviceId: string;
  /** Names home's key. */
  epoch: string;
}

export const contextOf = ({ direction, kind, id, deviceId, epoch }: Purpose): string =>
  JSON.stringify(['svc-relay mailbox v1', direction, kind, id, deviceId, epoch]);

/** The identity that a pairing link pins signs this text for home's key. */
export const homeBoxText = (key: string): string => `svc-relay home box v1\n${key}`;

/** A message as the edge gets it: ids, times, and whether it is a question. */
export const coveredMessage = (message: PhoneMessage, sealed: SealedText): PhoneMessage => ({
  ...message,
  title: null,
  text: SEALED_TEXT,
  surfacing: null,
  metadata: message.metadata.question === true ? { question: true } : {},
  sealed,
});

/** True for a message that came to the edge without a seal, while home sealed its own. */
export const isUnsealed = ({ metadata }: Pick<PhoneMessage, 'metadata'>): boolean => metadata.sealed === false;

/** The sealed text of a message or a reply, as its only member; `null` where there is one that cannot be read. */
export function sealedOf(value: Readonly<Record<string, unknown>>): Pick<Reply, 'sealed'> | null {
  if (value.sealed === undefined) return {};
  const sealed = readSealed(value.sealed);
  return sealed ? { sealed } : null;
}

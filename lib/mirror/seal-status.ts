import { asObject, type JsonObject } from '../kit/json.ts';
import { visibleName } from '../kit/text.ts';

/** Maximum devices that are named. */
export const MAX_NAMED = 20;

/** Why everything is plain for a device: it has never sent a key, or does not have home's yet. */
export type PlainReason = 'no_key' | 'no_home_key';

/** `mailbox` of `GET /relay/mirror` at home (contract 12 §4). */
export interface SealStatus {
  sealed: boolean;
  /** Devices that cannot read sealed texts, the first 20 of `plain_count`. */
  plain: { name: string; reason: PlainReason }[];
  plain_count: number;
  /** Present if there is no key at all, or more keys than a seal can hold. */
  reason?: 'no_device' | 'too_many_devices';
}

const REASONS: Readonly<Record<string, string>> = {
  no_key: 'sends no key',
  no_home_key: "has yet to take home's key",
};

/** The same as text, such as `plain: Pixel 9 sends no key`; undefined if the relay does not report it. */
export function sealText(mailbox: unknown): string | undefined {
  const { sealed, plain, plain_count: count, reason } = asObject(mailbox) ?? {};
  if (sealed === true) return 'sealed';
  if (sealed !== false) return undefined;
  if (reason === 'no_device') return 'plain until a device with a key uses it';
  if (reason === 'too_many_devices') return 'plain: too many devices have keys';
  const named = (Array.isArray(plain) ? plain : []).slice(0, MAX_NAMED).flatMap((each) => {
    const { name, reason: why } = asObject(each) ?? ({} as JsonObject);
    return [
      `${visibleName(name).slice(0, 64) || 'a device'} ${REASONS[visibleName(why)] ?? 'cannot open what is sealed'}`,
    ];
  });
  const more = typeof count === 'number' ? count - named.length : 0;
  return `plain: ${named.join(', ')}${more > 0 ? `, and ${more} more` : ''}`;
}

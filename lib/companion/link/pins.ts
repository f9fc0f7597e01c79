import { authority, isSecure } from './endpoints.ts';

/** SHA-256 of a certificate's SubjectPublicKeyInfo in lower-case hex, by `host:port` (spec 2.1 `tofu_pins`). */
export type Pins = Readonly<Record<string, string>>;

export type PinCheck =
  /** A plain connection: there is nothing to pin. */
  | { kind: 'none' }
  /** The first sight of this `host:port`: to be recorded once the connection has proved good. */
  | { kind: 'first'; pins: Pins }
  | { kind: 'known' }
  /** Another key than before, or none to be seen: nothing may be sent there. */
  | { kind: 'refused'; reason: string };

/**
 * Trust on first use: a home relay's certificate is self-signed, so it is not its issuer that counts but that the key
 * stays the same. Pins begin anew with every pairing.
 */
export function checkPin(pins: Pins, url: string, spki: string | undefined): PinCheck {
  if (!isSecure(url)) return { kind: 'none' };
  const place = authority(url);
  if (!spki || !/^[0-9a-f]{64}$/.test(spki)) return { kind: 'refused', reason: `${place} shows no certificate` };
  const pinned = Object.hasOwn(pins, place) ? pins[place] : undefined;
  if (pinned === undefined) return { kind: 'first', pins: { ...pins, [place]: spki } };
  if (pinned === spki) return { kind: 'known' };
  return {
    kind: 'refused',
    reason: `the certificate of ${place} has changed (pinned ${short(pinned)}, now ${short(spki)})`,
  };
}

const short = (hex: string): string => `${hex.slice(0, 8)}…`;

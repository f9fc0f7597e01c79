import { RelayError } from '../errors.ts';
import { type Identity, normalise } from './identity.ts';

/** Parameters that select a phone; the first that is not blank wins. Never forwarded to it (contract 03 §3). */
export const SELECTOR_KEYS = ['device', 'device_id', 'deviceId'] as const;

export const isSelectorKey = (key: string): boolean => (SELECTOR_KEYS as readonly string[]).includes(key);

/**
 * The trimmed selector of a query, else of a body; undefined if neither has one.
 * @throws RelayError `invalid` if the body's is not a string.
 */
export function readSelector(
  query: Readonly<Record<string, string>>,
  body: Readonly<Record<string, unknown>> = {},
): string | undefined {
  for (const values of [query, body]) {
    for (const key of SELECTOR_KEYS) {
      const value = Object.hasOwn(values, key) ? values[key] : undefined;
      if (!value) continue;
      if (typeof value !== 'string') throw new RelayError('invalid', 'device selector must be a string');
      const text = value.trim();
      if (text) return text;
    }
  }
  return undefined;
}

/** The devices that a selector matches. An empty normalised form matches none. */
export function matching<T extends Pick<Identity, 'aliases'>>(devices: Iterable<T>, selector: string): T[] {
  const plain = normalise(selector);
  return [...devices].filter(({ aliases }) => aliases.includes(selector) || (plain !== '' && aliases.includes(plain)));
}

/**
 * The one device that a selector matches.
 * @throws RelayError `not-found` if it matches none, `conflict` if several.
 */
export function onlyMatch<T extends Pick<Identity, 'aliases'>>(devices: Iterable<T>, selector: string): T {
  const [device, second] = matching(devices, selector);
  const shown = selector.length > 128 ? `${selector.slice(0, 128)}...` : selector;
  if (!device) throw new RelayError('not-found', `Unknown bridge device selector: ${shown}`);
  if (second) throw new RelayError('conflict', `Ambiguous bridge device selector: ${shown}`);
  return device;
}

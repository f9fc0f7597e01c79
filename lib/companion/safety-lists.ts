import { RelayError } from '../errors.ts';
import { ROUTE_VERBS, type SafetySettings } from './safety-settings.ts';
import { isPackageName } from './text.ts';

/** Maximum entries of the blocklist. */
export const MAX_BLOCKED = 1000;

/** Every verb that can be trusted: the destructive words, and the routes that always ask (contract 03 §8.3). */
export const trustableVerbs = ({ destructiveVerbs }: Pick<SafetySettings, 'destructiveVerbs'>): string[] => [
  ...new Set([...ROUTE_VERBS, ...destructiveVerbs.map((verb) => verb.trim().toLowerCase())]),
];

/** @throws RelayError `invalid` for anything but a package name. */
export function readPackageName(text: string): string {
  const name = text.trim();
  if (isPackageName(name)) return name;
  throw new RelayError('invalid', 'must be a package name such as org.example.app');
}

/** A list with entries appended, without duplicates. */
export const withAdded = (list: readonly string[], more: readonly string[]): string[] => [
  ...new Set([...list, ...more]),
];

/** A list without these entries. */
export const withRemoved = (list: readonly string[], gone: readonly string[]): string[] =>
  list.filter((entry) => !gone.includes(entry));

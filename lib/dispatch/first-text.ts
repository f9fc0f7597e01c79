import { isObject } from '../kit/json.ts';

const MAX_NAME = 128;

/** The first member of these names that is a text and not blank, trimmed, at most 128 characters of it. */
export const firstText = (holder: unknown, names: readonly string[]): string | undefined => {
  if (!isObject(holder)) return undefined;
  for (const name of names) {
    const value = holder[name];
    if (typeof value === 'string' && value.trim() !== '') return value.trim().slice(0, MAX_NAME).toWellFormed();
  }
  return undefined;
};

import { isObject } from '../kit/json.ts';

const MAX_NAME = 128;

/** The first of these members that is a string and not blank, trimmed and cut to 128 characters. */
export const firstText = (holder: unknown, names: readonly string[]): string | undefined => {
  if (!isObject(holder)) return undefined;
  for (const name of names) {
    const value = holder[name];
    if (typeof value === 'string' && value.trim() !== '') return value.trim().slice(0, MAX_NAME).toWellFormed();
  }
  return undefined;
};

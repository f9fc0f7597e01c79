import { isObject } from '../kit/json.ts';
import { visibleName } from '../kit/text.ts';

/** The first of these members that is a name: see `visibleName`. */
export const firstString = (holder: unknown, names: readonly string[]): string | undefined => {
  if (!isObject(holder)) return undefined;
  for (const name of names) {
    const text = visibleName(holder[name]);
    if (text !== '') return text;
  }
  return undefined;
};

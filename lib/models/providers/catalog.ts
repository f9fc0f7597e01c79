import { RelayError } from '../../errors.ts';
import { isObject } from '../../kit/json.ts';
import { type Effort, readEfforts } from '../efforts.ts';

/** The first of these members that is a list, without what is no object in it. Throws when none is. */
export function entriesOf(answer: unknown, ...members: string[]): Record<string, unknown>[] {
  const lists = isObject(answer) ? members.map((name) => answer[name]) : [];
  const list = lists.find(Array.isArray);
  if (!list) throw new RelayError('bad-gateway', 'the answer is no catalog');
  return list.filter(isObject);
}

/** A member below members; undefined as soon as one is absent. What is no object has no members: `null` then. */
export function memberOf(value: unknown, ...path: string[]): unknown {
  let member = value;
  for (const name of path) {
    if (member === undefined || member === null) return undefined;
    if (!isObject(member)) return null;
    member = member[name];
  }
  return member ?? undefined;
}

/** Efforts that a listed model offers: none when it says nothing, undefined when what it says cannot be understood. */
export function effortsOf(list: unknown): Effort[] | undefined {
  if (list === undefined) return [];
  return Array.isArray(list) ? readEfforts(list) : undefined;
}

import { expect, it } from 'vitest';
import { isId, newId } from '../../../lib/reach/ids.ts';

it('makes IDs that a command line does not take for options', () => {
  const ids = Array.from({ length: 1000 }, newId);
  expect(ids.filter((id) => !isId(id) || id.startsWith('-'))).toEqual([]);
  expect(new Set(ids).size).toBe(1000);
});

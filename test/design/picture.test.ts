import { expect, it } from 'vitest';
import { domainsOf, readGraph, rowsOf } from './graph.ts';
import { drawRooms } from './picture.ts';

it('lib/README.md shows the rooms as they are (draw them anew: npx vitest run test/design/picture -u)', async () => {
  await expect(drawRooms(domainsOf(await readGraph()))).toMatchFileSnapshot('../../lib/rooms.svg');
});

it('a domain stands above everything that it imports', () => {
  const graph = new Map([
    ['relay', ['chat', 'kit']],
    ['chat', ['socket', 'kit']],
    ['socket', ['kit']],
    ['kit', []],
    ['media', ['kit']],
  ]);
  expect(rowsOf(graph)).toEqual([['kit'], ['media', 'socket'], ['chat'], ['relay']]);
});

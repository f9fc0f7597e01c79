import { expect, it } from 'vitest';
import { domainsOf, type Graph, importsOf, readGraph } from './graph.ts';

/** Every group of nodes that reach each other (Tarjan's strongly connected components of more than one node). */
function cyclesOf(graph: Graph): string[][] {
  const order = new Map<string, number>();
  const low = new Map<string, number>();
  const stack: string[] = [];
  const cycles: string[][] = [];
  const visit = (node: string): void => {
    const index = order.size;
    order.set(node, index);
    low.set(node, index);
    stack.push(node);
    for (const next of graph.get(node) ?? []) {
      if (!order.has(next)) visit(next);
      if (stack.includes(next)) low.set(node, Math.min(low.get(node) as number, low.get(next) as number));
    }
    if (low.get(node) !== index) return;
    const group = stack.splice(stack.indexOf(node));
    if (group.length > 1 || graph.get(node)?.includes(node)) cycles.push(group.sort());
  };
  for (const node of graph.keys()) if (!order.has(node)) visit(node);
  return cycles;
}

it('design 2: no import cycle between the files of lib, types included', async () => {
  const graph = await readGraph();
  expect(graph.size).toBeGreaterThan(100);
  expect(graph.get('domains.ts')?.length).toBeGreaterThan(10);
  expect(cyclesOf(graph)).toEqual([]);
});

it('design 2: no import cycle between the domains of lib', async () => {
  expect(cyclesOf(domainsOf(await readGraph()))).toEqual([]);
});

it('design 2: the search for cycles finds them, in every form of import', () => {
  const forms = [
    "import { a } from './a.ts';",
    "import type { b } from './b.ts';",
    "export * from './c.ts';",
    "import {\n  type d,\n} from './d.ts';",
    "const e = () => import('./e.ts');",
    "import './f.ts';",
    "type G = import('./g.ts').G;",
    "import fs from 'node:fs';",
  ];
  expect(importsOf(forms.join('\n'))).toEqual(['a', 'b', 'c', 'd', 'e', 'f', 'g'].map((name) => `./${name}.ts`));
  const graph = new Map([
    ['relay.ts', ['a/x.ts', 'b/x.ts']],
    ['a/x.ts', ['a/y.ts', 'b/x.ts']],
    ['a/y.ts', ['a/z.ts']],
    ['a/z.ts', ['a/y.ts']],
    ['b/x.ts', []],
    ['b/y.ts', ['a/y.ts']],
    ['c/x.ts', ['c/x.ts']],
  ]);
  expect(cyclesOf(graph)).toEqual([['a/y.ts', 'a/z.ts'], ['c/x.ts']]);
  expect(cyclesOf(domainsOf(graph))).toEqual([['a', 'b']]);
});

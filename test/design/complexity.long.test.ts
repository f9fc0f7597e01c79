import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { parseAst } from 'vitest/node';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Ways through a function: one, and one more for each branch. biome.json limits the lines of a function. */
const MAX_COMPLEXITY = 25;

/** Functions with more, which none of them may exceed: `createDomains` makes a host's parts only where there is one. */
const EXCEPTIONS: Readonly<Record<string, number>> = { 'lib/relay.ts createDomains': 30 };

interface Node {
  type: string;
  [member: string]: unknown;
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && typeof (value as Node).type === 'string';

const childrenOf = (node: Node): Node[] => Object.values(node).flat().filter(isNode);

const isFunction = ({ type, body }: Node): boolean =>
  /^(?:FunctionDeclaration|FunctionExpression|ArrowFunctionExpression)$/.test(type) && isNode(body);

const isBranch = ({ type, test }: Node): boolean =>
  type === 'SwitchCase'
    ? test !== null
    : /^(?:If|For|ForIn|ForOf|While|DoWhile)Statement$|^(?:Conditional|Logical)Expression$|^CatchClause$/.test(type);

const branchesIn = (node: Node): number =>
  childrenOf(node).reduce(
    (sum, child) => sum + (isFunction(child) ? 0 : Number(isBranch(child)) + branchesIn(child)),
    0,
  );

const nameOf = ({ id, key }: Node): string | undefined =>
  [id, key].filter(isNode).find(({ name }) => typeof name === 'string')?.name as string | undefined;

/** Cyclomatic complexity by name of every function; nested ones count by themselves. */
function complexitiesOf(source: string, lang: 'ts' | 'tsx'): [name: string, complexity: number][] {
  const found: [string, number][] = [];
  const visit = (node: Node, outer: string): void => {
    const name = nameOf(node) ?? outer;
    if (isFunction(node)) found.push([name, 1 + branchesIn(node)]);
    for (const child of childrenOf(node)) visit(child, name);
  };
  visit(parseAst(source, { lang }) as unknown as Node, '');
  return found;
}

it('design 1: no function has more than 25 ways through it', async () => {
  const over: string[] = [];
  for (const top of ['lib', 'handlers', 'cli', 'storage']) {
    const entries = await readdir(join(ROOT, top), { recursive: true, withFileTypes: true });
    for (const { parentPath, name } of entries.filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))) {
      const path = join(parentPath, name);
      const found = complexitiesOf(await readFile(path, 'utf8'), name.endsWith('x') ? 'tsx' : 'ts');
      for (const [own, complexity] of found) {
        const key = `${relative(ROOT, path)} ${own}`;
        if (complexity > (EXCEPTIONS[key] ?? MAX_COMPLEXITY)) over.push(`${key}: ${complexity}`);
      }
    }
  }
  expect(over).toEqual([]);
}, 300_000);

it('design 1: the count of branches finds every kind of them, and leaves nested functions out', () => {
  const source = `const outer = (x: number) => {
    if (x) for (const y of []) while (y) {}
    try { x ? 1 : 2; } catch {}
    switch (x) { case 1: case 2: default: }
    function inner() { return x && x || (x ?? 1); }
    return inner;
  };`;
  expect(complexitiesOf(source, 'ts')).toEqual([
    ['outer', 8],
    ['inner', 4],
  ]);
});

import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { parseAst } from 'vitest/node';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Ways through a function: one, and one more for each branch. */
const MAX_COMPLEXITY = 25;

/** Functions with more, which none of them may exceed: `createDomains` makes a host's parts only where there is one. */
const EXCEPTIONS: Readonly<Record<string, number>> = { 'lib/domains.ts createDomains': 30 };

/** Lines of a function, comments included, without those of the functions within it. */
const MAX_LINES = 200;

/** Functions with more, and how many they may have. */
const LONG_FUNCTIONS: Readonly<Record<string, number>> = { 'lib/phone/phone.ts openPhoneMessaging': 296 };

interface Node {
  type: string;
  start: number;
  end: number;
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

interface Measured {
  name: string;
  complexity: number;
  lines: number;
}

/** Cyclomatic complexity and lines of every function; nested ones count by themselves. */
function functionsOf(source: string, lang: 'ts' | 'tsx'): Measured[] {
  const found: Measured[] = [];
  const breaksIn = ({ start, end }: Node): number => source.slice(start, end).split('\n').length - 1;
  const nestedBreaks = (node: Node): number =>
    childrenOf(node).reduce((sum, child) => sum + (isFunction(child) ? breaksIn(child) : nestedBreaks(child)), 0);
  const visit = (node: Node, outer: string): void => {
    const name = nameOf(node) ?? outer;
    if (isFunction(node)) {
      found.push({ name, complexity: 1 + branchesIn(node), lines: 1 + breaksIn(node) - nestedBreaks(node) });
    }
    for (const child of childrenOf(node)) visit(child, name);
  };
  visit(parseAst(source, { lang }) as unknown as Node, '');
  return found;
}

/** Every function of the relay, by file and name. */
async function* allFunctions(): AsyncGenerator<Measured & { key: string }> {
  for (const top of ['lib', 'handlers', 'cli', 'storage']) {
    const entries = await readdir(join(ROOT, top), { recursive: true, withFileTypes: true });
    for (const { parentPath, name } of entries.filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))) {
      const path = join(parentPath, name);
      const found = functionsOf(await readFile(path, 'utf8'), name.endsWith('x') ? 'tsx' : 'ts');
      for (const measured of found) yield { ...measured, key: `${relative(ROOT, path)} ${measured.name}` };
    }
  }
}

it('design 1: no function has more than 25 ways through it, nor more than 200 lines of its own', async () => {
  const over: string[] = [];
  let count = 0;
  for await (const { key, complexity, lines } of allFunctions()) {
    count++;
    if (complexity > (EXCEPTIONS[key] ?? MAX_COMPLEXITY)) over.push(`${key}: ${complexity} ways`);
    if (lines > (LONG_FUNCTIONS[key] ?? MAX_LINES)) over.push(`${key}: ${lines} lines`);
  }
  expect(count).toBeGreaterThan(5_000);
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
  expect(functionsOf(source, 'ts')).toEqual([
    { name: 'outer', complexity: 8, lines: 7 },
    { name: 'inner', complexity: 4, lines: 1 },
  ]);
});

it('design 1: the lines of a function are counted with comments and without nested functions', () => {
  const source = `function outer() {
    // A comment.
    const nested = () => {
      /* Two
         lines. */
    };
    return { method() {
      return nested;
    } };
  }`;
  expect(functionsOf(source, 'ts').map(({ name, lines }) => [name, lines])).toEqual([
    ['outer', 5],
    ['nested', 4],
    ['method', 3],
  ]);
});

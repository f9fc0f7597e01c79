import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { parseAst } from 'vitest/node';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Names that design 6 has replaced, and the terms to choose from instead. */
const REPLACED: readonly (readonly [name: RegExp, instead: string])[] = [
  [/knock/i, 'notice, pushNotice'],
  [/^(?:told|tells?)$/i, 'notified, reported, send, or the name of the sent thing'],
  [/^patience$/i, 'timeout'],
  [/^(?:takeBack|hurry|hung|far|youngMemory|denseSet|missShare|inlet|wording|cannot)$/i, 'the term of the place'],
  [/^(?:called|decided|about)$/i, 'title, decision, subject'],
  [/^look(?:s|ed|ing)?$/i, 'lookUp, read, refresh, appearance'],
  [/^(?:keeps?|kept|keptTurns?)$/i, 'stored, cached, retained, remaining'],
  [/^(?:secret|named)?places$/i, 'directories, paths, locations'],
  [/^late(?:plugin|imports)?$/i, 'deferred, lateReason, deadline, onTimeout'],
  [/^(?!Url)[A-Z]\w*Parts$/, 'Deps, Options'],
  [/^heard(?:At|Of)?$/i, 'received, receivedAt, played'],
  [/^parking$/i, 'parkedShells'],
  [/^(?:nearest|likely)$/i, 'closest, suggestion'],
  [/^(?:startOf|firstText)$/i, 'startOffset, firstString'],
  [/^(?:takes|taken)$/i, 'accepts, used, onDelivered'],
];

/** Names on the wire or in stored records, by file. */
const FIXED: readonly string[] = [
  'handlers/web/app/inbox/items.ts late',
  'handlers/web/app/worker/deliver.ts late',
  'handlers/web/console/stores/answers.ts late',
  'lib/push/notices.ts knock',
  'storage/schema.ts heard',
  'storage/schema.ts kept',
  'storage/schema.ts knock',
  'storage/schema.ts late',
  'storage/schema.ts taken',
  'storage/schema.ts told',
];

interface Node {
  type: string;
  [member: string]: unknown;
}

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && typeof (value as Node).type === 'string';

const childrenOf = (node: Node): Node[] => Object.values(node).flat().filter(isNode);

/** The identifiers that a pattern binds. */
function boundIn(pattern: unknown): string[] {
  if (!isNode(pattern)) return [];
  switch (pattern.type) {
    case 'Identifier':
      return [pattern.name as string];
    case 'ObjectPattern':
      return (pattern.properties as Node[]).flatMap((each) => boundIn(each.value ?? each.argument));
    case 'ArrayPattern':
      return (pattern.elements as unknown[]).flatMap(boundIn);
    default:
      return boundIn(pattern.left ?? pattern.argument ?? pattern.parameter);
  }
}

/** Declared names: variables, parameters, functions, types, and members of types and classes. Not those of literals. */
function declaredIn(node: Node): string[] {
  const inside = childrenOf(node).flatMap(declaredIn);
  const params = Array.isArray(node.params) ? node.params.flatMap(boundIn) : [];
  const isMember = /^(?:TSPropertySignature|TSMethodSignature|PropertyDefinition|MethodDefinition)$/.test(node.type);
  const member = isMember && isNode(node.key) && typeof node.key.name === 'string' ? [node.key.name] : [];
  return [...boundIn(node.id), ...boundIn(node.param), ...params, ...member, ...inside];
}

/** `name: instead` for each declared name that was replaced. */
const replacedIn = (source: string, lang: 'ts' | 'tsx'): [name: string, instead: string][] =>
  [...new Set(declaredIn(parseAst(source, { lang }) as unknown as Node))].flatMap((name) => {
    const row = REPLACED.find(([replaced]) => replaced.test(name));
    return row ? [[name, row[1]] as [string, string]] : [];
  });

it('design 6: replaced names are not declared again', async () => {
  const found: string[] = [];
  let files = 0;
  for (const top of ['lib', 'handlers', 'cli', 'storage']) {
    const entries = await readdir(join(ROOT, top), { recursive: true, withFileTypes: true });
    for (const { parentPath, name } of entries.filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))) {
      const path = relative(ROOT, join(parentPath, name));
      files++;
      for (const [declared, instead] of replacedIn(
        await readFile(join(ROOT, path), 'utf8'),
        name.endsWith('x') ? 'tsx' : 'ts',
      )) {
        if (!FIXED.includes(`${path} ${declared}`)) found.push(`${path} declares ${declared}; use ${instead}`);
      }
    }
  }
  expect(files).toBeGreaterThan(500);
  expect(found).toEqual([]);
});

it('design 6: the check of names sees every kind of declaration', () => {
  const source = `
interface FooParts { about?: string; tell(): void; fine: UrlParts }
class A { #kept = 1; constructor(private told: string) {} }
const f = ({ heard, a: taken = 1 }: { late: number }, ...places: string[]) => { for (const look of places) ; };
const record = { knock: 1 };
try { f(record.knock); } catch (likely) {}
function startOf([, far]: string[]) {}
type KnockState = 'told';`;
  expect(
    replacedIn(source, 'ts')
      .map(([name]) => name)
      .sort(),
  ).toEqual([
    'FooParts',
    'KnockState',
    'about',
    'far',
    'heard',
    'kept',
    'late',
    'likely',
    'look',
    'places',
    'startOf',
    'taken',
    'tell',
    'told',
  ]);
});

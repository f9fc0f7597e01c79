import { execFile } from 'node:child_process';
import { copyFile, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const BIOME = join(ROOT, 'node_modules/.bin/biome');
const RULES = /^lint\/(?:style\/noRestrictedImports|correctness\/noNodejsModules)$/;

interface Diagnostic {
  category: string;
  severity: string;
  location: { path: string | { file: string } };
}

/** Lints the files of a directory and returns the paths that break one of the rules. */
function lint(directory: string): Promise<string[]> {
  const args = ['lint', '--reporter=json', '--max-diagnostics=none', '.'];
  return new Promise((resolve, reject) => {
    execFile(BIOME, args, { cwd: directory, maxBuffer: 64 * 1024 * 1024 }, (_error, stdout, stderr) => {
      try {
        const { diagnostics } = JSON.parse(stdout) as { diagnostics: Diagnostic[] };
        resolve(
          diagnostics
            .filter(({ category, severity }) => severity === 'error' && RULES.test(category))
            .map(({ location: { path } }) => (typeof path === 'string' ? path : path.file).replace(/^\.\//, '')),
        );
      } catch {
        reject(new Error(`the linter printed no report: ${stdout.slice(0, 2000)} ${stderr.slice(0, 2000)}`));
      }
    });
  });
}

const using = (from: string) => `import * as it from '${from}';\nexport const used = it;\n`;

/** A file and a forbidden import. */
const forbidden: [string, string][] = [
  // The domain knows no transport.
  ['lib/x.ts', '../handlers/routes.ts'],
  ['lib/a/x.ts', '../../handlers/channels/index.ts'],
  ['lib/x.ts', '../cli/main.ts'],
  ['lib/a/x.ts', '../../cli/runtime/node.ts'],
  ['lib/host/node/x.ts', '../../../handlers/routes.ts'],
  ['lib/host/node/x.ts', '../../../cli/main.ts'],
  // The host machine knows no domain.
  ['lib/host/node/x.ts', '../../companion/link/link.ts'],
  ['lib/host/node/x.ts', '../../web/upstream.ts'],
  ['lib/host/node/x.ts', '../../config.ts'],
  ['lib/host/node/x.ts', '../../../lib/relay.ts'],
  ['lib/host/node/x.ts', '../../../storage/index.ts'],
  // Nor does it know the host machine or the storage.
  ['lib/x.ts', './host/node/index.ts'],
  ['lib/a/x.ts', '../host/node/files.ts'],
  ['lib/host/x.ts', './node/index.ts'],
  ['lib/x.ts', '../storage/index.ts'],
  ['lib/a/x.ts', '../../storage/sqlite.ts'],
  ['lib/a/x.ts', '../../storage/sql-driver.ts'],
  // Storage knows keys and values only.
  ['storage/x.ts', '../lib/kit/clock.ts'],
  ['storage/x.ts', '../handlers/routes.ts'],
  ['storage/x.ts', '../cli/main.ts'],
  ['storage/sqlite.ts', '../lib/kit/clock.ts'],
  ['storage/sqlite.ts', '../handlers/routes.ts'],
  ['storage/sqlite.ts', '../cli/main.ts'],
  ['storage/index.ts', './sqlite.ts'],
  // A handler reaches the domain only.
  ['handlers/x.ts', '../cli/main.ts'],
  ['handlers/a/x.ts', '../../cli/runtime/node.ts'],
  ['handlers/x.ts', '../storage/index.ts'],
  ['handlers/x.ts', '../storage/schema.ts'],
  ['handlers/x.ts', '../lib/host/node/index.ts'],
  // The pages run in a browser, which has only pure code in common with the relay.
  ['handlers/web/app/x.ts', '../../routes.ts'],
  ['handlers/web/app/x.ts', '../../../lib/relay.ts'],
  ['handlers/web/app/x.ts', '../../../lib/sessions/sessions.ts'],
  ['handlers/web/console/x.ts', '../../../cli/main.ts'],
  ['handlers/web/shared/x.ts', '../../../storage/schema.ts'],
  ['handlers/web/app/x.ts', '../../../lib/simulated/device.ts'],
  ['handlers/web/shared/x.ts', 'node:fs'],
  // The same code runs at the edge: no Node modules, in either spelling, and no packages that need Node.
  ...['lib/x.ts', 'lib/a/x.ts', 'lib/host/x.ts', 'handlers/x.ts', 'handlers/channels/x.ts', 'storage/x.ts'].flatMap(
    (file) =>
      ['node:fs', 'node:crypto', 'fs', 'fs/promises', 'libsql', 'ws'].map((from): [string, string] => [file, from]),
  ),
];

/** A file and an allowed import. */
const allowed: [string, string][] = [
  ['lib/a/x.ts', '../kit/clock.ts'],
  ['lib/a/x.ts', '../host/index.ts'],
  ['lib/x.ts', 'unstorage'],
  ['lib/x.ts', '../storage/schema.ts'],
  ['lib/a/x.ts', '../../storage/schema.ts'],
  ['lib/host/node/x.ts', 'node:fs'],
  ['lib/host/node/x.ts', '../index.ts'],
  ['lib/host/node/x.ts', './files.ts'],
  ['lib/host/node/x.ts', '../../kit/bytes.ts'],
  ['lib/host/node/x.ts', '../../errors.ts'],
  ['lib/host/node/x.ts', '../../log.ts'],
  ['handlers/x.ts', '../lib/relay.ts'],
  ['handlers/channels/x.ts', '../../lib/socket/channel.ts'],
  ['handlers/web/app/x.ts', '../../../lib/companion/link/link.ts'],
  ['handlers/web/app/x.ts', '../../../lib/kit/clock.ts'],
  ['handlers/web/app/x.ts', '../shared/api.ts'],
  ['handlers/web/app/x.ts', 'preact'],
  ['storage/sqlite.ts', 'node:fs'],
  ['storage/sqlite.ts', 'libsql'],
  ['storage/x.ts', './sql-driver.ts'],
  ['storage/x.ts', 'unstorage'],
  ['cli/runtime/x.ts', '../../lib/host/node/index.ts'],
  ['cli/runtime/x.ts', '../../storage/sqlite.ts'],
  ['cli/x.ts', '../handlers/routes.ts'],
  ['test/x.ts', '../cli/main.ts'],
];

const forms: [string, string][] = [
  ['a type', "import type { Fetch } from '../handlers/routes.ts';\nexport type It = Fetch;\n"],
  ['a re-export', "export * from '../handlers/routes.ts';\n"],
  ['a late import', "export const it = () => import('../handlers/routes.ts');\n"],
  ['a bare import', "import '../handlers/routes.ts';\n"],
];

describe('the linter holds the arrows (design 2)', () => {
  let directory: string;
  let refused: Set<string>;
  const texts = new Map<string, string>();
  /** Writes a case to a numbered file, unless the rules are about the file's very name. */
  const put = (file: string, text: string): string => {
    const path = file.endsWith('/x.ts') ? file.replace(/x\.ts$/, `x${texts.size}.ts`) : file;
    texts.set(path, (texts.get(path) ?? '') + text);
    return path;
  };
  const arrows = (pairs: [string, string][]) =>
    pairs.map(([file, from]): [string, string, string] => [file, from, put(file, using(from))]);
  const bad = arrows(forbidden.filter(([file]) => file.endsWith('/x.ts')));
  const good = arrows(allowed.filter(([file]) => file.endsWith('/x.ts')));
  const written = forms.map(([form, text]): [string, string] => [form, put('lib/x.ts', text)]);
  /** Cases about one named file need a lint run each. */
  const named = [
    ...forbidden.map((pair) => [...pair, true] as const),
    ...allowed.map((pair) => [...pair, false] as const),
  ].filter(([file]) => !file.endsWith('/x.ts'));

  async function prepare(files: Iterable<[string, string]>): Promise<string> {
    const path = await mkdtemp(join(tmpdir(), 'svc-relay-lint-'));
    await copyFile(join(ROOT, 'biome.json'), join(path, 'biome.json'));
    for (const [file, text] of files) {
      await mkdir(dirname(join(path, file)), { recursive: true });
      await writeFile(join(path, file), text);
    }
    return path;
  }

  beforeAll(async () => {
    directory = await prepare(texts);
    refused = new Set(await lint(directory));
  });
  afterAll(() => rm(directory, { recursive: true, force: true }));

  it.each(bad)('%s may not import %s', (_file, _from, path) => {
    expect(refused).toContain(path);
  });

  it.each(good)('%s may import %s', (_file, _from, path) => {
    expect(refused).not.toContain(path);
  });

  it.each(written)('%s is an import too', (_form, path) => {
    expect(refused).toContain(path);
  });

  it.each(named)('%s, importing %s, is refused: %s', async (file, from, isRefused) => {
    const own = await prepare([[file, using(from)]]);
    try {
      expect(await lint(own)).toEqual(isRefused ? [file] : []);
    } finally {
      await rm(own, { recursive: true, force: true });
    }
  });
});

it('design 4: the schema of the stores, which lib/ may import, holds types only', async () => {
  expect(Object.keys(await import('../../storage/schema.ts'))).toEqual([]);
});

/** The sources are formatted, so top-level declarations are those that begin in the first column. */
const DECLARATIONS = [
  /^(?:export )?(?:let|var)\b/,
  /^(?:export )?const \w+(?:: [^=]+)? = new (?:Map|Set|WeakMap|WeakSet)(?:<.*>)?\(\)/,
  /^(?:export )?const \w+(?:: [^=]+)? = (?:\[\]|\{\});/,
  /^ {2}static (?!readonly\b|.*\()/,
];
const CONSTANT = /^(?:export )?const (\w+)(?:: [^=]+)? = (?!.*=>)/;
const MUTATORS = 'set|add|delete|clear|append|push|pop|shift|unshift|splice|sort|reverse|fill|copyWithin';

/** Mutations of a top-level constant: calls that change it, assignments to its members, and `Object.assign`. */
const mutationOf = (name: string) =>
  new RegExp(
    `(?<![\\w.$])${name}(?:\\.(?:${MUTATORS})\\(|(?:\\.\\w+|\\[[^\\]]*\\]) (?:[-+*/|&^?]|\\|\\||&&|\\?\\?)?= |(?:\\.\\w+|\\[[^\\]]*\\])(?:\\+\\+|--))|Object\\.assign\\(${name},`,
  );

function statesOf(text: string): string[] {
  const lines = text.split('\n');
  const mutations = lines.map((line) => CONSTANT.exec(line)?.[1]).filter((name) => name !== undefined);
  const patterns = [...DECLARATIONS, ...mutations.map(mutationOf)];
  return lines.filter((line) => patterns.some((pattern) => pattern.test(line)));
}

describe('design 2: no module-level mutable state', () => {
  it.each(['lib', 'handlers', 'storage', 'cli'])('%s has none', async (room) => {
    const entries = await readdir(join(ROOT, room), { recursive: true, withFileTypes: true });
    const files = entries.filter((entry) => entry.isFile() && /\.m?tsx?$|\.mjs$/.test(entry.name));
    expect(files.length).toBeGreaterThan(3);
    const found: string[] = [];
    for (const file of files) {
      const path = join(file.parentPath, file.name);
      for (const line of statesOf(await readFile(path, 'utf8'))) found.push(`${relative(ROOT, path)}: ${line}`);
    }
    expect(found).toEqual([]);
  });

  it('the search finds every form of it', () => {
    const states = [
      ['let a = 1;'],
      ['export var b;'],
      ['const c = new Map();'],
      ['export const d: Set<string> = new Set<string>();'],
      ['const e: string[] = [];'],
      ['export const f: Record<string, number> = {};'],
      ['const g = new Map([[1, 2]]);', '  g.set(3, 4);'],
      ['const h = [1];', 'export const add = (x: number) => h.push(x);'],
      ['const i = { count: 0 };', '  i.count += 1;'],
      ['const j = { count: 0 };', '  j.count++;'],
      ['const k = [0];', '  k[at] = 1;'],
      ['const l = { x: 1 };', '  Object.assign(l, { x: 2 });'],
      ['class M {', '  static last = 0;', '}'],
    ];
    expect(states.filter((lines) => statesOf(lines.join('\n')).length !== 1)).toEqual([]);
    const stateless = [
      ['  let a = 1;'],
      ['const NAMES = new Set(["x"]);', 'const has = NAMES.has("y");'],
      ['export const make = () => new Map();'],
      ['letter();'],
      ['const TABLE = [3, 1];', 'const sorted = TABLE.toSorted();', 'if (TABLE.length === 2) run();'],
      ['const set = (map) => {', '  other.set(1, 2);', '};'],
      ['class N {', '  static readonly size = 1;', '  static of() {}', '}'],
    ];
    expect(stateless.flatMap((lines) => statesOf(lines.join('\n')))).toEqual([]);
  });
});

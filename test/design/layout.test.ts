import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

interface TestFile {
  /** Path below the given root. */
  path: string;
  text: string;
}

async function filesBelow(folder: string): Promise<TestFile[]> {
  const entries = await readdir(join(ROOT, folder), { recursive: true, withFileTypes: true });
  const paths = entries.filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name));
  return Promise.all(paths.map(async (path) => ({ path: relative(ROOT, path), text: await readFile(path, 'utf8') })));
}

/** Paths that a file imports by relative specifiers, below the root. */
function importsOf({ path, text }: TestFile): string[] {
  const specifiers = [...text.matchAll(/(?:from|import\()\s*'(\.[^']*)'/g)].map((match) => match[1] as string);
  return specifiers.map((specifier) => join(dirname(path), specifier));
}

/** Test files that import nothing from the folder that theirs mirrors, directly or through helpers beside them. */
function strangers(files: TestFile[]): string[] {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const reaches = (file: TestFile, folder: string): boolean =>
    importsOf(file).some((path) => {
      const helper = byPath.get(path);
      return path.startsWith(`${folder}/`) || (helper !== undefined && reaches(helper, folder));
    });
  return files
    .filter((file) => file.path.endsWith('.test.ts') && !reaches(file, dirname(file.path).replace(/^test\//, '')))
    .map(({ path }) => path);
}

/** In a shared process, a module keeps what it imported for the file before: whether a mock takes hold is chance. */
const replacesModule = ({ text }: TestFile): boolean => /\bvi\.(do)?mock\(/i.test(text);

it('design 1: every folder of test/lib has its counterpart in lib', async () => {
  const folders = new Set((await filesBelow('test/lib')).map(({ path }) => dirname(path).replace(/^test\//, '')));
  expect(folders.size).toBeGreaterThan(10);
  expect([...folders].filter((folder) => !existsSync(join(ROOT, folder)))).toEqual([]);
});

it('design 1: every file of test/lib tests the folder of lib that it mirrors', async () => {
  expect(strangers(await filesBelow('test/lib'))).toEqual([]);
});

it('design 1: the search for misplaced files finds one', () => {
  const file = (path: string, imported: string) => ({ path, text: `import { it } from '${imported}';\n` });
  const right = file('test/lib/a/x.test.ts', '../../../lib/a/x.ts');
  const helper = file('test/lib/a/support.ts', '../../../lib/a/x.ts');
  const helped = file('test/lib/a/y.test.ts', './support.ts');
  const wrong = file('test/lib/b/x.test.ts', '../../../lib/a/x.ts');
  expect(strangers([right, helper, helped, wrong])).toEqual([wrong.path]);
});

it('design 8: no file that shares its process with others replaces a module', async () => {
  const files = (await filesBelow('test')).filter(({ path }) => /(?<!\.long)\.test\.ts$/.test(path));
  expect(files.filter(replacesModule).map(({ path }) => path)).toEqual([]);
});

it('design 8: the search for replaced modules finds one', () => {
  const path = 'test/x.test.ts';
  expect(replacesModule({ path, text: `vi.${'doMock'}('./a.ts');` })).toBe(true);
  expect(replacesModule({ path, text: 'vi.fn();' })).toBe(false);
});

import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { loadPages } from '../../cli/runtime/node/pages.ts';
import { LANGUAGES } from '../../handlers/web/shared/i18n.ts';
import { fromBase64 } from '../../lib/kit/bytes.ts';

const KB = 1024;
const files = await loadPages();
const sizeOf = (path: string): number => {
  const file = files.find((file) => file.path === path);
  if (!file) throw new Error(`${path} is not built`);
  return (fromBase64(file.gzip) as Uint8Array).length;
};
const textOf = async (path: string): Promise<string> => {
  const bytes = fromBase64(files.find((file) => file.path === path)?.gzip ?? '') as Uint8Array;
  return new Response(new Blob([bytes as BlobPart]).stream().pipeThrough(new DecompressionStream('gzip'))).text();
};

/** The scripts that a document names: what has to arrive before anything is shown. */
async function shellOf(page: string): Promise<string[]> {
  const document = await textOf(`${page}/`);
  return [...document.matchAll(/src="([^"]+\.js)"/g)].map(([, name]) => `${page}/${name}`);
}

const total = (paths: string[]): number => paths.reduce((sum, path) => sum + sizeOf(path), 0);
const named = (page: string, pattern: RegExp): string[] =>
  files.map(({ path }) => path).filter((path) => path.startsWith(`${page}/`) && pattern.test(path));

it.each(['app', 'console'])('issue 17: the shell of the %s is at most 45 KB, its styles 12 KB', async (page) => {
  const shell = await shellOf(page);
  expect(shell.map((path) => path.replace(/-.*/, ''))).toEqual(
    page === 'app' ? ['app/early', 'app/main'] : ['console/main'],
  );
  for (const path of shell) expect(await textOf(path)).not.toMatch(/(?:from|import)"\.\//);
  expect(total(shell)).toBeLessThan(45 * KB);
  // A schema that a shared module makes would bring valibot with it, 2.5 KB.
  for (const path of shell) expect(await textOf(path)).not.toContain('"~run"');
  const styles = named(page, /\.css$/);
  expect(styles).toHaveLength(1);
  expect(total(styles)).toBeLessThan(12 * KB);
});

it('no screen requests a chunk with nothing but constants: the shell has them', () => {
  const chunks = named('app', /\/chunk-/);
  expect(chunks).not.toEqual([]);
  expect(chunks.filter((path) => sizeOf(path) < 200)).toEqual([]);
});

/** A chunk of the app that holds a text, and what it needs beside the shell. */
async function chunkOf(text: string): Promise<string[]> {
  const scripts = named('app', /\.js$/);
  const texts = new Map(await Promise.all(scripts.map(async (path) => [path, await textOf(path)] as const)));
  const found = new Set(scripts.filter((path) => texts.get(path)?.includes(text)));
  for (const path of found) {
    for (const [, name] of texts.get(path)?.matchAll(/(?:from|import)"\.\/([^"]+)"/g) ?? []) found.add(`app/${name}`);
  }
  const shell = new Set(await shellOf('app'));
  return [...found].filter((path) => !shell.has(path));
}

it('issue 17: the terminal is at most 110 KB', async () => {
  expect(await chunkOf('xterm-helper-textarea')).not.toEqual([]);
  expect(total(await chunkOf('terminal-screen'))).toBeGreaterThan(80 * KB);
  expect(total(await chunkOf('terminal-screen'))).toBeLessThan(110 * KB);
});

it('contract 10 §3: the chat is at most 40 KB, Markdown in it', async () => {
  const chat = await chunkOf('blockquote');
  expect(total(chat)).toBeGreaterThan(15 * KB);
  expect(total(chat)).toBeLessThan(40 * KB);
});

it('issue 17: the reader of QR codes is at most 16 KB', () => {
  const reader = named('app', /\/qr-reader-/);
  expect(reader).toHaveLength(1);
  expect(total(reader)).toBeLessThan(16 * KB);
});

it('issue 17: every name but those that a browser asks for again holds a hash', () => {
  const fixed = files.filter(({ immutable }) => !immutable).map(({ path }) => path);
  expect(fixed.toSorted()).toEqual([
    'app/',
    'app/icon-192.png',
    'app/icon-512.png',
    'app/icon.svg',
    'app/manifest.webmanifest',
    'app/sw-off.js',
    'app/sw.js',
    'console/',
    'console/icon.svg',
  ]);
  for (const { path, immutable } of files) expect([path, /-[A-Z0-9]{8}\.\w+$/.test(path)]).toEqual([path, immutable]);
});

it('issue 17: what is sent is as small as it can be', () => {
  for (const { path, br, gzip } of files) expect([path, br.length <= gzip.length * 1.01 + 64]).toEqual([path, true]);
});

/** Sentences of the sources: what `t` is called with, and the titles of the screen tables. */
async function sentencesOf(folders: string[]): Promise<string[]> {
  const found = new Set<string>();
  for (const folder of folders) {
    const root = fileURLToPath(new URL(`../../handlers/web/${folder}/`, import.meta.url));
    const entries = await readdir(root, { recursive: true, withFileTypes: true });
    for (const entry of entries.filter(({ name }) => /\.tsx?$/.test(name))) {
      const text = await readFile(join(entry.parentPath, entry.name), 'utf8');
      for (const [, , quoted = ''] of text.matchAll(/(\bt\(\s*|\btitle: )'((?:[^'\\]|\\.)+)'/g)) {
        found.add(quoted.replace(/\\(.)/g, '$1'));
      }
    }
  }
  return [...found];
}

const CJK = String.raw`\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}`;

/** Characters that no translation into a language holds, so that a row with its columns in another order is found. */
const FOREIGN: Readonly<Record<string, RegExp>> = {
  de: new RegExp(`[ñãõçáéíóúâêà¿¡${CJK}]`, 'u'),
  es: new RegExp(`[äößãõçâêà${CJK}]`, 'u'),
  // Simplified characters that Japanese writes otherwise.
  ja: /[À-ÖØ-öø-ÿ这们吗请设备连时间无页应发现后对话权级码证书关开读问题车门]/u,
  pt: new RegExp(`[ñäöß¿¡${CJK}]`, 'u'),
  // Japanese and traditional forms of characters that Simplified Chinese writes otherwise.
  zh: /[À-ÖØ-öø-ÿ\p{Script=Hiragana}\p{Script=Katakana}設備連時間無頁応應発發後対對話権權級碼証證書関關開読讀問題検檢続済気経変込]/u,
};

/** Text with letters beyond ASCII is in the script of its language. */
const OWN_SCRIPT: Readonly<Record<string, RegExp>> = {
  ja: /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}]/u,
  zh: /\p{Script=Han}/u,
};

it.each(['app', 'console'])(
  'issue 17: every sentence of the %s has its translations, with the same values',
  async (page) => {
    const main = await readFile(new URL(`../../handlers/web/${page}/main.tsx`, import.meta.url), 'utf8');
    const areas = ['common', ...[...main.matchAll(/locales\/(\w+)\.ts/g)].map(([, area]) => area)];
    const tables = await Promise.all(areas.map((area) => import(`../../handlers/web/shared/locales/${area}.ts`)));
    const all = tables.flatMap(({ default: table }) => Object.entries<string[]>(table));
    const rows = new Map(all);
    const repeated = all.map(([sentence]) => sentence).filter((sentence, at, list) => list.indexOf(sentence) !== at);
    expect(repeated, 'sentences of two tables').toEqual([]);
    const sentences = await sentencesOf(['shared', page]);
    expect(sentences.length).toBeGreaterThan(10);
    expect(sentences.filter((sentence) => !rows.has(sentence))).toEqual([]);
    const languages = Object.keys(LANGUAGES).filter((language) => language !== 'en');
    expect(languages).toEqual(Object.keys(FOREIGN));
    const valuesOf = (text: string) => (text.match(/\{\w+\}/g) ?? []).toSorted();
    for (const [sentence, row] of rows) {
      expect(row).toHaveLength(languages.length);
      for (const text of row) expect([text, valuesOf(text)]).toEqual([text, valuesOf(sentence)]);
      for (const [at, language] of languages.entries()) {
        const text = row[at] ?? '';
        const isPlain = !/[^\P{Letter}A-Za-z]/u.test(text);
        expect([language, text, FOREIGN[language]?.exec(text)?.[0]]).toEqual([language, text, undefined]);
        expect([language, text, isPlain || (OWN_SCRIPT[language]?.test(text) ?? true)]).toEqual([language, text, true]);
      }
    }
  },
);

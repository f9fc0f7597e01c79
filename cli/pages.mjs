/**
 * Builds the pages of `handlers/web` into one module, `export const files = [...]`, which the relay reads when a browser
 * asks for a page, and which is part of the Worker's bundle at the edge (`PageFile` of `lib/web/pages.ts`). Used by
 * `bundle.mjs`.
 */
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { drawIcon } from './page-icons.mjs';

const WEB = 'handlers/web';

/** Pages, and the files that they have as they are, under names that never change. */
const PAGES = {
  app: ['../shared/icon.svg', 'manifest.webmanifest'],
  console: ['../shared/icon.svg'],
};

const TYPES = {
  css: 'text/css; charset=utf-8',
  html: 'text/html; charset=utf-8',
  js: 'text/javascript; charset=utf-8',
  png: 'image/png',
  svg: 'image/svg+xml',
  webmanifest: 'application/manifest+json',
};

/** Browsers since spring 2023, the first with everything that the pages use. */
const TARGET = ['chrome111', 'firefox113', 'safari16.4'];

/**
 * xterm 6.0 sets colours by the style attribute, which the policy of the pages forbids. Through the style object it may.
 */
// biome-ignore lint/suspicious/noTemplateCurlyInString: it is a template in xterm
const XTERM_STYLES = 't.setAttribute("style",`${t.getAttribute("style")||""}${e};`)';

const xtermStyles = {
  name: 'xterm-styles',
  setup(build) {
    build.onLoad({ filter: /@xterm\/xterm\/lib\/xterm\.mjs$/ }, async ({ path }) => {
      const [before, after, ...more] = (await readFile(path, 'utf8')).split(XTERM_STYLES);
      if (after === undefined || more.length > 0)
        throw new Error('xterm no longer sets styles as cli/pages.mjs expects');
      return { contents: `${before}t.style.cssText+=e${after}` };
    });
  },
};

const digest = (content) => createHash('sha256').update(content).digest('hex').slice(0, 16);
const toBrotli = promisify(brotliCompress);
const toGzip = promisify(gzip);

/** Writes the module and returns esbuild's results, whose metafiles name the packages inside. */
export async function buildPages(root, file) {
  const { build } = await import('esbuild');
  const { version } = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
  const options = {
    absWorkingDir: root,
    bundle: true,
    minify: true,
    platform: 'browser',
    format: 'esm',
    target: TARGET,
    plugins: [xtermStyles],
    jsx: 'automatic',
    jsxImportSource: 'preact',
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
    write: false,
    define: { __VERSION__: JSON.stringify(version) },
  };
  const [worklet, early] = await Promise.all([
    buildAlone(build, options, 'microphone', 'app/voice/worklet.ts'),
    buildAlone(build, options, 'early', 'app/early.ts'),
  ]);
  options.define.__WORKLET__ = JSON.stringify(basename(worklet.path));
  const scripts = { early: basename(early.path) };
  const results = await Promise.all(
    Object.entries(PAGES).map(([page, fixed]) => buildPage(build, options, root, page, { fixed, scripts })),
  );
  const [app] = results;
  const alone = [worklet, early];
  const extra = [...alone, ...icons(), ...(await buildWorkers(build, options, [...app.files, ...alone]))];
  const rows = await Promise.all([...results.flatMap(({ files }) => files), ...extra].map(rowOf));
  await writeFile(file, `export const files = ${JSON.stringify(rows)};\n`);
  return { metafile: { inputs: Object.assign({}, ...results.map(({ inputs }) => inputs)), outputs: {} } };
}

const outputsOf = ({ outputs }) =>
  Object.entries(outputs).map(([path, output]) => ({ ...output, name: basename(path) }));

/** The files of one page: chunks and styles under names with a hash, and the document that names them. */
async function buildPage(build, options, root, page, { fixed, scripts }) {
  const source = (name) => join(WEB, page, name);
  const main = source('main.tsx');
  const all = {
    ...options,
    entryPoints: { main, style: source('style.css') },
    outdir: `/${page}`,
    splitting: true,
    entryNames: '[name]-[hash]',
    chunkNames: '[name]-[hash]',
  };
  const { metafile: loose } = await build(all);
  const joined = joinShell(
    root,
    main,
    outputsOf(loose).flatMap(({ entryPoint }) => entryPoint ?? []),
  );
  const { outputFiles, metafile } = await build({ ...all, plugins: [...options.plugins, joined] });
  const outputs = outputsOf(metafile);
  const nameOf = (entry) => outputs.find(({ entryPoint }) => entryPoint === source(entry)).name;
  const entry = nameOf('main.tsx');
  const [shell, ...others] = staticImports(outputs, entry);
  if (!shell || others.length > 0) throw new Error(`the shell of the ${page} is not one chunk`);
  // What is left of the entry does nothing but import it.
  const named = (text) => text.replaceAll(shell, shell.replace('chunk', 'main'));
  const document = (await readFile(join(root, source('index.html')), 'utf8'))
    .replaceAll('{style}', nameOf('style.css'))
    .replaceAll('{early}', scripts.early)
    .replaceAll('{main}', named(shell));
  const files = outputFiles
    .filter(({ path }) => basename(path) !== entry)
    .map(({ path, contents, text }) => ({
      path: `${page}/${named(basename(path))}`,
      contents: path.endsWith('.js') ? Buffer.from(named(text)) : contents,
      immutable: true,
    }));
  for (const name of fixed) {
    const contents = await readFile(join(root, source(name)));
    files.push({ path: `${page}/${basename(name)}`, contents, immutable: false });
  }
  files.push({ path: `${page}/`, contents: Buffer.from(document), immutable: false });
  return { files, inputs: metafile.inputs };
}

const icons = () =>
  [192, 512].map((size) => ({ path: `app/icon-${size}.png`, contents: drawIcon(size), immutable: false }));

/** A script of its own that shares no chunk with the app. The page that names it is built after it. */
async function buildAlone(build, options, name, source) {
  const { outputFiles } = await build({
    ...options,
    entryPoints: { [name]: join(WEB, source) },
    outdir: '/app',
    entryNames: '[name]-[hash]',
  });
  const [{ path, contents }] = outputFiles;
  return { path: `app/${basename(path)}`, contents, immutable: true };
}

/** The service worker of the app, which stores all of its files, and what takes its place when it is turned off. */
async function buildWorkers(build, options, files) {
  const stored = files.map(({ path }) => path.replace('app/', '')).filter((name) => name !== '');
  const { outputFiles } = await build({
    ...options,
    entryPoints: [join(WEB, 'app/sw.ts'), join(WEB, 'app/sw-off.ts')],
    outdir: '/app',
    format: 'iife',
    define: {
      ...options.define,
      __FILES__: JSON.stringify(stored),
      __BUILD__: JSON.stringify(digest(files.map(({ contents }) => digest(contents)).join())),
    },
  });
  return outputFiles.map(({ path, contents }) => ({ path: `app/${basename(path)}`, contents, immutable: false }));
}

/**
 * Puts everything that the shell needs into one chunk. esbuild makes one for each set of files that
 * share a module, 19 for the shell of the app, each of which costs a request. What is loaded later runs after the shell in
 * any case: when it says so, every module of the shell is shared by the same files.
 */
function joinShell(root, main, entries) {
  const lazy = new Set(
    entries.filter((path) => path !== main && !path.endsWith('.css')).map((path) => join(root, path)),
  );
  return {
    name: 'join-shell',
    setup(build) {
      build.onLoad({ filter: /\.tsx?$/ }, async ({ path }) => {
        if (!lazy.has(path)) return undefined;
        const contents = `${await readFile(path, 'utf8')}\nimport ${JSON.stringify(join(root, main))};\n`;
        return { contents, loader: path.endsWith('x') ? 'tsx' : 'ts' };
      });
    },
  };
}

/** Chunks that a file needs before it runs: without a hint, the browser would find them one after the other. */
function staticImports(outputs, entry) {
  const found = new Set();
  const visit = (name) => {
    const { imports } = outputs.find((output) => output.name === name);
    for (const { path, kind } of imports) {
      const chunk = basename(path);
      if (kind !== 'import-statement' || found.has(chunk)) continue;
      found.add(chunk);
      visit(chunk);
    }
  };
  visit(entry);
  return [...found];
}

async function rowOf({ path, contents, immutable }) {
  const [br, gz] = await Promise.all([
    toBrotli(contents, { params: { [constants.BROTLI_PARAM_SIZE_HINT]: contents.length } }),
    toGzip(contents, { level: 9 }),
  ]);
  const type = TYPES[path.endsWith('/') ? 'html' : path.split('.').at(-1)];
  if (!type) throw new Error(`no media type is known for ${path}`);
  return {
    path,
    type,
    hash: digest(contents),
    immutable,
    br: br.toString('base64'),
    gzip: gz.toString('base64'),
  };
}

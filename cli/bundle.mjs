/** Bundles of the build, and the licences of the packages inside them. Used by `build.mjs`. */
import { copyFile, readdir, readFile, writeFile } from 'node:fs/promises';
import { builtinModules } from 'node:module';
import { basename, join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { mergeChunks } from './chunks.mjs';
import { buildPages } from './pages.mjs';

/** Entry points by their names in the build folder. The relay is one so that its file has a fixed name. */
const ENTRIES = {
  svc: 'cli/svc.ts',
  'svc-relay': 'cli/svc-relay.ts',
  relay: 'cli/runtime/node/relay.ts',
  compat: 'cli/compat/index.ts',
  'dashboard-plugin': 'cli/dashboard/plugin.ts',
  // Run by the build alone.
  man: 'cli/man.ts',
};

/** Source files that are entry points of the commands and of `svc relay start`: see `mergeChunks`. */
const PROGRAMS = [ENTRIES.svc, ENTRIES['svc-relay']];
const RELAY = ['cli/start.ts', ENTRIES.relay, 'storage/sqlite.ts'];

/** Packages that a thread loads by the path of their file: `packageFile` of `lib/host/node` finds it in the bundle. */
const THREAD_PACKAGES = ['yaml'];

const TAB = 'cli/dashboard/tab.ts';

/** Native code cannot be bundled. These two are `dependencies`, every other package is bundled. */
const NATIVE = ['libsql', '@lydell/node-pty'];

/** An optional part of `ws` that is not installed. */
const ABSENT = ['utf-8-validate'];

/** Stands in for `bufferutil`, another one, which is native code. */
const MASK = 'cli/runtime/node/mask.ts';

/**
 * Packages behind features of listhen that the relay never uses: self-signed certificates, a development server,
 * tunnels, the clipboard, messages on the console. They are a third of the bundle.
 */
const UNUSED = ['node-forge', 'jiti', '@parcel/watcher-wasm', 'untun', 'tinyclip', 'consola'];

/** The MP3 encoder is LGPL: its file stays apart and unchanged, so that anybody can put another version in its place. */
export const REPLACEABLE = 'lamejs.js';
const LAMEJS = '@breezystack/lamejs';
const LAMEJS_FILE = `node_modules/${LAMEJS}/dist/lamejs.js`;

export const LICENSES = 'LICENSES.txt';

/** CommonJS packages in the bundle call `require` for Node's own modules. */
const BANNER = `import { createRequire as createBundleRequire } from 'node:module';
const require = createBundleRequire(import.meta.url);
`;
const withBanner = (text) => (/\brequire\b/.test(text) ? BANNER + text : text);

/**
 * Files of pinned packages that the bundle contains in another form. The copy of `ws` in crossws would be a second one
 * beside the package. Its stub of a request takes the prototype of the global `Request`, which loads all of Node's fetch
 * at the start of the relay (30 ms): the stub has every member of its own, and crossws never asks what it is an instance of.
 */
const CHANGED = [
  {
    filter: /[\\/]crossws[\\/]dist[\\/]_chunks[\\/]libs[\\/]ws\.mjs$/,
    change: (text) => {
      if (!text.endsWith('export{w as import_websocket,T as import_websocket_server};')) return undefined;
      return `import WebSocket, { WebSocketServer } from 'ws';
        export const import_websocket = { default: WebSocket };
        export const import_websocket_server = { default: WebSocketServer };`;
    },
  },
  {
    filter: /[\\/]crossws[\\/]dist[\\/]_chunks[\\/]_request\.mjs$/,
    change: (text) => {
      const statement = 'Object.setPrototypeOf(StubRequest.prototype, globalThis.Request.prototype);';
      return text.includes(statement) ? text.replace(statement, '') : undefined;
    },
  },
];

const pattern = (names) => new RegExp(`^(?:${names.map((name) => name.replaceAll('/', '\\/')).join('|')})(?:\\/|$)`);

const packages = {
  name: 'packages',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: pattern([LAMEJS]) }, () => ({ path: `./${REPLACEABLE}`, external: true }));
    onResolve({ filter: pattern(UNUSED) }, ({ path }) => ({ path, namespace: 'unused' }));
    onLoad({ filter: /./, namespace: 'unused' }, ({ path }) => ({
      contents: `module.exports = new Proxy({}, { get(_, name) {
        if (typeof name === 'symbol' || name === 'default' || name === '__esModule') return undefined;
        throw new Error(${JSON.stringify(`svc-relay is built without ${path}`)});
      } });`,
      loader: 'js',
    }));
    for (const { filter, change } of CHANGED) {
      onLoad({ filter }, async ({ path }) => {
        const contents = change((await readFile(path, 'utf8')).trimEnd());
        if (contents === undefined) throw new Error(`${path} is not as it was when the bundle was made to change it`);
        return { contents, loader: 'js' };
      });
    }
  },
};

/** Fills an empty folder with a build of the sources below `root`. */
export async function bundle(root, folder) {
  const { build } = await import('esbuild');
  const common = {
    absWorkingDir: root,
    outdir: folder,
    bundle: true,
    // Names stay: they are in the stack of an error that somebody reports.
    minifyWhitespace: true,
    minifySyntax: true,
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
  };
  const external = [...NATIVE, ...ABSENT];
  const node = { ...common, platform: 'node', target: 'node20.19', external, alias: { bufferutil: join(root, MASK) } };
  const results = await Promise.all([
    bundleProgram(build, node, folder),
    build({
      ...node,
      entryPoints: Object.fromEntries(THREAD_PACKAGES.map((name) => [name, name])),
      format: 'cjs',
      outExtension: { '.js': '.cjs' },
    }),
    // The tab runs in a browser, so that it is a bundle of its own.
    build({ ...common, entryPoints: { tab: TAB }, format: 'esm', platform: 'browser', target: 'es2022' }),
    buildPages(root, join(folder, 'pages.js')),
    copyFile(join(root, LAMEJS_FILE), join(folder, REPLACEABLE)),
  ]);
  const metafiles = results.flatMap((result) => (result?.metafile ? [result.metafile] : []));
  checkExternals(metafiles);
  const inputs = [LAMEJS_FILE, ...metafiles.flatMap(({ inputs }) => Object.keys(inputs))];
  await writeFile(join(folder, LICENSES), await licencesOf(root, inputs));
}

/** Writes everything that runs on Node, as ES modules. Returns esbuild's result. */
async function bundleProgram(build, options, folder) {
  const result = await build({
    ...options,
    entryPoints: ENTRIES,
    splitting: true,
    format: 'esm',
    plugins: [packages],
    chunkNames: '[name]-[hash]',
    write: false,
  });
  const files = await mergeChunks({
    outputs: new Map(result.outputFiles.map(({ path, text }) => [basename(path), text])),
    metafile: result.metafile,
    programs: PROGRAMS,
    relay: RELAY,
    async bundleChunks(contents, load) {
      const chunks = {
        name: 'chunks',
        setup({ onResolve, onLoad }) {
          onResolve({ filter: /./ }, ({ path }) =>
            load(basename(path)) === undefined ? { path, external: true } : { path, namespace: 'chunk' },
          );
          onLoad({ filter: /./, namespace: 'chunk' }, ({ path }) => ({ contents: load(basename(path)) }));
        },
      };
      const { outputFiles } = await build({
        ...options,
        stdin: { contents },
        format: 'esm',
        plugins: [chunks],
        write: false,
      });
      return outputFiles[0].text;
    },
  });
  for (const [name, text] of files) await writeFile(join(folder, name), withBanner(text));
  return result;
}

/** Fails for a package that the bundle would look for where nothing installs it. */
function checkExternals(metafiles) {
  const known = new Set([...NATIVE, ...ABSENT, `./${REPLACEABLE}`, ...builtinModules]);
  for (const { outputs } of metafiles) {
    for (const { path, external } of Object.values(outputs).flatMap(({ imports }) => imports)) {
      const isKnown = known.has(path) || path.startsWith('node:') || NATIVE.some((name) => path.startsWith(`${name}/`));
      if (external && !isKnown) throw new Error(`${path} is not in the bundle`);
    }
  }
}

const HEAD = `Licences of the packages that svc-relay contains. Its own licence is in LICENSE.

${LAMEJS} is under the GNU Lesser General Public License, version 3. It is the file ${REPLACEABLE} beside the other files of the
build, unchanged, and no other file contains any of it. To use another version, put its ES module in the place of that
file; of the module, the relay uses the class Mp3Encoder.
`;

const PACKAGE = /^(.*node_modules\/((?:@[^/]+\/)?[^/]+))\//;
const LICENCE_FILE = /^(?:licen[cs]e|copying|notice|third-party)[^/]*$/i;

/** What the whole text of a licence contains, and the files in `licenses` that stand in for a package without it. */
const WHOLE = {
  MIT: { contains: /Permission is hereby granted/, files: [] },
  ISC: { contains: /Permission to use, copy/, files: [] },
  // The first one is chosen.
  '(MIT OR Apache-2.0)': { contains: /Permission is hereby granted/, files: [] },
  '0BSD': { contains: /Permission to use, copy/, files: [] },
  'BSD-3-Clause': { contains: /Redistribution and use/, files: [] },
  'Apache-2.0': { contains: /TERMS AND CONDITIONS FOR USE/i, files: ['Apache-2.0.txt'] },
  // It adds to the GPL, which goes with it (section 4 b).
  'LGPL-3.0': { contains: /GNU LESSER GENERAL PUBLIC LICENSE\s+Version 3/, files: ['LGPL-3.0.txt', 'GPL-3.0.txt'] },
};

/** One text with the licence of every package that these files belong to. */
async function licencesOf(root, files) {
  const directories = [...new Set(files.flatMap((file) => PACKAGE.exec(file)?.[1] ?? []))];
  const entries = await Promise.all(directories.map((directory) => licenceOf(root, directory)));
  const unique = new Map(entries.map((entry) => [entry.title, entry.text]));
  const sections = [...unique].sort(([a], [b]) => (a < b ? -1 : 1));
  return [HEAD, ...sections.map(([title, text]) => `${'-'.repeat(80)}\n${title}\n\n${text.trim()}\n`)].join('\n');
}

/** The texts that a package brings along and, where they do not contain the whole licence, its standard text. */
async function licenceOf(root, path) {
  const directory = join(root, path);
  const { name, version, license, author } = JSON.parse(await readFile(join(directory, 'package.json'), 'utf8'));
  const texts = [];
  for (const place of [directory, join(directory, 'dist')]) {
    for (const file of (await readdir(place).catch(() => [])).sort()) {
      if (!LICENCE_FILE.test(file)) continue;
      const content = await readFile(join(place, file));
      texts.push((file.endsWith('.gz') ? gunzipSync(content) : content).toString('utf8').trim());
    }
  }
  const whole = WHOLE[license];
  if (!whole) throw new Error(`${name} is under ${license}: say in bundle.mjs what its text contains`);
  if (!texts.some((text) => whole.contains.test(text))) {
    const by = typeof author === 'string' ? author : author?.name;
    if (license === 'MIT') texts.push(`Copyright (c) ${by ?? `the authors of ${name}`}`, await mitText(root));
    else if (whole.files.length === 0) throw new Error(`${name} does not contain the text of its licence, ${license}`);
    for (const file of whole.files) texts.push((await readFile(join(root, 'cli/licenses', file), 'utf8')).trimEnd());
  }
  return { title: `${name} ${version} (${license})`, text: texts.join('\n\n') };
}

/** The licence of svc-relay, which is the same, from its first sentence on. */
async function mitText(root) {
  const text = await readFile(join(root, 'LICENSE'), 'utf8');
  return text.slice(text.search(WHOLE.MIT.contains)).trimEnd();
}

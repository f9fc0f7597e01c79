/**
 * Merges small chunks of a build. esbuild makes one chunk per set of entry points that share code: with fifty commands,
 * `svc relay start` would resolve and load sixty files, at about a millisecond each. Used by `bundle.mjs`.
 */
import { posix } from 'node:path';

/** Bytes up to which a chunk of the relay is merged, although a command that needs it then loads the others too. */
const SMALL = 20_000;

const IMPORT = /\b(import|export)\{([^{}]*)\}from"\.\/([^"]+)";/g;
const BARE_IMPORT = /\bimport"\.\/([^"]+)";/g;

/**
 * Merges chunks into two files: `program.js`, code that each of `programs` loads at its start, and `common.js`, small
 * chunks of what `relay` loads besides. `programs` and `relay` are source files that are entry points.
 * @param outputs text by file name
 * @param metafile esbuild's description of these outputs
 * @param bundleChunks bundles one module, given as text, with `load(name)` for files of the group; others stay imports
 * @returns text by file name
 */
export async function mergeChunks({ outputs, metafile, programs, relay, bundleChunks }) {
  const graph = readGraph(metafile);
  const program = [...graph.reach(graph.entries(programs))].filter(graph.isChunk);
  const loaded = [...graph.reach(graph.entries(relay))].filter(
    (name) => graph.isChunk(name) && !program.includes(name),
  );
  const common = graph.enclose(loaded.filter((name) => outputs.get(name).length <= SMALL && !graph.needsPackage(name)));
  let merged = outputs;
  for (const [file, group] of [
    ['program.js', program],
    ['common.js', common],
  ]) {
    merged = await mergeGroup({ outputs: merged, graph, file, group, bundleChunks });
  }
  return merged;
}

/** Static imports of each output file. */
function readGraph(metafile) {
  const nodes = new Map();
  for (const [path, { imports, exports, entryPoint }] of Object.entries(metafile.outputs)) {
    const statements = imports.filter(({ kind }) => kind === 'import-statement');
    const next = statements.filter(({ external }) => !external).map(({ path }) => posix.basename(path));
    const packages = statements.filter(({ external, path }) => external && !path.startsWith('node:'));
    nodes.set(posix.basename(path), { next, packages, exports, entryPoint });
  }
  function reach(from) {
    const found = new Set();
    const visit = (name) => {
      if (found.has(name)) return;
      found.add(name);
      nodes.get(name).next.forEach(visit);
    };
    from.forEach(visit);
    return found;
  }
  return {
    reach,
    /** True if it cannot be loaded without a package that is not in the build, such as the native one of the database. */
    needsPackage: (name) => [...reach([name])].some((other) => nodes.get(other).packages.length > 0),
    isChunk: (name) => nodes.get(name).entryPoint === undefined,
    exportsOf: (name) => nodes.get(name).exports,
    entries: (sources) =>
      sources.map((source) => {
        const found = [...nodes].find(([, { entryPoint }]) => entryPoint === source);
        if (!found) throw new Error(`${source} is no entry point of the build`);
        return found[0];
      }),
    /** The group with every chunk between two of its members: left out, it and the merged file would import each other. */
    enclose(group) {
      const members = new Set(group);
      const between = [...reach(group)].filter((name) => [...reach([name])].some((other) => members.has(other)));
      return [...new Set([...group, ...between])];
    },
  };
}

async function mergeGroup({ outputs, graph, file, group, bundleChunks }) {
  const prefixes = new Map(group.map((name, index) => [name, `m${index}_`]));
  const all = group.flatMap((name) => graph.exportsOf(name));
  /** The name under which the merged file exports it: its own, unless another chunk has the same. */
  const nameOf = (chunk, exported) =>
    all.indexOf(exported) === all.lastIndexOf(exported) ? exported : prefixes.get(chunk) + exported;
  const renamed = (from, to) => (from === to ? from : `${from} as ${to}`);
  const lines = group.map((name) => {
    const names = graph.exportsOf(name).map((exported) => renamed(exported, nameOf(name, exported)));
    return names.length > 0 ? `export{${names.join(',')}}from"./${name}";` : `import"./${name}";`;
  });
  const load = (name) => (prefixes.has(name) ? outputs.get(name) : undefined);
  const merged = new Map([[file, await bundleChunks(lines.join('\n'), load)]]);
  for (const [name, text] of outputs) if (!prefixes.has(name)) merged.set(name, redirect(text));
  for (const [name, text] of merged) {
    const lost = group.find((member) => text.includes(`"./${member}"`));
    if (lost) throw new Error(`${name} imports ${lost}, which is part of ${file}`);
  }
  return merged;

  /** Lets a file import from the merged one. */
  function redirect(text) {
    return text
      .replace(IMPORT, (statement, keyword, names, from) => {
        if (!prefixes.has(from)) return statement;
        const parts = names.split(',').map((part) => {
          const [exported, local = exported] = part.split(' as ');
          return renamed(nameOf(from, exported), local);
        });
        return `${keyword}{${parts.join(',')}}from"./${file}";`;
      })
      .replace(BARE_IMPORT, (statement, from) => (prefixes.has(from) ? `import"./${file}";` : statement));
  }
}

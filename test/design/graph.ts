import { readdir, readFile } from 'node:fs/promises';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';

const LIB = fileURLToPath(new URL('../../lib/', import.meta.url));
const IMPORT = /\b(?:from|import)\s*\(?\s*['"](\.{1,2}\/[^'"]+)['"]/g;

export type Graph = ReadonlyMap<string, readonly string[]>;

/** Relative specifiers of every import, re-export and late import, types included. */
export const importsOf = (text: string): string[] => [...text.matchAll(IMPORT)].map(([, from]) => from as string);

/** The imports between the files of lib, by path below it. */
export async function readGraph(): Promise<Graph> {
  const entries = await readdir(LIB, { recursive: true, withFileTypes: true });
  const files = entries.filter((entry) => entry.isFile() && entry.name.endsWith('.ts'));
  const graph = new Map<string, string[]>();
  for (const { parentPath, name } of files) {
    const path = join(parentPath, name);
    const targets = importsOf(await readFile(path, 'utf8')).map((from) => relative(LIB, join(dirname(path), from)));
    graph.set(
      relative(LIB, path),
      targets.filter((target) => !target.startsWith('..')),
    );
  }
  return graph;
}

/** The same between folders; a file at the top of lib stands for itself. */
export function domainsOf(graph: Graph): Graph {
  const domainOf = (path: string): string => path.split('/')[0] as string;
  const domains = new Map<string, string[]>();
  for (const [file, targets] of graph) {
    const domain = domainOf(file);
    const others = targets.map(domainOf).filter((other) => other !== domain);
    domains.set(domain, [...(domains.get(domain) ?? []), ...others]);
  }
  return domains;
}

/** Nodes of a graph without cycles in rows, lowest first: each imports only from rows below its own. */
export function rowsOf(graph: Graph): string[][] {
  const heights = new Map<string, number>();
  const heightOf = (node: string): number => {
    const known = heights.get(node);
    if (known !== undefined) return known;
    const height = Math.max(0, ...(graph.get(node) ?? []).map((target) => heightOf(target) + 1));
    heights.set(node, height);
    return height;
  };
  const rows: string[][] = [];
  for (const node of graph.keys()) {
    const height = heightOf(node);
    while (rows.length <= height) rows.push([]);
    rows[height]?.push(node);
  }
  return rows.map((row) => row.sort());
}

import type { HostFiles } from '../host/index.ts';
import { unlessUnreadable } from './readable.ts';

export const MOST_SKILLS = 2000;
export const DEEPEST_SKILL = 8;
/** A tree of empty directories must not keep a scan busy. */
const MOST_DIRECTORIES = 10_000;

/**
 * How many entries the skills route lists for a profile: files named `SKILL.md` at depth 2 to 8 below `skills/`, at
 * most 2000. Links to directories are not followed (contract 07 §1.5).
 */
export async function countSkills(files: HostFiles, home: string): Promise<number> {
  let found = 0;
  let looked = 0;
  // Breadth first. `depth` is that of the entries of the directory: 1 for those of `skills/` itself.
  let level = [`${home}/skills`];
  for (let depth = 1; depth <= DEEPEST_SKILL && level.length > 0; depth++) {
    const below: string[] = [];
    for (const directory of level) {
      if (found >= MOST_SKILLS || looked++ >= MOST_DIRECTORIES) return found;
      for (const { name, kind } of (await unlessUnreadable(files.list(directory))) ?? []) {
        const path = `${directory}/${name}`;
        if (kind === 'directory') below.push(path);
        else if (name === 'SKILL.md' && depth >= 2 && found < MOST_SKILLS && (await isFile(files, path, kind))) found++;
      }
    }
    level = below;
  }
  return found;
}

const isFile = async (files: HostFiles, path: string, kind: string): Promise<boolean> =>
  kind === 'file' || (kind === 'link' && (await unlessUnreadable(files.stat(path)))?.kind === 'file');

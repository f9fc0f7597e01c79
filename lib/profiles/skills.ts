import { unlessUnreadable } from '../host/errors.ts';
import type { Host, HostFiles } from '../host/index.ts';
import { mapLimit } from '../kit/semaphore.ts';
import { byCodePoint, decodeUtf8 } from '../kit/text.ts';
import { frontMatter } from './front-matter.ts';
import { createTurns } from './turns.ts';

export const MOST_SKILLS = 2000;
export const DEEPEST_SKILL = 8;
/** A tree of empty directories must not keep a scan busy. */
const MOST_DIRECTORIES = 10_000;
const READ_CAP = 64 * 1024;
const READERS = 4;

/** One row of the skills route (contract 07 §1.5). */
export interface Skill {
  name: string;
  /** The first directory below `skills/`. */
  category: string;
  description: string;
  /** Relative to the profile's home. */
  path: string;
  enabled: true;
}

/** How many entries `listSkills` gives for a profile. */
export const countSkills = async (files: HostFiles, home: string): Promise<number> =>
  (await findSkills(files, home)).length;

/** The skills of a profile by path. What its front matter does not say, its directory does. */
export async function listSkills(host: Host, home: string): Promise<Skill[]> {
  const paths = (await findSkills(host.files, home)).sort(byCodePoint);
  const turn = createTurns();
  return mapLimit(READERS, paths, async (path) => {
    const file = await unlessUnreadable(host.homeFiles.read(home, `${home}/${path}`, { keep: READ_CAP, digest: 0 }));
    const text = typeof file === 'object' && file !== null ? decodeUtf8(file.bytes) : '';
    const hasMatter = text.startsWith('---');
    if (hasMatter) await turn();
    const { name, description } = hasMatter ? frontMatter(text) : {};
    const directories = path.split('/').slice(1, -1);
    return {
      name: textOf(name) || (directories.at(-1) ?? ''),
      category: directories[0] ?? '',
      description: textOf(description),
      path,
      enabled: true,
    };
  });
}

const textOf = (value: unknown): string => (typeof value === 'string' ? value.trim() : '');

/**
 * Files named `SKILL.md` at depth 2 to 8 below `skills/`, at most 2000, as paths relative to `home`. Links to
 * directories are not followed, nor is `skills/` itself when it is one; links to files count within the home.
 */
async function findSkills(files: HostFiles, home: string): Promise<string[]> {
  const found: string[] = [];
  const top = await unlessUnreadable(files.realPath(home));
  if (top === null || (await unlessUnreadable(files.realPath(`${home}/skills`))) !== `${top}/skills`) return found;
  let looked = 0;
  // Breadth first. `depth` is that of the entries of the directory: 1 for those of `skills/` itself.
  let level = ['skills'];
  for (let depth = 1; depth <= DEEPEST_SKILL && level.length > 0; depth++) {
    const below: string[] = [];
    for (const directory of level) {
      if (looked++ >= MOST_DIRECTORIES) return found;
      for (const { name, kind } of (await unlessUnreadable(files.list(`${home}/${directory}`))) ?? []) {
        const path = `${directory}/${name}`;
        if (kind === 'directory') below.push(path);
        else if (name === 'SKILL.md' && depth >= 2 && (await isFile(files, top, `${home}/${path}`, kind))) {
          found.push(path);
          if (found.length >= MOST_SKILLS) return found;
        }
      }
    }
    level = below;
  }
  return found;
}

async function isFile(files: HostFiles, top: string, path: string, kind: string): Promise<boolean> {
  if (kind !== 'link') return kind === 'file';
  const real = await unlessUnreadable(files.realPath(path));
  return real?.startsWith(`${top}/`) === true && (await unlessUnreadable(files.stat(path)))?.kind === 'file';
}

import { unlessUnreadable } from '../host/errors.ts';
import type { Host, HostFiles } from '../host/index.ts';
import { trimmedText } from '../kit/json.ts';
import { mapLimit } from '../kit/semaphore.ts';
import { byCodePoint, decodeUtf8 } from '../kit/text.ts';
import type { Mapping } from '../kit/yaml.ts';

export const MAX_SKILLS = 2000;
export const MAX_DEPTH = 8;
/** Directories visited at most, so that a tree of empty ones cannot keep a scan busy. */
const MAX_DIRECTORIES = 10_000;
const MAX_READ = 64 * 1024;
const MAX_READERS = 4;

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

/** Number of skills that `listSkills` returns. */
export const countSkills = async (files: HostFiles, home: string): Promise<number> =>
  (await findSkills(files, home)).length;

/** A profile's skills in order of path. Without front matter, a skill is named after its directory. */
export async function listSkills(host: Host, home: string): Promise<Skill[]> {
  const paths = (await findSkills(host.files, home)).sort(byCodePoint);
  return mapLimit(MAX_READERS, paths, async (path) => {
    const file = await unlessUnreadable(host.homeFiles.read(home, `${home}/${path}`, { content: MAX_READ, digest: 0 }));
    const text = typeof file === 'object' && file !== null ? decodeUtf8(file.bytes) : '';
    const { name, description } = await frontMatter(host, text);
    const directories = path.split('/').slice(1, -1);
    return {
      name: trimmedText(name) || (directories.at(-1) ?? ''),
      category: directories[0] ?? '',
      description: trimmedText(description),
      path,
      enabled: true,
    };
  });
}

/**
 * Files named `SKILL.md` at depth 2 to 8 below `skills/`, at most 2000, as paths relative to `home`. Links to
 * directories are not followed, not even `skills/` itself; links to files count if they stay within the home.
 */
async function findSkills(files: HostFiles, home: string): Promise<string[]> {
  const found: string[] = [];
  const top = await unlessUnreadable(files.realPath(home));
  if (top === null || (await unlessUnreadable(files.realPath(`${home}/skills`))) !== `${top}/skills`) return found;
  let visited = 0;
  // Breadth first. `depth` is that of a directory's entries: 1 for those of `skills/`.
  let level = ['skills'];
  for (let depth = 1; depth <= MAX_DEPTH && level.length > 0; depth++) {
    const below: string[] = [];
    for (const directory of level) {
      if (visited++ >= MAX_DIRECTORIES) return found;
      for (const { name, kind } of (await unlessUnreadable(files.list(`${home}/${directory}`))) ?? []) {
        const path = `${directory}/${name}`;
        if (kind === 'directory') below.push(path);
        else if (name === 'SKILL.md' && depth >= 2 && (await isFile(files, top, `${home}/${path}`, kind))) {
          found.push(path);
          if (found.length >= MAX_SKILLS) return found;
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

/**
 * Returns the YAML between a leading `---` and the next line that starts with it; empty for a text without such a block
 * (contract 07 §1.5).
 */
async function frontMatter({ yaml }: Host, text: string): Promise<Mapping> {
  if (!text.startsWith('---')) return {};
  const end = /\r?\n---/.exec(text);
  if (!end) return {};
  const parsed = await yaml.parseMapping(text.slice(3, end.index));
  return parsed.ok ? parsed.mapping : {};
}

import { readdir, readFile } from 'node:fs/promises';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/** Percent of the sentences of a room that may be a free relative clause or a fragment (design 6). */
const MAX_SHARE = 1;

const FRAGMENT = /^(?:What|Who|Whose|Whom|Whether|Of|How)\b[^?]*$/;

interface Count {
  sentences: number;
  fragments: string[];
}

/** Sentences of the comments that begin a line, each joined to one line. */
function sentencesOf(source: string): string[] {
  const blocks = [...source.matchAll(/^[ \t]*(?:\{)?\/\*\*?([\s\S]*?)\*\/|^([ \t]*\/\/.*(?:\n[ \t]*\/\/.*)*)/gm)];
  return blocks.flatMap(([, block, lines]) => {
    const text = block?.replace(/^\s*\*/gm, ' ') ?? lines?.replace(/^[ \t]*\/\//gm, ' ') ?? '';
    const flat = text.replace(/\s+/g, ' ').trim();
    return flat === '' || flat.startsWith('biome-ignore') ? [] : flat.split(/(?<=[.!?:])\s+(?=[A-Z`@])/);
  });
}

/** The folder that one team would own: a domain of lib, an area of the pages, else the top folder. */
function roomOf(path: string): string {
  const [top = '', folder = '', area = '', file] = path.split('/');
  if (top === 'lib') return area === '' ? 'lib' : `lib/${folder}`;
  if (top === 'handlers' && folder === 'web') return file === undefined ? 'handlers/web' : `handlers/web/${area}`;
  return top;
}

async function countRooms(): Promise<Map<string, Count>> {
  const rooms = new Map<string, Count>();
  for (const top of ['lib', 'handlers', 'cli', 'storage']) {
    const entries = await readdir(join(ROOT, top), { recursive: true, withFileTypes: true });
    for (const { parentPath, name } of entries.filter((entry) => entry.isFile() && /\.tsx?$/.test(entry.name))) {
      const path = join(parentPath, name);
      const room = roomOf(relative(ROOT, path));
      const count = rooms.get(room) ?? { sentences: 0, fragments: [] };
      const sentences = sentencesOf(await readFile(path, 'utf8'));
      count.sentences += sentences.length;
      for (const sentence of sentences) {
        if (FRAGMENT.test(sentence)) count.fragments.push(`${relative(ROOT, path)}: ${sentence}`);
      }
      rooms.set(room, count);
    }
  }
  return rooms;
}

it('design 6: comments are sentences, not clauses that begin with what, who, whether, of or how', async () => {
  const rooms = await countRooms();
  expect(rooms.size).toBeGreaterThan(30);
  const over = [...rooms].flatMap(([room, { sentences, fragments }]) => {
    const limit = Math.floor((sentences * MAX_SHARE) / 100);
    return fragments.length > limit ? [{ room, limit, found: fragments.length, fragments }] : [];
  });
  expect(over).toEqual([]);
});

it('design 6: the count of fragments finds them in every kind of comment', () => {
  const source = `/** Whether it runs. Of a session. */
const a = 1; // What is not at the start of a line does not count.
  // What it is,
  // as a clause. Why not?
{/* How long it takes. */}
/**
 * Returns who asks.
 * Who asks for it. What now?
 * @throws Error
 */`;
  expect(sentencesOf(source).filter((sentence) => FRAGMENT.test(sentence))).toEqual([
    'Whether it runs.',
    'Of a session.',
    'What it is, as a clause.',
    'How long it takes.',
    'Who asks for it.',
  ]);
});

import { cutText } from '../../../chat/preview.ts';
import { describeError } from '../../../errors.ts';
import type { Log } from '../../../log.ts';
import type { ProfileFiles } from '../../../profiles/profile-files.ts';

const MAX_DESCRIPTION = 500;
const MAX_PERSONA = 6000;
const MAX_MEMORY = 2000;
const MAX_MEMORIES = 6000;
const MAX_MEMORY_FILES = 4;

/**
 * The agent's profile as part of a provider's instructions: description, persona, and up to four memory files (contract
 * 06 §5.4). Unreadable parts are left out; an unknown profile gives an empty text. Never for logs.
 */
export async function readProfileBlock(
  files: Pick<ProfileFiles, 'config' | 'soul' | 'memory'> | undefined,
  profile: string | null,
  log: Log,
): Promise<string> {
  if (!files) return '';
  const name = profile ?? 'default';
  const [config, soul, memory] = await Promise.all([
    unlessFailing(files.config(name), log),
    unlessFailing(files.soul(name), log),
    unlessFailing(files.memory(name), log),
  ]);
  const description = config?.description?.trim() ?? '';
  const persona = soul?.content.trim() ?? '';
  const memories = boundedMemories(memory ?? []);
  return [
    description && `Description: ${cutText(description, MAX_DESCRIPTION)}`,
    persona && `Persona:\n${cutText(persona, MAX_PERSONA)}`,
    ...memories.map(({ filename, content }) => `Memory ${filename}:\n${content}`),
  ]
    .filter((part) => part !== '')
    .join('\n\n');
}

interface Memory {
  filename: string;
  content: string;
}

function boundedMemories(entries: readonly Memory[]): Memory[] {
  const included: Memory[] = [];
  let room = MAX_MEMORIES;
  for (const { filename, content } of entries) {
    const text = cutText(content.trim(), Math.min(MAX_MEMORY, room));
    if (text === '' || room === 0) continue;
    included.push({ filename, content: text });
    room -= text.length;
    if (included.length === MAX_MEMORY_FILES) break;
  }
  return included;
}

async function unlessFailing<T>(reading: Promise<T>, log: Log): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    log.debug(`a part of the profile is left out of the instructions: ${describeError(error)}`);
    return undefined;
  }
}

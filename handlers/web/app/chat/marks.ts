import { type ReadonlySignal, signal } from '@preact/signals';
import type { App } from '../context.ts';

/** What a person has done with a conversation on this device. The agent and other devices learn nothing of it. */
export interface ChatMark {
  /** Instead of the agent's title; empty without one. */
  name: string;
  /** Whether the list leaves it out. */
  isHidden: boolean;
}

type Marks = Readonly<Record<string, ChatMark>>;

const MAX_MARKS = 500;
/** Characters of a name. */
export const MAX_NAME = 80;
const PLACE = 'chat marks';

/** Names and hiding of conversations (contract 10 §3), keyed by the agent's ids. Stored with the conversations. */
export function createChatMarks({ keep }: App) {
  const marks = signal<Marks>({});
  void keep.read<Marks>(PLACE).then((stored) => {
    marks.value = { ...stored, ...marks.value };
  });

  return {
    marks: marks as ReadonlySignal<Marks>,
    /** Changes the mark of a conversation; beyond {@link MAX_MARKS}, the one that was changed first is dropped. */
    async set(id: string, { name, isHidden }: ChatMark): Promise<void> {
      const mark = { name: name.trim().slice(0, MAX_NAME), isHidden };
      marks.value = await keep.change<Marks>(PLACE, (stored = {}) => {
        const { [id]: _, ...others } = stored;
        const isMarked = mark.name !== '' || isHidden;
        return Object.fromEntries(
          [...Object.entries(others), ...(isMarked ? [[id, mark] as const] : [])].slice(-MAX_MARKS),
        );
      });
    },
  };
}

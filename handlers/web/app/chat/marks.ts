import type { App } from '../context.ts';
import { openRecord } from '../stored-record.ts';

/** A person's marks on a conversation, on this device only. */
export interface ChatMark {
  /** Replaces the agent's title; empty without one. */
  name: string;
  /** True if the list omits it. */
  isHidden: boolean;
}

const MAX_MARKS = 500;
/** Characters of a name. */
export const MAX_NAME = 80;

/** Names and visibility of conversations (contract 10 §3), keyed by the agent's ids. Stored with the conversations. */
export function createChatMarks(app: App) {
  const { entries: marks, set, close } = openRecord<ChatMark>(app, 'chat marks', MAX_MARKS);
  return {
    marks,
    /** Changes the mark of a conversation. */
    set(id: string, { name, isHidden }: ChatMark): Promise<void> {
      const mark = { name: name.trim().slice(0, MAX_NAME), isHidden };
      return set(id, mark.name !== '' || isHidden ? mark : undefined);
    },
    close,
  };
}

import { cutText } from './preview.ts';

export const ROLES = ['user', 'assistant', 'tool', 'system'] as const;
export type Role = (typeof ROLES)[number];

/** A message of a conversation, as clients get it (contract 10 §2). */
export interface HistoryItem {
  id: string;
  role: Role;
  text: string;
  /** Epoch seconds; null where the agent stores no times. */
  ts: number | null;
  tool_name?: string;
  /** The text is longer than the part shown. */
  truncated?: true;
}

/** A conversation found by a search, with one of its messages (contract 10 §2). */
export interface SearchHit {
  session_id: string;
  title: string | null;
  /**
   * Id of the newest message that contains the words, else of the last message. Null in a conversation without
   * messages.
   */
  id: string | null;
  ts: number | null;
  excerpt: string;
}

const MAX_EXCERPT = 200;
/** Characters before the word. */
const LEAD = 60;

/** Part of a text as one line of at most 200 characters. */
export function excerpt(part: string, isStart: boolean): string {
  const line = part.replace(/\s+/gu, ' ').trim().toWellFormed();
  return cutText(isStart ? line : `…${line}`, MAX_EXCERPT);
}

/** The excerpt of a text around a word in lower case, else its beginning. */
export function excerptAround(text: string, word: string): string {
  const start = Math.max(0, text.toLowerCase().indexOf(word) - LEAD);
  return excerpt(text.slice(start, start + 2 * MAX_EXCERPT), start === 0);
}

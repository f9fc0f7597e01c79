import { cutText } from '../../chat/preview.ts';
import type { EventBody } from '../socket/types.ts';

const MAX_MESSAGES = 14;
const MAX_CONTENT = 1500;
/** Maximum characters of an answer that is still being spoken. */
const MAX_SAID = 8000;

export interface Said {
  role: 'user' | 'assistant';
  content: string;
}

interface Entry extends Said {
  /** Set for an answer. */
  responseId?: unknown;
}

/** The last 14 messages of a session, as sent to its client: context for a reconnected provider. */
export class History {
  readonly #entries: Entry[] = [];

  /** Records a published event of the session. */
  note({ type, text, delta, response_id: responseId, delivery }: EventBody): void {
    if (type === 'voice.input_transcript.final' && typeof text === 'string') this.#add({ role: 'user', content: text });
    if (type !== 'voice.response.delta' || typeof delta !== 'string' || delivery === 'respeak') return;
    const entry = this.#entries.findLast((other) => other.responseId === responseId);
    if (entry) entry.content = (entry.content + delta).slice(0, MAX_SAID);
    else this.#add({ role: 'assistant', content: delta.slice(0, MAX_SAID), responseId });
  }

  /** Cuts an answer to the share of it (0 to 1) that was heard, at a word. Returns the rest that stays. */
  cut(responseId: string, share: number): string {
    const entry = this.#entries.findLast((other) => other.responseId === responseId);
    if (!entry) return '';
    const { content } = entry;
    const end = Math.floor(content.length * Math.min(Math.max(share, 0), 1));
    const isWhole = end === content.length || /\s/.test(content[end] ?? ' ');
    entry.content = (isWhole ? content.slice(0, end) : content.slice(0, content.lastIndexOf(' ', end) + 1)).trim();
    return entry.content;
  }

  /** Oldest first. A provider may reuse ids of responses on another connection. */
  forNewConnection(): Said[] {
    for (const entry of this.#entries) entry.responseId = undefined;
    return this.#entries
      .map(({ role, content }) => ({ role, content: cutText(content.replace(/\s+/g, ' ').trim(), MAX_CONTENT) }))
      .filter(({ content }) => content !== '');
  }

  #add(entry: Entry): void {
    this.#entries.push(entry);
    if (this.#entries.length > MAX_MESSAGES) this.#entries.shift();
  }
}

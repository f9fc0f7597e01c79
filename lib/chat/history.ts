import type { ChatTool, ChatTurnHead } from '../../storage/schema.ts';
import { RelayError } from '../errors.ts';
import { nextTurn } from '../kit/clock.ts';
import type { AgentHistory, PageQuery, SearchQuery } from './agent-history.ts';
import { excerptAround, type HistoryItem, type Role, type SearchHit } from './history-items.ts';
import { containsAll } from './search-words.ts';

/** The part of a kept turn (contract 10 §1) that the history shows, with the answer so far. */
export type StoredTurn = Pick<ChatTurnHead, 'id' | 'session_id' | 'started_at' | 'ended_at' | 'truncated'> & {
  said: { question: string; text: string; tools: readonly ChatTool[] };
};

export interface ChatHistoryDeps {
  agent: AgentHistory;
  /** The kept turns of a session family, in one conversation or in all, the oldest first. */
  storedTurns(family: string, sessionId?: string): Promise<readonly StoredTurn[]>;
}

export interface HistoryPage {
  /** Newest last. */
  items: HistoryItem[];
  has_more: boolean;
  source: 'agent' | 'relay';
}

const MAX_TEXT = 64 * 1024;
/** Characters that a search scans in one turn of the event loop. */
const SLICE = 1024 * 1024;

/**
 * Earlier messages (contract 10 §2): from the agent's database, and where that is absent or cannot be read, from the
 * turns that the relay has stored for the caller's session family.
 */
export function createChatHistory({ agent, storedTurns }: ChatHistoryDeps) {
  return {
    /** @throws RelayError `not-found` for an unknown session or profile, `invalid` for an unknown `before`. */
    async page(family: string, query: PageQuery): Promise<HistoryPage> {
      const { sessionId, before, limit } = query;
      const answer = await agent.page(query);
      if (answer.kind === 'page') return { items: answer.items, has_more: answer.hasMore, source: 'agent' };
      const items = (await storedTurns(family, sessionId)).flatMap(itemsOf);
      const end = before === undefined ? items.length : items.findIndex(({ id }) => id === before);
      if (answer.kind === 'unreadable') {
        // Neither the session nor the item is known, nor whether earlier messages exist.
        if (end < 0) return { items: [], has_more: true, source: 'relay' };
      } else {
        if (answer.kind !== 'unknown-before' && items.length === 0) {
          throw new RelayError('not-found', 'unknown session');
        }
        if (end < 0) throw new RelayError('invalid', 'before must be the id of an item of this session');
      }
      const start = Math.max(0, end - limit);
      return { items: items.slice(start, end), has_more: start > 0, source: 'relay' };
    },

    /** @throws RelayError `not-found` for an unknown profile. */
    async search(family: string, query: SearchQuery): Promise<SearchHit[]> {
      const found = await agent.search(query);
      return typeof found === 'string' ? searchTurns(await storedTurns(family), query) : found;
    },
  };
}

/** A kept turn as its question, its tool calls, and the answer so far. */
function itemsOf({ id, started_at, ended_at, truncated, said }: StoredTurn): HistoryItem[] {
  const at = ended_at ?? started_at;
  const item = (name: string, role: Role, full: string, ts: number, isCut = false): HistoryItem => ({
    ...{ id: `${id}:${name}`, role, text: full.slice(0, MAX_TEXT).toWellFormed(), ts },
    ...((isCut || full.length > MAX_TEXT) && { truncated: true as const }),
  });
  const calls = said.tools.map(({ name, preview }, place) => ({
    ...item(`tool-${place}`, 'tool', preview, at),
    tool_name: name,
  }));
  const answer = said.text === '' ? [] : [item('assistant', 'assistant', said.text, at, truncated)];
  return [item('user', 'user', said.question, started_at), ...calls, ...answer];
}

/** The newest item of each conversation that contains all words, the newest first. */
async function searchTurns(turns: readonly StoredTurn[], { words, limit }: SearchQuery): Promise<SearchHit[]> {
  const hits = new Map<string, SearchHit>();
  let searched = 0;
  for (const turn of turns.toReversed()) {
    const { session_id: sessionId, said } = turn;
    if (hits.size === limit) break;
    if (sessionId === null || hits.has(sessionId)) continue;
    searched += said.question.length + said.text.length;
    if (searched > SLICE) {
      searched = 0;
      await nextTurn();
    }
    const found = itemsOf(turn).findLast(({ text }) => containsAll(text, words));
    if (!found) continue;
    const { id, ts, text } = found;
    const shown = excerptAround(text, words[0] ?? '');
    hits.set(sessionId, { session_id: sessionId, title: null, id, ts, excerpt: shown });
  }
  return [...hits.values()];
}

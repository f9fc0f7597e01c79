import { describe, expect, it } from 'vitest';
import type { AgentHistory } from '../../../lib/chat/agent-history.ts';
import { createChatHistory, type StoredTurn } from '../../../lib/chat/history.ts';
import { wordsOf } from '../../../lib/chat/search-words.ts';

type Page = Awaited<ReturnType<AgentHistory['page']>>;

const turn = (n: number, { text = `answer ${n}`, question = `question ${n}`, ...head }: Given = {}): StoredTurn => ({
  id: `t${n}`,
  session_id: 's1',
  started_at: 10 * n,
  ended_at: 10 * n + 1,
  said: { question, text, tools: [] },
  ...head,
});
type Given = Partial<StoredTurn> & Partial<StoredTurn['said']>;

/** A history whose agent answers in one way, with kept turns of the family `own`. */
function historyOf(page: Page, turns: StoredTurn[]) {
  const agent: AgentHistory = {
    page: async () => page,
    search: async () => (page.kind === 'unreadable' ? 'unreadable' : 'absent'),
    answerTo: async () => undefined,
  };
  const storedTurns = async (family: string, sessionId?: string) =>
    turns.filter((kept) => family === 'own' && (sessionId === undefined || kept.session_id === sessionId));
  const history = createChatHistory({ agent, storedTurns });
  return {
    page: (query: { before?: string; limit?: number; sessionId?: string } = {}, family = 'own') =>
      history.page(family, { sessionId: 's1', limit: 50, profile: 'default', ...query }),
    search: (q: string, limit = 50, family = 'own') =>
      history.search(family, { words: wordsOf(q), limit, profile: 'default' }),
  };
}

const ids = ({ items }: { items: { id: string }[] }) => items.map(({ id }) => id);

describe('history of kept turns (contract 10 §2)', () => {
  it('is that of the family, where the agent has none', async () => {
    for (const kind of ['absent', 'unknown-session'] as const) {
      const { page } = historyOf({ kind }, [turn(1), turn(2, { text: '', ended_at: null })]);
      expect(await page()).toEqual({
        items: [
          { id: 't1:user', role: 'user', text: 'question 1', ts: 10 },
          { id: 't1:assistant', role: 'assistant', text: 'answer 1', ts: 11 },
          { id: 't2:user', role: 'user', text: 'question 2', ts: 20 },
        ],
        has_more: false,
        source: 'relay',
      });
      await expect(page({ sessionId: 's2' })).rejects.toMatchObject({ kind: 'not-found' });
      await expect(page({}, 'other')).rejects.toMatchObject({ kind: 'not-found' });
      await expect(page({ before: 't9:user' })).rejects.toMatchObject({ kind: 'invalid' });
    }
  });

  it('has calls of tools between question and answer', async () => {
    const tools = [{ id: 'c1', name: 'shell', state: 'done' as const, preview: 'ok' }];
    const { page } = historyOf({ kind: 'absent' }, [turn(1, { said: { question: 'q', text: 'a', tools } })]);
    expect((await page()).items[1]).toEqual({ id: 't1:tool-0', role: 'tool', text: 'ok', ts: 11, tool_name: 'shell' });
  });

  it('goes back to the first turn', async () => {
    const { page } = historyOf({ kind: 'absent' }, [turn(1), turn(2), turn(3)]);
    const last = await page({ limit: 3 });
    expect([ids(last), last.has_more]).toEqual([['t2:assistant', 't3:user', 't3:assistant'], true]);
    const first = await page({ limit: 3, before: 't2:assistant' });
    expect([ids(first), first.has_more]).toEqual([['t1:user', 't1:assistant', 't2:user'], false]);
  });

  it('is no error while the database cannot be read, whatever is asked', async () => {
    const { page, search } = historyOf({ kind: 'unreadable' }, [turn(1)]);
    expect(ids(await page())).toEqual(['t1:user', 't1:assistant']);
    expect(await page({ sessionId: 's2' })).toEqual({ items: [], has_more: false, source: 'relay' });
    // What comes before an item of the agent is there, but not to be seen now.
    expect(await page({ before: '12' })).toEqual({ items: [], has_more: true, source: 'relay' });
    expect(await search('answer')).toMatchObject([{ session_id: 's1', id: 't1:assistant' }]);
  });

  it('continues from an item of the relay when the agent is back', async () => {
    const { page } = historyOf({ kind: 'unknown-before' }, [turn(1)]);
    expect(ids(await page({ before: 't1:assistant' }))).toEqual(['t1:user']);
    await expect(page({ before: '12' })).rejects.toMatchObject({ kind: 'invalid' });
  });

  it('cuts long texts, and tells so', async () => {
    const { page } = historyOf({ kind: 'absent' }, [
      turn(1, { question: 'x'.repeat(65_537) }),
      turn(2, { truncated: true }),
    ]);
    const { items } = await page();
    expect(items.map(({ text, truncated }) => [text.length, truncated])).toEqual([
      [65_536, true],
      [8, undefined],
      [10, undefined],
      [8, true],
    ]);
  });

  it('is found by words, the newest item of each conversation first', async () => {
    const { search } = historyOf({ kind: 'absent' }, [
      turn(1, { session_id: 's1', text: 'The PLAN is good' }),
      turn(2, { session_id: 's2', question: 'Which plan?' }),
      turn(3, { session_id: null, text: 'no plan' }),
      turn(4, { session_id: 's1', text: `${'x'.repeat(2_000_000)} plan` }),
    ]);
    expect(await search('plan')).toEqual([
      { session_id: 's2', title: null, id: 't2:user', ts: 20, excerpt: 'Which plan?' },
      { session_id: 's1', title: null, id: 't1:assistant', ts: 11, excerpt: 'The PLAN is good' },
    ]);
    expect(await search('plan good')).toMatchObject([{ session_id: 's1' }]);
    expect(await search('plan', 1)).toHaveLength(1);
    expect(await search('plan', 50, 'other')).toEqual([]);
  });
});

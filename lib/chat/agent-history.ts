import type { Config } from '../config.ts';
import type { DatabaseRow, Host } from '../host/index.ts';
import { decodeUtf8, decodeUtf8Strict } from '../kit/text.ts';
import { knownProfile } from '../profiles/home.ts';
import { excerpt, excerptAround, type HistoryItem, ROLES, type Role, type SearchHit } from './history-items.ts';
import { previewText } from './preview.ts';
import { containsAll, globOf, matchOf } from './search-words.ts';

export interface PageQuery {
  sessionId: string;
  /** As named by clients. */
  profile: string;
  /** Id of an item; the page ends before it. */
  before?: string;
  limit: number;
}

export interface SearchQuery {
  /** From `wordsOf`. */
  words: readonly string[];
  profile: string;
  limit: number;
}

/** The question of a turn that the relay's end has interrupted. */
export interface AskedQuestion {
  sessionId: string;
  /** As named by clients; null for the default. */
  profile: string | null;
  /** The message as it was sent to the agent. */
  question: string;
  /** Epoch seconds. */
  startedAt: number;
  /** The same words at this time (epoch seconds) or later belong to another question. */
  askedBefore?: number;
}

/**
 * `absent`: the agent has no database, or one without the expected tables. `unreadable`: the database is locked,
 * damaged or too slow, so its content is unknown.
 */
export type DatabaseProblem = 'absent' | 'unreadable';

/** A page of messages, newest last. `unknown-before`: the item is not in the session. */
type Page =
  | { kind: 'page'; items: HistoryItem[]; hasMore: boolean }
  | { kind: 'unknown-session' | 'unknown-before' }
  | { kind: DatabaseProblem };

export type AgentHistory = ReturnType<typeof createAgentHistory>;

const MAX_TEXT = 64 * 1024;
/** Bytes read of a tool's result, of which 1,600 characters are shown. */
const MAX_TOOL_TEXT = 16 * 1024;
const MAX_ANSWER = 2 * 1024 * 1024;
/** Longer texts are not loaded, since SQLite loads a whole text to return its beginning. */
const MAX_STORED = 16 * 1024 * 1024;
/** Messages that a search scans, and the window in which an unindexed table is sorted. */
const MAX_SCANNED = 20_000;
/** Characters of an excerpt before the found word, and in total. */
const LEAD = 60;
const WINDOW = 400;

/** Tables, columns and indexes of a database that the queries depend on. */
const LAYOUT = `
SELECT 'messages.' || name AS part FROM pragma_table_info('messages')
UNION ALL SELECT 'sessions.' || name FROM pragma_table_info('sessions')
UNION ALL SELECT name FROM sqlite_master WHERE type = 'table' AND name = 'messages_fts'
UNION ALL SELECT 'index ' || (
  SELECT group_concat(name, ' ') FROM (SELECT name FROM pragma_index_info(indexes.name) ORDER BY seqno)
) || ' ' FROM pragma_index_list('messages') AS indexes WHERE partial = 0`;

/** White space of `trim`. */
const SPACE = 'char(9, 10, 13, 32)';

class NoRows extends Error {
  readonly problem: DatabaseProblem;

  constructor(problem: DatabaseProblem) {
    super(problem);
    this.problem = problem;
  }
}

type Value = string | number;
type Run = (sql: string, params: Value[]) => Promise<{ rows: DatabaseRow[]; isCut: boolean }>;

/** A database with the parts of its queries that depend on its layout. `m` is `messages` in all of them. */
interface AgentDatabase {
  run: Run;
  has(part: string): boolean;
  /** The time of a message; NULL in every row without the column. */
  time: string;
  /** Condition for messages that count. */
  active: string;
  /** Condition for messages that clients see. */
  shown: string;
  /** True if an index leads to the messages of a session; `isOrdered` if it has them in their order. */
  isIndexed: boolean;
  isOrdered: boolean;
}

/**
 * The agent's stored conversations (contract 10 §2), which another process reads from `state.db` in a profile's home,
 * within the limits of `HostDatabases`. All methods reject with `not-found` for an unknown profile.
 */
export function createAgentHistory({ host, config }: { host?: Host; config: Config }) {
  async function open(profile: string): Promise<AgentDatabase> {
    if (!host) throw new NoRows('absent');
    const { home } = await knownProfile(host.files, config, profile);
    const run: Run = async (sql, params) => {
      const result = await host.databases.read({ path: `${home}/state.db`, sql, params });
      if (result.rows === null) throw new NoRows(result.problem);
      return result;
    };
    const { rows } = await run(LAYOUT, []);
    const parts = rows.map(({ part }) => String(part));
    const known = new Set(parts);
    if (!known.has('messages.id')) throw new NoRows('absent');
    const hasTime = known.has('messages.timestamp');
    // With `+`, an index on the column is not used: those of the session are better.
    const active = known.has('messages.active') ? '+m.active = 1' : 'TRUE';
    const conditions = [
      active,
      `m.role IN (${ROLES.map((role) => `'${role}'`).join(', ')})`,
      "typeof(m.id) = 'integer'",
      // An assistant's message without a text only calls tools.
      `NOT (m.role = 'assistant' AND trim(COALESCE(m.content, ''), ${SPACE}) = '')`,
    ];
    if (hasTime) conditions.push("typeof(m.timestamp) IN ('real', 'integer')");
    return {
      run,
      has: (part) => known.has(part),
      time: hasTime ? 'm.timestamp' : 'NULL',
      active,
      shown: conditions.join(' AND '),
      isIndexed: parts.some((part) => part.startsWith('index session_id ')),
      isOrdered: parts.some((part) => part.startsWith('index session_id timestamp ')),
    };
  }

  return {
    /** The newest messages of a session, or those before an item. */
    async page(query: PageQuery): Promise<Page> {
      try {
        return await readPage(await open(query.profile), query);
      } catch (error) {
        if (error instanceof NoRows) return { kind: error.problem };
        throw error;
      }
    },

    /** Conversations whose title or messages contain all words, the newest first. */
    async search(query: SearchQuery): Promise<SearchHit[] | DatabaseProblem> {
      try {
        return await search(await open(query.profile), query);
      } catch (error) {
        if (error instanceof NoRows) return error.problem;
        throw error;
      }
    },

    /**
     * The answer to a question whose turn was interrupted by a restart of the relay (contract 10 §1): the last text of
     * the assistant that follows the user's first message with exactly this text, sent at or after `startedAt` and before
     * `askedBefore`. Answers to the same question at other times do not count. Undefined while the agent still works on
     * it (its last message calls a tool or is a tool's result), when the question never arrived, when the database cannot
     * be read, and for an unknown profile; never rejects for these. At most 2 MiB, so that a caller with a lower limit
     * notices a longer answer.
     */
    async answerTo(asked: AskedQuestion): Promise<{ text: string } | undefined> {
      try {
        return await readAnswer(await open(asked.profile ?? 'default'), asked);
      } catch {
        return undefined;
      }
    },
  };
}

/** The columns of a text: its first bytes (as bytes, because SQLite's text functions stop at a NUL) and its length. */
const textColumns = (limit: string | number): string =>
  `CASE WHEN octet_length(m.content) <= ${MAX_STORED} THEN substr(CAST(m.content AS BLOB), 1, ${limit}) END AS text,
  octet_length(m.content) AS length`;

async function readPage(database: AgentDatabase, { sessionId, before, limit }: PageQuery): Promise<Page> {
  const { run, has, time, shown, isOrdered } = database;
  const conditions: string[] = [];
  const params: Value[] = [sessionId];
  if (before !== undefined) {
    const mark = await findMark(database, sessionId, before);
    if (!mark) {
      return { kind: (await isKnown(database, sessionId)) ? 'unknown-before' : 'unknown-session' };
    }
    if (mark.at === null) {
      conditions.push('AND m.id < ?');
      params.push(mark.id);
    } else {
      conditions.push('AND m.timestamp <= ? AND (m.timestamp < ? OR m.id < ?)');
      params.push(mark.at, mark.at, mark.id);
    }
  }
  // Sorting all messages of a session takes too long, so without an index for it the newest by id are sorted by time.
  const [order, window] = isOrdered ? ['m.timestamp DESC, m.id DESC', limit + 1] : ['m.id DESC', MAX_SCANNED];
  const { rows, isCut } = await run(
    `WITH newest AS (
       SELECT m.id AS id, ${time} AS at FROM messages AS m
       WHERE m.session_id = ? AND ${shown} ${conditions.join(' ')} ORDER BY ${order} LIMIT ${window}
     ), page AS (SELECT id, at FROM newest ORDER BY at DESC, id DESC LIMIT ?)
     SELECT m.id AS id, m.role AS role, page.at AS at, ${has('messages.tool_name') ? 'm.tool_name' : 'NULL'} AS tool_name,
       ${textColumns(`CASE m.role WHEN 'tool' THEN ${MAX_TOOL_TEXT} ELSE ${MAX_TEXT} END`)}
     FROM page CROSS JOIN messages AS m ON m.id = page.id ORDER BY page.at DESC, page.id DESC`,
    [...params, limit + 1],
  );
  if (rows.length === 0 && !(await isKnown(database, sessionId))) return { kind: 'unknown-session' };
  const items = rows.slice(0, limit).map(toItem).reverse();
  return { kind: 'page', items, hasMore: isCut || rows.length > limit };
}

/** The position of an item in its session. */
async function findMark({ run, has }: AgentDatabase, sessionId: string, id: string) {
  if (!/^\d{1,15}$/.test(id)) return undefined;
  const time = has('messages.timestamp') ? 'timestamp' : 'NULL';
  const { rows } = await run(`SELECT id, ${time} AS at FROM messages WHERE id = ? AND session_id = ?`, [
    Number(id),
    sessionId,
  ]);
  const [mark] = rows;
  if (!mark || (has('messages.timestamp') && typeof mark.at !== 'number')) return undefined;
  return { id: Number(mark.id), at: typeof mark.at === 'number' ? mark.at : null };
}

async function isKnown({ run, has }: AgentDatabase, sessionId: string): Promise<boolean> {
  const tables = has('sessions.id') ? [['sessions', 'id']] : [];
  for (const [table, column] of [...tables, ['messages', 'session_id']]) {
    const { rows } = await run(`SELECT 1 FROM ${table} WHERE ${column} = ? LIMIT 1`, [sessionId]);
    if (rows.length > 0) return true;
  }
  return false;
}

/** The text of a row with `textColumns`. */
function readText({ text, length }: DatabaseRow): { text: string; isCut: boolean } {
  const bytes = text instanceof Uint8Array ? text : new Uint8Array();
  const isCut = Number(length ?? 0) > bytes.length;
  return { text: decodeUtf8Strict(bytes, { keepBom: true, isCut }) ?? decodeUtf8(bytes), isCut };
}

function toItem(row: DatabaseRow): HistoryItem {
  const raw = readText(row);
  const { text, isCut } = row.role === 'tool' ? previewText(raw.text, raw.isCut) : raw;
  const item: HistoryItem = {
    id: String(row.id),
    role: row.role as Role,
    text,
    ts: row.at === null ? null : Number(row.at),
  };
  if (typeof row.tool_name === 'string') item.tool_name = row.tool_name;
  if (isCut) item.truncated = true;
  return item;
}

async function search(database: AgentDatabase, query: SearchQuery): Promise<SearchHit[]> {
  const hits = new Map<string, SearchHit>();
  const found = [...(await searchMessages(database, query)), ...(await searchTitles(database, query))];
  for (const hit of found) if (!hits.has(hit.session_id)) hits.set(hit.session_id, hit);
  return [...hits.values()].sort((a, b) => (b.ts ?? 0) - (a.ts ?? 0)).slice(0, query.limit);
}

/** The newest message of each conversation that contains all words. */
async function searchMessages(database: AgentDatabase, query: SearchQuery): Promise<SearchHit[]> {
  const match = database.has('messages_fts') ? matchOf(query.words) : undefined;
  if (match !== undefined) {
    try {
      return await searchAmong(
        database,
        query,
        `SELECT rowid AS id FROM messages_fts WHERE messages_fts MATCH ? ORDER BY rowid DESC LIMIT ${MAX_SCANNED}`,
        [match],
      );
    } catch (error) {
      // The agent's table may need a tokenizer that is missing here, or be damaged while the others are not.
      if (!(error instanceof NoRows)) throw error;
    }
  }
  return searchAmong(database, query, `SELECT id FROM messages ORDER BY id DESC LIMIT ${MAX_SCANNED}`, []);
}

/**
 * The full-text table matches whole words, ignores the characters between them, and may index more than the text. So
 * every candidate's text is searched for the words. Results of tools are separate candidates, because only the part
 * that clients see may match.
 */
async function searchAmong(
  { run, has, time, shown }: AgentDatabase,
  { words, limit }: SearchQuery,
  candidates: string,
  params: string[],
): Promise<SearchHit[]> {
  const [first = ''] = words;
  // `lower` knows ASCII only.
  const place = 'COALESCE(NULLIF(instr(lower(m.content), ?), 0), NULLIF(instr(m.content, ?), 0), 1)';
  const { rows } = await run(
    `WITH candidate AS (${candidates}), found AS (
       SELECT m.id AS id, ${time} AS at,
         ROW_NUMBER() OVER (PARTITION BY m.session_id, m.role = 'tool' ORDER BY ${time} DESC, m.id DESC) AS place
       FROM candidate CROSS JOIN messages AS m ON m.id = candidate.id
       WHERE ${shown}${' AND m.content GLOB ?'.repeat(words.length)}
     ), newest AS (SELECT id, at FROM found WHERE place = 1 ORDER BY at DESC, id DESC LIMIT ${2 * limit}),
     placed AS (SELECT newest.id AS id, newest.at AS at, max(1, ${place} - ${LEAD}) AS start
       FROM newest CROSS JOIN messages AS m ON m.id = newest.id)
     SELECT m.id AS id, m.session_id AS session_id, m.role AS role, placed.at AS at,
       ${has('sessions.title') ? '(SELECT title FROM sessions WHERE sessions.id = m.session_id)' : 'NULL'} AS title,
       placed.start AS start, substr(m.content, placed.start, ${WINDOW}) AS part,
       CASE m.role WHEN 'tool' THEN substr(CAST(m.content AS BLOB), 1, ${MAX_TOOL_TEXT}) END AS text,
       octet_length(m.content) AS length
     FROM placed CROSS JOIN messages AS m ON m.id = placed.id ORDER BY placed.at DESC, placed.id DESC`,
    [...params, ...words.map(globOf), first, first.charAt(0).toUpperCase() + first.slice(1)],
  );
  return rows.flatMap((row) => {
    if (row.role !== 'tool') return [toHit(row, excerpt(String(row.part), row.start === 1))];
    const { text, isCut } = readText(row);
    const seen = previewText(text, isCut).text;
    return containsAll(seen, words) ? [toHit(row, excerptAround(seen, first))] : [];
  });
}

/** Conversations found by their title, each with its last message. */
async function searchTitles(
  { run, has, time, shown, isIndexed }: AgentDatabase,
  { words, limit }: SearchQuery,
): Promise<SearchHit[]> {
  if (!has('sessions.id') || !has('sessions.title')) return [];
  const newestFirst = has('sessions.started_at') ? 'ORDER BY s.started_at DESC' : '';
  // Without an index, each would scan all messages.
  const last = isIndexed
    ? `(SELECT m.id FROM messages AS m WHERE m.session_id = named.id AND ${shown} AND m.role IN ('user', 'assistant')
        ORDER BY ${time} DESC, m.id DESC LIMIT 1)`
    : 'NULL';
  const { rows } = await run(
    `WITH named AS (
       SELECT s.id AS id, s.title AS title, ${has('sessions.started_at') ? 's.started_at' : 'NULL'} AS at FROM sessions AS s
       WHERE ${words.map(() => 's.title GLOB ?').join(' AND ')} ${newestFirst} LIMIT ${limit}
     )
     SELECT named.id AS session_id, named.title AS title, m.id AS id, COALESCE(${time}, named.at) AS at,
       substr(m.content, 1, ${WINDOW}) AS part
     FROM named LEFT JOIN messages AS m ON m.id = ${last}`,
    words.map(globOf),
  );
  return rows.map((row) => toHit(row, excerpt(String(row.part ?? ''), true)));
}

const toHit = ({ session_id: sessionId, title, id, at }: DatabaseRow, text: string): SearchHit => ({
  session_id: String(sessionId),
  title: typeof title === 'string' ? title : null,
  id: id === null ? null : String(id),
  ts: typeof at === 'number' ? at : null,
  excerpt: text,
});

/** The last message after a question, if it ends the turn. With `+`, only messages after the question are read. */
async function readAnswer(
  { run, has, active }: AgentDatabase,
  { sessionId, question, startedAt, askedBefore = Number.MAX_SAFE_INTEGER }: AskedQuestion,
): Promise<{ text: string } | undefined> {
  if (!has('messages.timestamp')) return undefined;
  const { rows } = await run(
    `WITH asked AS (
       SELECT m.id AS id FROM messages AS m
       WHERE m.session_id = ? AND m.role = 'user' AND ${active} AND m.timestamp >= ?
         AND m.timestamp < ? AND trim(m.content, ${SPACE}) = trim(?, ${SPACE})
       ORDER BY m.timestamp, m.id LIMIT 1
     ), next AS (
       SELECT min(m.id) AS id FROM asked CROSS JOIN messages AS m
       WHERE m.id > asked.id AND +m.session_id = ? AND +m.role = 'user' AND ${active}
     )
     SELECT m.role AS role, ${has('messages.tool_calls') ? 'm.tool_calls' : 'NULL'} AS calls, ${textColumns(MAX_ANSWER)}
     FROM asked CROSS JOIN next CROSS JOIN messages AS m
     WHERE m.id > asked.id AND (next.id IS NULL OR m.id < next.id) AND +m.session_id = ?
       AND +m.role IN ('assistant', 'tool') AND ${active}
     ORDER BY m.id DESC LIMIT 1`,
    [sessionId, startedAt, askedBefore, question, sessionId, sessionId],
  );
  const [last] = rows;
  const calls = last?.calls ?? '';
  if (last?.role !== 'assistant' || (calls !== '' && calls !== '[]' && calls !== 'null')) return undefined;
  const { text } = readText(last);
  return text.trim() === '' ? undefined : { text };
}

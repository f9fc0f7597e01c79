import { mkdir, readdir, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { type AskedQuestion, createAgentHistory } from '../../../lib/chat/agent-history.ts';
import { wordsOf } from '../../../lib/chat/search-words.ts';
import { readConfig } from '../../../lib/config.ts';
import { createDatabases } from '../../../lib/host/node/databases.ts';
import {
  CONVERSATIONS,
  createDatabase,
  FULL_TEXT,
  MESSAGES,
  type MessageRow,
  messagesSql,
  sessionsSql,
  startWriter,
  WAL,
} from '../../support/agent-database.ts';
import { createTestHost } from '../../support/host.ts';
import { TIMEOUT } from '../../support/limits.ts';
import { temporaryDirectory } from '../../support/temp.ts';

// Its own limit would count the start of a process on a busy machine.
const databases = createDatabases({ timeout: TIMEOUT });
const host = { ...createTestHost({ agentHome: '/nowhere', env: {} }), databases };
afterAll(() => host.databases.close());

let home: string;
let path: string;
let history: ReturnType<typeof createAgentHistory>;

beforeEach(async () => {
  home = await temporaryDirectory();
  path = join(home, 'state.db');
  const { config } = readConfig({}, { home, agentHome: home });
  history = createAgentHistory({ host, config });
});

const page = (query: { sessionId?: string; before?: string; limit?: number; profile?: string } = {}) =>
  history.page({ sessionId: 's1', limit: 50, profile: 'default', ...query });
const textsOf = async (query: Parameters<typeof page>[0] = {}) => {
  const answer = await page(query);
  return answer.kind === 'page' ? answer.items.map(({ text }) => text) : answer.kind;
};
const search = (q: string, limit = 50) => history.search({ words: wordsOf(q), limit, profile: 'default' });
const foundBy = async (q: string) => {
  const hits = await search(q);
  return typeof hits === 'string' ? hits : hits.map((hit) => hit.session_id);
};
const create = (rows: MessageRow[], { schema = CONVERSATIONS, titles = {}, after = '' } = {}) =>
  createDatabase(path, `${schema} BEGIN; ${sessionsSql(titles)} ${messagesSql(rows)} COMMIT; ${after}`);
const numbered = (count: number): MessageRow[] =>
  Array.from({ length: count }, (_, at) => ({ content: `m${at}`, at: 1000 + at }));

/** SQL that inserts messages of which each has the same text. */
const many = (count: number, text: string) => `
  WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT ${count})
  INSERT INTO messages (session_id, role, content, timestamp) SELECT 's1', 'user', ${text}, i FROM n;`;

describe('a page of the history (contract 10 §2)', () => {
  it('has user, assistant, tool and system with their times, newest last', async () => {
    create([
      { role: 'system', content: 'Be brief', at: 1 },
      { content: 'Question\n', at: 2.5 },
      { role: 'assistant', content: null, calls: '[{"id":"c1"}]', at: 3 },
      { role: 'assistant', content: ' \n', calls: '[{"id":"c2"}]', at: 3 },
      { role: 'tool', content: '{"output":"ok","api_key":"SECRET"}', tool: 'terminal', at: 4 },
      { role: 'assistant', content: 'Let me see', calls: '[{"id":"c3"}]', at: 5 },
      { role: 'assistant', content: 'Answer', at: 6 },
      { role: 'session_meta', content: 'SECRET', at: 7 },
      { content: 'undone', at: 8, active: 0 },
      { content: 'elsewhere', session: 's2', at: 9 },
    ]);
    expect(await page()).toEqual({
      kind: 'page',
      hasMore: false,
      items: [
        { id: '1', role: 'system', text: 'Be brief', ts: 1 },
        { id: '2', role: 'user', text: 'Question\n', ts: 2.5 },
        { id: '5', role: 'tool', text: '{"output_preview":"ok","api_key":"[REDACTED]"}', ts: 4, tool_name: 'terminal' },
        { id: '6', role: 'assistant', text: 'Let me see', ts: 5 },
        { id: '7', role: 'assistant', text: 'Answer', ts: 6 },
      ],
    });
  });

  it.each([
    ['with the index of the agent', CONVERSATIONS],
    ['without an index', MESSAGES],
    ['with an index of the session only', `${MESSAGES} CREATE INDEX own ON messages(session_id);`],
  ])('goes back to the first message in the order of time, %s', async (_name, schema) => {
    // Ids fall while times rise, and some times are equal.
    const rows = Array.from({ length: 25 }, (_, at) => ({ content: `m${at}`, at: 1000 + Math.floor(at / 3) }));
    const groups = Array.from({ length: 9 }, (_, group) => rows.slice(3 * group, 3 * group + 3));
    create(groups.reverse().flat(), { schema });
    const seen: string[] = [];
    let before: string | undefined;
    for (let pages = 0; pages < 10; pages++) {
      const answer = await page({ limit: 7, before });
      if (answer.kind !== 'page') throw new Error(answer.kind);
      seen.unshift(...answer.items.map(({ text }) => text));
      before = answer.items[0]?.id;
      if (!answer.hasMore) break;
    }
    expect(seen).toEqual(rows.map(({ content }) => content));
    expect(await page({ before })).toEqual({ kind: 'page', items: [], hasMore: false });
  });

  it('has no more than is there when the limit is met exactly', async () => {
    create(numbered(5));
    expect(await page({ limit: 5 })).toMatchObject({ hasMore: false });
    expect(await page({ limit: 4 })).toMatchObject({ hasMore: true });
  });

  it('reads databases with fewer columns', async () => {
    const few = 'CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT);';
    createDatabase(
      path,
      `${few} INSERT INTO messages VALUES (1, 's1', 'user', 'a'), (2, 's1', 'tool', 'b'),
      (3, 's1', 'user', 'c');`,
    );
    const [first, second] = [
      { id: '2', role: 'tool', text: 'b', ts: null },
      { id: '3', role: 'user', text: 'c', ts: null },
    ];
    expect(await page({ limit: 2 })).toEqual({ kind: 'page', items: [first, second], hasMore: true });
    expect(await textsOf({ before: '2' })).toEqual(['a']);
    expect(await search('c')).toMatchObject([{ session_id: 's1', title: null, id: '3', ts: null }]);
    expect(await history.answerTo({ sessionId: 's1', question: 'a', startedAt: 0, profile: null })).toBeUndefined();
  });

  it('cuts long texts, and tells so', async () => {
    const long = `${'ä'.repeat(40_000)}end`;
    create([
      { content: long, at: 1 },
      { role: 'tool', content: 'x'.repeat(5000), at: 2 },
      { role: 'tool', content: JSON.stringify({ token: 'SECRET', stdout: 'y'.repeat(90_000) }), at: 3 },
      { role: 'tool', content: JSON.stringify({ a: [{ password: 'SECRET'.repeat(9000) }] }), at: 4 },
      { content: 'a\0b', at: 5 },
    ]);
    const answer = await page();
    if (answer.kind !== 'page') throw new Error(answer.kind);
    const [first, ...rest] = answer.items;
    expect(first).toEqual({ id: '1', role: 'user', text: 'ä'.repeat(32_768), ts: 1, truncated: true });
    expect(rest[0]).toMatchObject({ text: `${'x'.repeat(1599)}…`, truncated: true });
    expect(rest[1]?.text).toMatch(/^\{"token":"\[REDACTED\]","stdout_preview":"yyy/);
    expect(rest[1]).toMatchObject({ truncated: true });
    expect(rest[2]).toMatchObject({ text: '{"a":[{"password":"[REDACTED]"}]}', truncated: true });
    expect(rest[3]?.text).toBe('a\0b');
    expect(JSON.stringify(answer)).not.toContain('SECRET');
  });

  it('is bounded in bytes: what does not fit is on the page before', async () => {
    create([], { after: many(120, 'hex(zeroblob(30000))') });
    const answer = await page({ limit: 200 });
    if (answer.kind !== 'page') throw new Error(answer.kind);
    expect(answer.items.length).toBeGreaterThan(50);
    expect(answer.items.length).toBeLessThan(80);
    expect(answer).toMatchObject({ hasMore: true });
    expect(answer.items.at(-1)?.id).toBe('120');
  });

  it('knows sessions without messages, but no others and no foreign items', async () => {
    create(
      [
        { content: 'a', at: 1 },
        { content: 'b', at: 2, session: 's2' },
        { content: 'c', at: 3, session: 's3', active: 0 },
      ],
      {
        titles: { empty: 'New' },
      },
    );
    const empty = { kind: 'page', items: [], hasMore: false };
    expect(await page({ sessionId: 'empty' })).toEqual(empty);
    expect(await page({ sessionId: 's3' })).toEqual(empty);
    for (const sessionId of ['nobody', "s1' OR 1=1 --", '%']) {
      expect(await page({ sessionId })).toEqual({ kind: 'unknown-session' });
      expect(await page({ sessionId, before: '1' })).toEqual({ kind: 'unknown-session' });
    }
    for (const before of ['2', '99', '-1', '1.5', '0x1', 'a', '9'.repeat(15), '9'.repeat(40), '1 OR 1']) {
      expect(await page({ before })).toEqual({ kind: 'unknown-before' });
    }
  });

  it('reads what only the log of a running agent has, and never holds it up', async () => {
    const agent = await startWriter(path);
    await agent.run(`${WAL} ${CONVERSATIONS} ${messagesSql([{ content: 'a', at: 1 }])}`);
    expect(await textsOf()).toEqual(['a']);
    expect(await agent.run(messagesSql([{ content: 'b', at: 2 }]))).toEqual([]);
    expect(await textsOf()).toEqual(['a', 'b']);
    // A transaction of the agent does not keep readers out.
    await agent.run('BEGIN IMMEDIATE');
    await agent.run(messagesSql([{ content: 'c', at: 3 }]));
    expect(await textsOf()).toEqual(['a', 'b']);
    await agent.run('COMMIT');
    expect(await textsOf()).toEqual(['a', 'b', 'c']);
  });

  it.each([
    ['missing', 'absent', async () => {}],
    ['empty', 'absent', () => writeFile(path, '')],
    ['of another program', 'absent', async () => createDatabase(path, 'CREATE TABLE other (a);')],
    ['of another schema', 'absent', async () => createDatabase(path, 'CREATE TABLE messages (id);')],
    ['no database', 'unreadable', () => writeFile(path, 'x'.repeat(5000))],
    ['a directory', 'unreadable', () => mkdir(path)],
    [
      'damaged',
      'unreadable',
      async () => {
        create(numbered(2000));
        await truncate(path, 9000);
      },
    ],
    [
      'locked',
      'unreadable',
      async () => {
        create(numbered(1));
        const agent = await startWriter(path);
        await agent.run('BEGIN EXCLUSIVE');
      },
    ],
  ])('a database that is %s is %s', async (_name, problem, make) => {
    await make();
    const names = await readdir(home);
    expect(await page()).toEqual({ kind: problem });
    expect(await search('word')).toBe(problem);
    expect(await history.answerTo({ sessionId: 's1', question: 'm0', startedAt: 0, profile: null })).toBeUndefined();
    expect(await readdir(home)).toEqual(names);
  });

  it('follows a link to the database', async () => {
    create(numbered(1));
    await rename(path, join(home, 'elsewhere.db'));
    await symlink(join(home, 'elsewhere.db'), path);
    expect(await textsOf()).toEqual(['m0']);
    await rm(join(home, 'elsewhere.db'));
    expect(await page()).toEqual({ kind: 'absent' });
  });

  it('reads the database of the profile', async () => {
    const work = join(home, 'profiles/work');
    await mkdir(work, { recursive: true });
    createDatabase(join(work, 'state.db'), CONVERSATIONS + messagesSql([{ content: 'work', at: 1 }]));
    create([{ content: 'root', at: 1 }]);
    expect(await textsOf()).toEqual(['root']);
    expect(await textsOf({ profile: 'work' })).toEqual(['work']);
    for (const profile of ['nobody', '..', 'work/../work']) {
      await expect(page({ profile })).rejects.toMatchObject({ kind: 'not-found', message: 'profile_not_found' });
    }
  });
});

describe.each([
  ['with the full-text table', FULL_TEXT],
  ['by a scan', ''],
])('search %s (contract 10 §2)', (_name, after) => {
  it('finds conversations with all words in one message or in the title', async () => {
    create(
      [
        { session: 's1', content: 'The Deploy plan', at: 1 },
        { session: 's1', role: 'assistant', content: 'We DEPLOY\non Friday, that is the plan for now', at: 2 },
        { session: 's1', content: 'thanks', at: 3 },
        { session: 's2', content: 'deploy', at: 4 },
        { session: 's2', content: 'plan', at: 5 },
        { session: 's3', content: 'undone deploy plan', at: 6, active: 0 },
        { session: 's4', content: 'Ärger im Büro', at: 7 },
        { session: 's5', role: 'session_meta', content: 'deploy plan', at: 8 },
        { session: 's6', content: 'hello', at: 9 },
      ],
      { after, titles: { s1: 'First', s4: null, s6: 'My deploy Plan', s7: 'plan to deploy' } },
    );
    expect(await search('plan deploy')).toEqual([
      { session_id: 's6', title: 'My deploy Plan', id: '9', ts: 9, excerpt: 'hello' },
      { session_id: 's7', title: 'plan to deploy', id: null, ts: 3, excerpt: '' },
      { session_id: 's1', title: 'First', id: '2', ts: 2, excerpt: 'We DEPLOY on Friday, that is the plan for now' },
    ]);
    expect(await foundBy('ÄRGER')).toEqual(['s4']);
    expect(await foundBy('büro')).toEqual(['s4']);
    expect(await foundBy('nothing here')).toEqual([]);
    expect(await search('deploy', 1)).toHaveLength(1);
  });

  it('takes quotes, operators and wildcards as text', async () => {
    create(
      [
        { session: 'quoted', content: 'She said "hello" to me', at: 1 },
        { session: 'plain', content: 'hello world, 1000 reasons, axb', at: 2 },
        { session: 'percent', content: "it's 100% a_b done (really)", at: 3 },
        { session: 'star', content: 'wor* [x]? a-b c:\\d NEAR(a b) OR AND NOT', at: 4 },
        { session: 'words', content: 'this or that and not near', at: 5 },
      ],
      { after },
    );
    expect(await foundBy('"hello"')).toEqual(['quoted']);
    expect(await foundBy('hello')).toEqual(['plain', 'quoted']);
    expect(await foundBy('100%')).toEqual(['percent']);
    expect(await foundBy('a_b')).toEqual(['percent']);
    expect(await foundBy("it's")).toEqual(['percent']);
    expect(await foundBy('wor*')).toEqual(['star']);
    expect(await foundBy('[x]? a-b')).toEqual(['star']);
    expect(await foundBy('NEAR(a b)')).toEqual(['star']);
    expect(await foundBy('c:\\d')).toEqual(['star']);
    expect(await foundBy('or not')).toEqual(['words', 'star']);
    for (const q of ['"', '""', 'a"b', '(', ')', '*', '^a', '- -', 'content:', '{a b}: c', '+', "';--", '%%', '__']) {
      expect(Array.isArray(await foundBy(q))).toBe(true);
    }
  });

  it('finds words of scripts without spaces', async () => {
    create([{ content: '明日の会議は三時です', at: 1 }], { after });
    expect(await foundBy('会議')).toEqual(['s1']);
    expect(await foundBy('会議 明日')).toEqual(['s1']);
    expect(await foundBy('会社')).toEqual([]);
  });

  it('shows the words in an excerpt', async () => {
    create([{ role: 'assistant', content: `${'before '.repeat(40)}Needle ${'after '.repeat(80)}`, at: 1 }], { after });
    const hits = await search('needle');
    if (typeof hits === 'string') throw new Error(hits);
    expect(hits[0]?.excerpt).toMatch(/^….*before Needle after.*…$/);
    expect(hits[0]?.excerpt.length).toBeLessThanOrEqual(200);
  });

  it('finds results of tools by what clients see of them only', async () => {
    create(
      [
        { session: 's1', role: 'tool', content: '{"output":"needle in hay","api_key":"sk-hidden word"}', at: 1 },
        { session: 's2', role: 'assistant', content: '', calls: '[{"name":"needle"}]', at: 2 },
      ],
      { after },
    );
    expect(await search('needle')).toMatchObject([
      { session_id: 's1', excerpt: '{"output_preview":"needle in hay","api_key":"[REDACTED]"}' },
    ]);
    expect(await foundBy('sk-hidden')).toEqual([]);
  });
});

describe('search (contract 10 §2)', () => {
  it('scans when the full-text table does not work, and only the newest messages', async () => {
    const after = [
      messagesSql([{ content: 'needle one', at: 1 }]),
      many(20_000, "'hay'"),
      messagesSql([{ session: 's2', content: 'needle two', at: 5 }]),
      'CREATE TABLE messages_fts (content TEXT);',
    ];
    create([], { after: after.join('') });
    expect(await foundBy('needle')).toEqual(['s2']);
  });
});

describe('the answer to an interrupted question (contract 10 §1)', () => {
  const ask = async (startedAt: number, other: Partial<AskedQuestion> = {}) => {
    const asked = { sessionId: 's1', profile: null, question: 'What now?', startedAt, ...other };
    return (await history.answerTo(asked))?.text;
  };
  const asked = (at: number): MessageRow => ({ content: 'What now?', at });
  const said = (content: string, at: number): MessageRow => ({ role: 'assistant', content, at });

  it('is what ended the turn, and no older answer to the same question', async () => {
    create([
      asked(10),
      said('Old answer', 11),
      asked(20.5),
      { role: 'assistant', content: 'Let me see', calls: '[{"id":"c1"}]', at: 21 },
      { role: 'tool', content: 'ok', at: 22 },
      { ...said('New answer', 23), calls: '[]' },
      { ...asked(30) },
      { session: 's2', role: 'assistant', content: 'Elsewhere', at: 31 },
    ]);
    expect(await ask(20.4)).toBe('New answer');
    expect(await ask(9)).toBe('Old answer');
    expect(await ask(20.4, { question: ' What now?\n' })).toBe('New answer');
    expect(await ask(30)).toBeUndefined();
    expect(await ask(31)).toBeUndefined();
    // Asked again later, it is another question.
    expect(await ask(12, { askedBefore: 20.5 })).toBeUndefined();
    expect(await ask(12, { askedBefore: 20.6 })).toBe('New answer');
    expect(await ask(20.4, { question: 'Something else' })).toBeUndefined();
    expect(await ask(0, { sessionId: 's2' })).toBeUndefined();
    expect(await ask(0, { profile: 'nobody' })).toBeUndefined();
  });

  it.each([
    ['an empty message', said('', 12)],
    ['a message that calls a tool', { ...said('Let me see', 12), calls: '[{"id":"c1"}]' }],
    ['a result of a tool', { role: 'tool', content: 'ok', at: 12 }],
    ['an answer that was undone', { ...said('Answer', 12), active: 0 }],
  ])('is not there after %s', async (_name, row) => {
    create([asked(10), row]);
    expect(await ask(10)).toBeUndefined();
  });
});

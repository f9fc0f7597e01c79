import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import Database from 'libsql';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type AgentHistory, createAgentHistory } from '../../../lib/chat/agent-history.ts';
import { wordsOf } from '../../../lib/chat/search-words.ts';
import { readConfig } from '../../../lib/config.ts';
import { attempt } from '../../../lib/kit/attempt.ts';
import { CONVERSATIONS, FULL_TEXT } from '../../support/agent-database.ts';
import { createTestHost } from '../../support/host.ts';
import { runningWith } from '../../support/running.ts';

const MESSAGES = 2_000_000;
/** Milliseconds of processor time that a first page may take. */
const BUDGET = 100;

const host = createTestHost({ agentHome: '/nowhere', env: {} });
let home: string;
let history: AgentHistory;

afterAll(async () => {
  host.databases.close();
  await rm(home, { recursive: true, force: true });
});

/** One session has half of all messages, the others a thousand each. */
beforeAll(async () => {
  home = await mkdtemp(join(tmpdir(), 'svc-relay-test-'));
  const { config } = readConfig({}, { home, agentHome: home });
  history = createAgentHistory({ host, config });
  const database = new Database(join(home, 'state.db'));
  database.exec(`PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; ${CONVERSATIONS}
    WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n LIMIT ${MESSAGES})
    INSERT INTO messages (session_id, role, content, timestamp)
    SELECT CASE WHEN i % 2 THEN 'big' ELSE 's' || (i / 2000) END, CASE WHEN i % 4 < 2 THEN 'user' ELSE 'assistant' END,
      'message ' || i || ' about the weather, the plan and what else people talk about', 1700000000 + i FROM n;
    INSERT INTO sessions (id, source, started_at, title) SELECT session_id, 'cli', min(timestamp), 'Talk ' || session_id
    FROM messages GROUP BY session_id;
    ${FULL_TEXT}`);
  database.close();
}, 300_000);

/** Processor time of this process and its reader so far, in milliseconds. */
async function spent(): Promise<number> {
  const own = new Set(await runningWith('svc-relay-read-'));
  const { user, system } = process.cpuUsage();
  let total = (user + system) / 1000;
  for (const pid of own) {
    // That of another test may have ended.
    const status = attempt(() => readFileSync(`/proc/${pid}/status`, 'utf8'));
    if (!status?.includes(`\nPPid:\t${process.pid}\n`)) continue;
    for (const task of readdirSync(`/proc/${pid}/task`)) {
      total += Number(readFileSync(`/proc/${pid}/task/${task}/schedstat`, 'utf8').split(' ')[0]) / 1e6;
    }
  }
  return total;
}

async function costOf(work: () => Promise<unknown>): Promise<number> {
  const before = await spent();
  await work();
  return (await spent()) - before;
}

const pageOf = (sessionId: string, before?: string) =>
  history.page({ sessionId, profile: 'default', limit: 50, before });

it.each([
  ['a session of a million messages', 'big', 1_999_999],
  ['the oldest session', 's0', 1998],
  ['the newest session', 's999', 1_999_998],
])('reads the first page of %s among 2 million within 100 ms of CPU (contract 10 §2)', async (_name, id, newest) => {
  // Starts the reader.
  await pageOf('nobody');
  let first: Awaited<ReturnType<typeof pageOf>> | undefined;
  const cost = await costOf(async () => {
    first = await pageOf(id);
  });
  expect(first).toMatchObject({ kind: 'page', hasMore: true });
  expect(first?.kind === 'page' && first.items.at(-1)?.text).toMatch(new RegExp(`^message ${newest} `));
  expect(cost).toBeLessThan(BUDGET);
});

it('reads a page in the middle at the same cost', async () => {
  const cost = await costOf(async () => expect(await pageOf('big', '1000000')).toMatchObject({ hasMore: true }));
  expect(cost).toBeLessThan(BUDGET);
});

it('searches 2 million messages, also for words that are in all of them', async () => {
  const find = (q: string) => history.search({ words: wordsOf(q), limit: 50, profile: 'default' });
  expect(await find('1000001')).toMatchObject([{ session_id: 'big', id: '1000002', title: 'Talk big' }]);
  expect(await find('weather plan')).toHaveLength(11);
  expect(await find('talk s999')).toMatchObject([{ session_id: 's999' }]);
});

it('finds the answer to a question', async () => {
  const question = 'message 1999981 about the weather, the plan and what else people talk about';
  let answer: { text: string } | undefined;
  const cost = await costOf(async () => {
    answer = await history.answerTo({ sessionId: 'big', profile: null, question, startedAt: 1701999980 });
  });
  expect(answer?.text).toMatch(/^message 1999983 /);
  expect(cost).toBeLessThan(BUDGET);
});

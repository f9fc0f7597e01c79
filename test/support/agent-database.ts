import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import Database from 'libsql';
import { onTestFinished } from 'vitest';

const WRITER = fileURLToPath(new URL('./sql-writer.mjs', import.meta.url));

/** A process that keeps a database open and writes to it. Ended after the test. */
export async function startWriter(path: string) {
  const child = spawn(process.execPath, [WRITER, path], { stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const answer = async () => JSON.parse((await lines.next()).value ?? '{"error":"gone"}');
  const kill = async () => {
    child.kill('SIGKILL');
    await exited;
  };
  onTestFinished(kill);
  await answer();
  return {
    /** Runs SQL in it and returns rows or `{ error }`. */
    run(sql: string): Promise<Record<string, unknown>[] & { error?: string }> {
      child.stdin.write(`${JSON.stringify(sql)}\n`);
      return answer();
    },
    kill,
  };
}

/** Creates a database and closes it cleanly, so that no other file remains beside it. */
export function createDatabase(path: string, sql: string): void {
  const database = new Database(path);
  database.exec(sql);
  database.close();
}

export const WAL = 'PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0;';

export const MESSAGES = `CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT,
  tool_calls TEXT, tool_name TEXT, tool_call_id TEXT, timestamp REAL, active INTEGER DEFAULT 1);`;

export const SESSIONS = 'CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, chat_id TEXT, title TEXT);';

/** The tables of a conversation as the agent lays them out, with its index. */
export const CONVERSATIONS = `
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT NOT NULL, model TEXT, system_prompt TEXT, parent_session_id TEXT,
  started_at REAL NOT NULL, ended_at REAL, message_count INTEGER DEFAULT 0, title TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL,
  role TEXT NOT NULL, content TEXT, tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL,
  token_count INTEGER, finish_reason TEXT, active INTEGER NOT NULL DEFAULT 1);
CREATE INDEX idx_messages_session ON messages(session_id, timestamp);`;

/** Its full-text table, filled from messages that are there, and kept by a trigger. */
export const FULL_TEXT = `
CREATE VIRTUAL TABLE messages_fts USING fts5(content, content=messages, content_rowid=id);
INSERT INTO messages_fts(messages_fts) VALUES ('rebuild');
CREATE TRIGGER messages_fts_insert AFTER INSERT ON messages BEGIN
  INSERT INTO messages_fts(rowid, content) VALUES (new.id, new.content);
END;`;

/** A row of `messages` with what differs from a question of the user. */
export interface MessageRow {
  session?: string;
  role?: string;
  content?: string | null;
  calls?: string;
  tool?: string;
  at: number;
  active?: number;
}

const quote = (value: string | null | undefined): string => {
  if (value === null || value === undefined) return 'NULL';
  return `CAST(x'${Buffer.from(value).toString('hex')}' AS TEXT)`;
};

/** SQL that inserts messages, each with the next id. */
export const messagesSql = (rows: MessageRow[]): string =>
  rows
    .map(
      ({ session = 's1', role = 'user', content, calls, tool, at, active = 1 }) =>
        `INSERT INTO messages (session_id, role, content, tool_calls, tool_name, timestamp, active) VALUES
         (${quote(session)}, ${quote(role)}, ${quote(content)}, ${quote(calls)}, ${quote(tool)}, ${at}, ${active});`,
    )
    .join('\n');

/** SQL that inserts sessions by id and title. */
export const sessionsSql = (titles: Record<string, string | null>): string =>
  Object.entries(titles)
    .map(
      ([id, title], at) =>
        `INSERT INTO sessions (id, source, started_at, title) VALUES (${quote(id)}, 'cli', ${at}, ${quote(title)});`,
    )
    .join('\n');

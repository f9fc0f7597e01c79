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

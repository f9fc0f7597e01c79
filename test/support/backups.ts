import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { expect } from 'vitest';
import { createTable, putRows, type StoredRow } from '../../storage/sql-driver.ts';
import { openStateFile, readSnapshot } from '../../storage/sqlite.ts';
import { agentHome, run } from './cli.ts';

export const stateOf = (home: string) => join(home, 'svc-relay/state.db');
export const fail = (message: string): never => {
  throw new Error(message);
};

/** A home of its own; `SVC_RELAY_HOME` is a folder beside it. */
export function emptyHome() {
  const base = agentHome();
  const home = join(base, 'home');
  const env = { HOME: base, SVC_HOME: home, RELAY_PORT: '1' };
  return { base, home, env, svc: (...words: string[]) => run(words, { env }) };
}

export async function put(path: string, content: string | Uint8Array): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, content);
}

export async function putState(home: string, rows: StoredRow[]): Promise<void> {
  await mkdir(dirname(stateOf(home)), { recursive: true });
  const state = openStateFile(stateOf(home), fail);
  createTable(state);
  putRows(state, rows);
  state.close?.();
}

/** Every file of a home that a backup holds, and every row of its state. */
export async function contentOf({ base, home }: { base: string; home: string }) {
  const entries = await readdir(base, { recursive: true, withFileTypes: true }).catch(() => []);
  const files: Record<string, string> = {};
  for (const entry of entries) {
    const path = join(entry.parentPath, entry.name);
    if (!entry.isFile() || path.startsWith(stateOf(home)) || path.includes('/replaced-')) continue;
    files[path.slice(base.length)] = (await readFile(path)).toString('base64');
  }
  return { files, rows: rowsOf(stateOf(home)) };
}

/** Every row of a state, except for the time of its last restore. */
export const rowsOf = (path: string) =>
  existsSync(path) ? [...readSnapshot(path)].filter((row) => row?.[0] !== 'restored' || row[1] !== 'restored') : [];

/** A home with a session, and its backup. */
export async function backedUp(...options: string[]) {
  const from = emptyHome();
  await putState(from.home, [['sessions', 'a'.repeat(32), '{"family":"a"}']]);
  await put(join(from.home, '.env'), 'RELAY_HOST=127.0.0.1\n');
  await put(join(from.base, 'pw'), 'correct horse battery\n');
  const file = join(from.base, 'relay.svc');
  const words = options.length > 0 ? options : ['--passphrase-file', join(from.base, 'pw')];
  const made = await from.svc('backup', file, ...words);
  expect([made.code, made.stderr]).toEqual([0, '']);
  return { ...from, file, made, pw: ['--passphrase-file', join(from.base, 'pw')] };
}

/** A backup without a passphrase with this content, as a hostile program would write it. */
export const plain = (items: unknown[], header: object = {}) =>
  Buffer.concat([
    Buffer.from(
      `${JSON.stringify({ svc_relay_backup: 1, version: '0.9.0', schema: 1, created_at: 1, salt: null, ...header })}\n`,
    ),
    gzipSync(items.map((item) => `${JSON.stringify(item)}\n`).join('')),
  ]);
export const HOME = { home: { agent_home: '/home/old/.svc', home: '/home/old', has_state: true } };
export const endOf = (files: number, rows: number) => ({ end: { files, rows } });
export const fileOf = (file: string, text: string) => ({ file, data: Buffer.from(text).toString('base64') });

import { randomBytes } from 'node:crypto';
import { realpathSync, rmSync, writeFileSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { Config } from '../../lib/config.ts';
import { asObject } from '../../lib/kit/json.ts';
import { CommandError, printable } from '../output.ts';
import { localRelay, requireAnswer } from '../relay-client.ts';
import { relayProcess } from '../relay-process.ts';

/** Milliseconds for a copy of a large state on a slow disk. */
const TIMEOUT = 120_000;
const NAME = /-snapshot-\d+-[0-9a-f]{16}$/;

/** A copy of a state, as a database of its own. */
export interface Snapshot {
  path: string;
  remove(): void;
}

/**
 * Copies the state consistently: the running relay makes the copy, or this process if no relay runs. Null without a state.
 * @throws CommandError when the relay does not do it, or the state is damaged.
 */
export async function takeSnapshot(config: Config, stateFile: string): Promise<Snapshot | null> {
  const path = (await relayProcess(config)) === null ? await copyHere(stateFile) : undefined;
  if (path === null) return null;
  const made = path ?? (await copyByRelay(config, stateFile));
  return { path: made, remove: () => rmSync(made, { force: true }) };
}

/** The path of the copy, null without a state, undefined when a relay holds it after all. */
async function copyHere(stateFile: string): Promise<string | null | undefined> {
  const { openSoundState, StateInUseError } = await import('../../storage/sqlite.ts');
  const path = `${stateFile}-snapshot-${Date.now()}-${randomBytes(8).toString('hex')}`;
  try {
    const state = openSoundState(stateFile);
    if (state === null) return null;
    try {
      writeFileSync(path, '', { flag: 'wx', mode: 0o600 });
      await state.snapshot?.(path);
      return path;
    } finally {
      state.close?.();
    }
  } catch (error) {
    rmSync(path, { force: true });
    if (error instanceof StateInUseError) return undefined;
    const { code = '' } = error as NodeJS.ErrnoException;
    if (!/^SQLITE_(NOTADB|CORRUPT)/.test(code)) throw error;
    throw new CommandError(
      `the state ${printable(stateFile)} is damaged`,
      'Start the relay once with: svc up. It keeps what can be read, and says what cannot.',
    );
  }
}

async function copyByRelay(config: Config, stateFile: string): Promise<string> {
  const call = { method: 'POST', path: '/relay/snapshot', timeout: TIMEOUT } as const;
  const older = "It may be older than this command: restart it with 'svc restart', and try again.";
  const { path } = asObject((await requireAnswer(localRelay(config), call, older)).body) ?? {};
  // Removed afterwards, so it must be a file of our own.
  if (typeof path === 'string' && NAME.test(path) && basename(path).startsWith(`${basename(stateFile)}-snapshot-`)) {
    if (realpathSync(dirname(path)) === realpathSync(dirname(stateFile))) return path;
  }
  throw new CommandError(`the relay on port ${config.port} runs on another state than ${printable(stateFile)}`, older);
}

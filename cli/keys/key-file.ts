import { stat } from 'node:fs/promises';
import type { Config } from '../../lib/config.ts';
import { describeError } from '../../lib/errors.ts';
import { unlessMissing } from '../../lib/host/errors.ts';
import type { HostFiles } from '../../lib/host/index.ts';
import { readRelayLock } from '../../lib/host/node/relay-lock.ts';
import { createUsers } from '../../lib/host/node/users.ts';
import { isOlder, ownVersion } from '../builds.ts';
import { type CommandContext, CommandError, printable } from '../output.ts';

const AS_RELAY = 'Run this as the user that runs the relay.';

/** Reads the time at which a key was made, in epoch seconds; null if no key exists yet. */
export async function madeAt(path: string, files: HostFiles): Promise<number | null> {
  const facts = await files.stat(path).catch((error) => {
    throw new CommandError(`${printable(path)} cannot be read: ${describeError(error)}`, AS_RELAY);
  });
  return facts && Math.floor(facts.modified / 1000);
}

/**
 * Puts a key into the place of another, at once and whole.
 * @throws CommandError when it cannot be written, or belongs to another user, whose relay could not read it then.
 */
export async function replaceKey(path: string, key: Uint8Array, files: HostFiles): Promise<void> {
  const failed = (why: string) => new CommandError(`${printable(path)} cannot be replaced: ${why}`, AS_RELAY);
  const facts = await unlessMissing(stat(path)).catch((error) => {
    throw failed(describeError(error));
  });
  const { own } = createUsers();
  if (facts && own !== null && facts.uid !== own) throw failed(`it belongs to user ${facts.uid}`);
  await files.writeAtomic(path, key, 0o600).catch((error) => {
    throw failed(describeError(error));
  });
}

/** True while a relay of an older build runs: those read their keys only at the start, and go on with the old one. */
export function needsRestart({ stateFile }: Config, context: CommandContext): boolean {
  const lock = stateFile === null ? null : readRelayLock(stateFile);
  return lock !== null && isOlder(lock, ownVersion(context));
}

export const RESTART = 'The relay that runs is older, and keeps the old key until it is restarted: svc restart';

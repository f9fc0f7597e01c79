import { variables } from '../lib/config.ts';
import { readRelayLock } from '../lib/host/node/relay-lock.ts';
import { isOlder, ownVersion } from './builds.ts';
import { loadEnvironment, readVariable } from './environment.ts';
import type { Invocation } from './invocation.ts';
import type { Options } from './options.ts';
import { type CommandContext, printWarning } from './output.ts';
import { buildText } from './own-package.ts';
import { remoteRelay } from './remote-relay.ts';

/** The relay of this machine, which is older than this program (contract 11 §1). */
interface Outdated {
  /** Version and build. */
  relay: string;
  command: string;
  next: string;
}

/** Null when it is not, when none runs, or when the command means a relay elsewhere. Never throws. */
async function outdatedRelay(options: Options, context: CommandContext): Promise<Outdated | null> {
  try {
    const environment = loadEnvironment(context.env);
    const stateFile = readVariable(variables.stateFile, environment);
    const lock = stateFile === null ? null : readRelayLock(stateFile);
    const own = ownVersion(context);
    if (!lock || !isOlder(lock, own) || (await remoteRelay(options, environment))) return null;
    const next = 'Restart it with: svc restart';
    return { relay: buildText(lock.version, lock.build), command: buildText(own.version, own.build), next };
  } catch {
    // The command itself reports errors of the configuration.
    return null;
  }
}

/** A line about a relay that is older than this program, or a member of the JSON document (contract 11 §1). */
export async function noteOutdated(options: Options, context: CommandContext, invocation: Invocation): Promise<void> {
  const outdated = await outdatedRelay(options, context);
  if (!outdated) return;
  if (options.json === true) invocation.extra = { relay_outdated: outdated };
  else
    printWarning(
      context,
      `the relay (${outdated.relay}) is older than this command (${outdated.command}): svc restart`,
    );
}

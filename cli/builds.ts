import type { RelayBuild } from '../lib/host/node/relay-lock.ts';
import { compareVersions } from '../lib/operator/update-check.ts';
import type { CommandContext } from './output.ts';

/** A program of this package: the relay, or the command that calls it. */
export interface Build {
  version: string | null;
  build: RelayBuild | null;
}

/** The build of this command. */
export function ownVersion({ ownPackage }: CommandContext): { version: string; build: RelayBuild | null } {
  return { version: ownPackage.version, build: ownPackage.build ?? null };
}

/** True for a relay of an older version than the command, or of an older build of the same version (contract 11 §1). */
export function isOlder(relay: Build, command: Build): boolean {
  if (relay.version === null || command.version === null) return false;
  if (relay.version !== command.version) return compareVersions(command.version, relay.version) > 0;
  if (!relay.build || !command.build) return false;
  return relay.build.id !== command.build.id && relay.build.built_at < command.build.built_at;
}

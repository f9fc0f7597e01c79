import { hostname } from 'node:os';
import { join, resolve } from 'node:path';
import type { DeviceFacts } from '../../lib/companion/link/auth.ts';
import { type CompanionSettings, openSettings } from '../../lib/companion/link/settings.ts';
import { describeError } from '../../lib/errors.ts';
import type { Host } from '../../lib/host/index.ts';
import { utf8ToBytes } from '../../lib/kit/bytes.ts';
import { type Clock, systemClock } from '../../lib/kit/clock.ts';
import { parseObject } from '../../lib/kit/json.ts';
import { loadEnvironment } from '../environment.ts';
import { asName, asText, type Options, option } from '../options.ts';
import { type CommandContext, CommandError, printWarning } from '../output.ts';

/** The option of every `svc companion` command that `openCompanion` reads. */
export const SETTINGS_OPTION = [
  '--settings <path>',
  'settings file (default <agent home>/companion/settings.json)',
] as const;

/** Settings that every `svc companion` command starts from. */
export interface Companion {
  path: string;
  settings: CompanionSettings;
  host: Host;
  clock: Clock;
}

/** Opens the settings at `--settings`, or at `<agent home>/companion/settings.json`. */
export async function openCompanion(options: Options, context: CommandContext): Promise<Companion> {
  const { directories } = loadEnvironment(context.env);
  const host = await context.createHost(directories.agentHome);
  const path = resolve(
    option(options, '--settings', asText) ?? join(directories.agentHome, 'companion', 'settings.json'),
  );
  const settings = await openSettings({ files: host.files, path, clock: systemClock }).catch((error) => {
    throw new CommandError(
      `cannot use the settings ${path}: ${describeError(error)}`,
      'Choose another place with --settings PATH.',
    );
  });
  if (settings.setAside) {
    printWarning(context, `the settings were damaged and have been moved to ${settings.setAside}. Pair again`);
  }
  return { path, settings, host, clock: systemClock };
}

/**
 * Locks the settings against a second companion: two sockets of one device would displace each other, and one would
 * overwrite what the other has stored. Returns the release.
 * @throws CommandError when another companion holds the lock.
 */
export async function lockSettings(companion: Pick<Companion, 'host' | 'path'>): Promise<() => Promise<void>> {
  const { files, processes } = companion.host;
  const lock = lockPath(companion);
  const started = (await processes.facts(process.pid))?.startTime ?? null;
  const content = utf8ToBytes(JSON.stringify({ pid: process.pid, started }));
  for (let attempt = 0; ; attempt++) {
    try {
      await files.createExclusive(lock, content, 0o600);
      return () => files.remove(lock);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST' || attempt === 2) {
        throw new CommandError(
          `cannot lock the settings: ${describeError(error)}`,
          `Remove ${lock} if no companion is running.`,
        );
      }
      const holder = await lockHolder(companion);
      if (holder !== null) {
        throw new CommandError(
          `a companion is running with these settings (process ${holder})`,
          'Stop it first (q, or Ctrl-C), or use other settings with --settings PATH.',
        );
      }
      await files.remove(lock);
    }
  }
}

const lockPath = ({ path }: Pick<Companion, 'path'>): string => `${path}.lock`;

/** The process that runs with these settings, or null. One that has ended does not count, even if its pid was reused. */
export async function lockHolder(companion: Pick<Companion, 'host' | 'path'>): Promise<number | null> {
  const { files, processes } = companion.host;
  const text = await files.readText(lockPath(companion), 1024);
  const { pid, started } = parseObject(text ?? '') ?? {};
  if (typeof pid !== 'number' || !Number.isSafeInteger(pid) || pid < 1 || !processes.exists(pid)) return null;
  const facts = await processes.facts(pid);
  return facts && started !== null && facts.startTime !== started ? null : pid;
}

/** Description of this companion for the relay. `given` is the name with which it was paired. */
export const deviceFacts = (options: Options, given?: string): DeviceFacts => ({
  name: option(options, '--name', asName) ?? given ?? 'Simulated phone',
  hostname: hostname(),
  model: 'Simulated phone',
  platform: `Node ${process.versions.node}`,
});

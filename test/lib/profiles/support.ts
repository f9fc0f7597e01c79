import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { Host } from '../../../lib/host/index.ts';
import type { Cancel, Clock } from '../../../lib/kit/clock.ts';
import type { Log } from '../../../lib/log.ts';
import { createProfiles, type ProfileRow, type ProfilesDeps } from '../../../lib/profiles/profiles.ts';
import { createTestHost } from '../../support/host.ts';

/** A stopped clock. */
export function handClock() {
  let now = 1_790_000_000_000;
  let timers: { due: number; run: () => void }[] = [];
  const clock: Clock = {
    now: () => now,
    monotonic: () => now,
    after(delay, run): Cancel {
      const timer = { due: now + delay, run };
      timers.push(timer);
      return () => {
        timers = timers.filter((other) => other !== timer);
      };
    },
  };
  return {
    ...clock,
    get pending() {
      return timers.length;
    },
    move(milliseconds: number) {
      now += milliseconds;
      const due = timers.filter((timer) => timer.due <= now);
      timers = timers.filter((timer) => timer.due > now);
      for (const timer of due) timer.run();
    },
  };
}

export function listLog() {
  const warnings: string[] = [];
  const log: Log = { debug() {}, info() {}, warn: (message) => warnings.push(message), error() {}, named: () => log };
  return { log, warnings };
}

interface Changes {
  config?: (home: string) => Partial<ProfilesDeps['config']>;
  /** Replaces parts of the real host. */
  host?: (real: Host) => Host;
  onChange?: () => void;
}

/** Profiles over an agent home in a temporary directory, which is removed when the test ends. */
export async function agent(files: Record<string, string | Uint8Array> = {}, changes: Changes = {}) {
  const home = await mkdtemp(join(tmpdir(), 'relay-profiles-'));
  const real = createTestHost({ agentHome: home });
  const host = changes.host?.(real) ?? real;
  const clock = handClock();
  const { log, warnings } = listLog();
  const pushed: ProfileRow[][] = [];
  const config = {
    agentHome: home,
    agentConfig: `${home}/config.yaml`,
    webapiUrl: 'http://localhost:8642',
    profileDiscovery: true,
    ...changes.config?.(home),
  };
  const write = async (path: string, content: string | Uint8Array) => {
    await mkdir(dirname(`${home}/${path}`), { recursive: true });
    await writeFile(`${home}/${path}`, content);
  };
  for (const [path, content] of Object.entries(files)) await write(path, content);
  const profiles = createProfiles({
    host,
    clock,
    log,
    config,
  });
  profiles.onChange(changes.onChange ?? ((rows) => pushed.push(rows)));
  onTestFinished(async () => {
    profiles.stop();
    await rm(home, { recursive: true, force: true });
  });
  const names = () => profiles.rows().map(({ name }) => name);
  const row = (name = 'default'): ProfileRow => {
    const found = profiles.rows().find((candidate) => candidate.name === name);
    if (!found) throw new Error(`no row ${name}`);
    return found;
  };
  return { home, host, clock, config, log, warnings, pushed, profiles, write, names, row };
}

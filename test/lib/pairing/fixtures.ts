import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { type Config, readConfig } from '../../../lib/config.ts';
import type { Host, HostFiles, Tailnet } from '../../../lib/host/index.ts';
import { createFiles } from '../../../lib/host/node/files.ts';
import { createHomeFiles } from '../../../lib/host/node/home-files.ts';
import { createIdentities } from '../../../lib/host/node/identity.ts';
import { createMachine } from '../../../lib/host/node/machine.ts';
import { createMediaFiles } from '../../../lib/host/node/media.ts';
import { createNetwork } from '../../../lib/host/node/network.ts';
import type { Clock } from '../../../lib/kit/clock.ts';
import { createLog } from '../../../lib/log.ts';
import { sharedYaml } from '../../support/host.ts';

/** Whole seconds, so that ends are easy to name. */
export const START = 1_790_000_000;

/** A clock that stands still until told. */
export function fakeClock() {
  let milliseconds = START * 1000;
  const clock: Clock = { now: () => milliseconds, monotonic: () => milliseconds, after: () => () => {} };
  const advance = (seconds: number) => {
    milliseconds += seconds * 1000;
  };
  return { clock, advance };
}

export function fakeLog() {
  const lines: string[] = [];
  return { log: createLog('DEBUG', (line) => lines.push(line)), lines };
}

export interface FakeHostOptions {
  lan?: string | null;
  tailnet?: Tailnet | null;
  /** Replaces some of the file methods. */
  files?: Partial<HostFiles>;
  /** Name and content of files in the agent home. */
  content?: Record<string, string>;
}

const nothingRuns = (): never => {
  throw new Error('nothing is started here');
};

/** A host with an agent home of its own, removed with the test. */
export async function fakeHost(options: FakeHostOptions = {}): Promise<Host> {
  const { lan = '192.168.1.20', tailnet = null, files, content = {} } = options;
  const agentHome = await mkdtemp(join(tmpdir(), 'svc-pairing-'));
  onTestFinished(() => rm(agentHome, { recursive: true, force: true }));
  for (const [name, text] of Object.entries(content)) await writeFile(join(agentHome, name), text);
  return {
    agentHome,
    files: { ...createFiles(), ...files },
    media: createMediaFiles({ env: {} }),
    homeFiles: createHomeFiles(),
    machine: createMachine(),
    network: {
      ...createNetwork(),
      lanAddress: async () => lan,
      tailnet: async () => tailnet,
      canConnect: async () => false,
    },
    identities: createIdentities(),
    processes: { own: 1, exists: () => false, facts: async () => null, endAll: async () => ({ ended: 0, left: 0 }) },
    users: {
      own: 1,
      home: null,
      ofConnection: async () => 'untold',
      ofServer: async () => 'untold',
      ofListeners: async () => 'untold',
      listeners: async () => null,
      proxies: async () => [],
    },
    env: {},
    databases: { read: async () => ({ rows: null, problem: 'absent' }), close() {} },
    yaml: sharedYaml.share(),
    children: { find: nothingRuns, run: nothingRuns, spawn: nothingRuns },
  };
}

export const configOf = (env: Record<string, string> = {}, host?: Host): Config =>
  readConfig(env, { home: '/nowhere', agentHome: host?.agentHome ?? '/nowhere' }).config;

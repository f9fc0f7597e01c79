import type { Log } from '../../log.ts';
import type { Host } from '../index.ts';
import { createChildren } from './children.ts';
import { createDatabases } from './databases.ts';
import { createFiles } from './files.ts';
import { createHomeFiles } from './home-files.ts';
import { createIdentities } from './identity.ts';
import { createMachine } from './machine.ts';
import { createMediaFiles } from './media.ts';
import { createNetwork } from './network.ts';
import { createProcesses } from './processes.ts';
import { createTerminals } from './terminals.ts';
import { createUsers } from './users.ts';
import { createYamlThread, type YamlThread } from './yaml.ts';

export interface NodeHostOptions {
  /** Absolute path; it need not exist yet. */
  agentHome: string;
  env?: Record<string, string | undefined>;
  log?: Log;
  /** A thread shared by several hosts; by default, each host has its own. */
  yaml?: YamlThread | undefined;
}

/** The host machine of a Node process. */
export function createNodeHost({ agentHome, env = process.env, log, yaml }: NodeHostOptions): Host {
  return {
    agentHome,
    env,
    files: createFiles(),
    media: createMediaFiles({ env }),
    homeFiles: createHomeFiles(),
    machine: createMachine(),
    network: createNetwork(),
    identities: createIdentities(),
    processes: createProcesses(),
    users: createUsers(),
    children: createChildren(env),
    databases: createDatabases(),
    yaml: (yaml ?? createYamlThread()).share(log),
    terminals: createTerminals(log),
  };
}

import type { Host } from '../index.ts';
import { createChildren } from './children.ts';
import { createFiles } from './files.ts';
import { createNetwork } from './network.ts';
import { createProcesses } from './processes.ts';

export interface NodeHostOptions {
  /** Absolute path; it need not exist yet. */
  agentHome: string;
  env?: Record<string, string | undefined>;
}

/** The host machine of a Node process. */
export function createNodeHost({ agentHome, env = process.env }: NodeHostOptions): Host {
  return {
    agentHome,
    env,
    files: createFiles(),
    network: createNetwork(),
    processes: createProcesses(),
    children: createChildren(env),
  };
}

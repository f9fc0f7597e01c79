import type { Host } from '../index.ts';
import { createFiles } from './files.ts';
import { createNetwork } from './network.ts';
import { createProcesses } from './processes.ts';

/** The host machine of a Node process. `agentHome` is an absolute path; it need not exist yet. */
export function createNodeHost({ agentHome }: { agentHome: string }): Host {
  return { agentHome, files: createFiles(), network: createNetwork(), processes: createProcesses() };
}

import type { HostChildren } from '../host/index.ts';

/**
 * The shell to start: the first candidate that is absolute and executable, then `/bin/bash`, then `/bin/sh`
 * (contract 02 §3.4). Undefined when this host has none.
 */
export async function resolveShell(
  children: Pick<HostChildren, 'find'>,
  candidates: (string | undefined)[],
): Promise<string | undefined> {
  for (const candidate of [...candidates, '/bin/bash', '/bin/sh']) {
    if (!candidate?.startsWith('/')) continue;
    const shell = await children.find(candidate);
    if (shell !== null) return shell;
  }
  return undefined;
}

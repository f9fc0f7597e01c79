import type { Host, HostChildren } from '../host/index.ts';
import { SECRET_VARIABLES } from '../kit/secret-names.ts';

/** Variable that gives a program the name of its session of the relay. */
export const SESSION_VARIABLE = 'SVC_RELAY_TERMINAL';
/** Variable by which the relay finds the processes of a bare shell. tmux has its own variable. */
export const SHELL_VARIABLE = 'SVC_RELAY_SHELL';

/** A shell must not believe that it is inside the user's tmux or another shell, nor see the relay's secrets. */
const WITHHELD = ['TMUX', 'TMUX_PANE', SESSION_VARIABLE, SHELL_VARIABLE, ...SECRET_VARIABLES];

/** Environment of a session's program (contract 02 §3.3). */
export function childEnvironment(env: Host['env'], name?: string): Record<string, string> {
  const child: Record<string, string> = {};
  for (const [key, value] of Object.entries(env))
    if (value !== undefined && !WITHHELD.includes(key)) child[key] = value;
  if (name !== undefined) child[SESSION_VARIABLE] = name;
  return { ...child, TERM: 'xterm-256color', COLORTERM: 'truecolor' };
}

/** `$HOME` if it is a directory, otherwise the relay's own working directory. */
export async function workingDirectory({ env, files }: Pick<Host, 'env' | 'files'>): Promise<string> {
  const home = env.HOME;
  if (!home?.startsWith('/')) return '.';
  const facts = await files.stat(home).catch(() => null);
  return facts?.kind === 'directory' ? home : '.';
}

/**
 * The shell to start: the first candidate that is absolute and executable, then `/bin/bash`, then `/bin/sh` (contract 02
 * §3.4). Undefined if this host has none.
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

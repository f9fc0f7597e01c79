import type { Host } from '../host/index.ts';

/** A shell must not think it is inside somebody's tmux, nor see what lets one pair or speak for this relay. */
const WITHHELD = ['TMUX', 'TMUX_PANE', 'RELAY_PAIRING_CODE', 'RELAY_SECURE_LINK_BROKER_HOST_TOKEN'];

/** The variable that tells a program which session of the relay it runs in. */
export const MARK = 'SVC_RELAY_TERMINAL';

/** The environment of what a session starts (contract 02 §3.3). */
export function childEnvironment(env: Host['env'], name?: string): Record<string, string> {
  const child: Record<string, string> = {};
  for (const [key, value] of Object.entries(env))
    if (value !== undefined && !WITHHELD.includes(key)) child[key] = value;
  return { ...child, TERM: 'xterm-256color', COLORTERM: 'truecolor', ...(name === undefined ? {} : { [MARK]: name }) };
}

/** `$HOME` where it is a directory, else the relay's own working directory. */
export async function workingDirectory({ env, files }: Pick<Host, 'env' | 'files'>): Promise<string> {
  const home = env.HOME;
  if (!home?.startsWith('/')) return '.';
  const facts = await files.stat(home).catch(() => null);
  return facts?.kind === 'directory' ? home : '.';
}

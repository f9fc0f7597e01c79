import { onTestFinished } from 'vitest';
import type { Client, Frame } from './client.ts';
import { hasProgram, pairTerminal, startTerminalRelay } from './terminal.ts';

/** A relay and a paired client, for one case. */
export async function start(options: Parameters<typeof startTerminalRelay>[0] = {}) {
  const target = await startTerminalRelay(options);
  onTestFinished(() => target.stop());
  return { target, ...(await pairTerminal(target)) };
}

export async function roundTrip(client: Client): Promise<number> {
  const began = performance.now();
  client.send('system', 'ping', {}, 'p');
  await client.next({ id: 'p' });
  return performance.now() - began;
}

/** Sends a message of the channel; resolves with its answer. */
export const ask = async (client: Client, type: string, payload: Record<string, unknown> = {}): Promise<Frame> => {
  const id = crypto.randomUUID();
  client.send('terminal', `terminal.${type}`, payload, id);
  return client.next({ channel: 'terminal', id });
};

/** For cases with and without tmux. */
export const withTmux = hasProgram('tmux') ? [false, true] : [false];
if (!hasProgram('tmux')) process.stderr.write('SKIPPED: no tmux here, terminal sessions are only tested without it\n');

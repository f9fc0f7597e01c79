import { onTestFinished } from 'vitest';
import type { Client } from './client.ts';
import { pairTerminal, startTerminalRelay } from './terminal.ts';

export async function start() {
  const target = await startTerminalRelay();
  onTestFinished(() => target.stop());
  return { target, ...(await pairTerminal(target)) };
}

export async function roundTrip(client: Client): Promise<number> {
  const began = performance.now();
  client.send('system', 'ping', {}, 'p');
  await client.next({ id: 'p' });
  return performance.now() - began;
}

import { expect, onTestFinished } from 'vitest';
import type { Client } from './client.ts';
import { pair, type Target } from './relay.ts';

export const STRANGER = '203.0.113.9';

export const kept = <T extends Client>(client: T): T => {
  onTestFinished(() => client.terminate());
  return client;
};

export async function device(target: Target, options: Parameters<typeof pair>[1] = {}) {
  const paired = await pair(target, options);
  kept(paired.client);
  return paired;
}

export async function expectAlive(client: Client): Promise<void> {
  const id = crypto.randomUUID();
  client.send('system', 'ping', {}, id);
  expect((await client.next({ id })).type).toBe('pong');
}

export const hostOf = ({ url }: Target): string => new URL(url).host;
export const portOf = ({ url }: Target): number => Number(new URL(url).port);
export const health = async (target: Target) => (await target.fetch('/health')).json();

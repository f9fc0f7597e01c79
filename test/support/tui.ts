import { fileURLToPath } from 'node:url';
import { expect, onTestFinished } from 'vitest';
import { type BuiltOptions, type BuiltTarget, startBuiltTarget } from './built-relay.ts';
import type { Client, Frame } from './client.ts';
import { pair } from './relay.ts';

const FAKE = fileURLToPath(new URL('./fake-gateway.mjs', import.meta.url));
export const MiB = 1024 * 1024;
type Later = (stop: () => Promise<void>) => void;

/** A relay with the fake gateway in the given modes, stopped by `later`: cases that run beside each other pass their own `onTestFinished`. */
export async function start(modes: string[] = [], options: BuiltOptions = {}, later: Later = onTestFinished) {
  const RELAY_TUI_COMMAND = JSON.stringify([process.execPath, FAKE, ...modes]);
  const target = await startBuiltTarget({ ...options, env: { RELAY_TUI_COMMAND, ...options.env } });
  later(target.stop);
  return target;
}

export async function device(
  target: BuiltTarget,
  options: Parameters<typeof pair>[1] = {},
  later: Later = onTestFinished,
) {
  const paired = await pair(target, options);
  later(async () => paired.client.terminate());
  return paired;
}

export const isEvent = (type: string) => (frame: Frame) =>
  (frame.payload.params as { type?: string } | undefined)?.type === type;
export const eventPayload = ({ payload }: Frame) => (payload.params as { payload: Record<string, unknown> }).payload;

export interface Ready {
  pid: number;
  grandchild: number;
  args: string[];
  env: Record<string, string>;
}

/** Attaches and waits for the gateway. */
export async function attach(client: Client, payload: Record<string, unknown> = {}): Promise<Ready> {
  client.send('tui', 'tui.attach', payload);
  const attached = await client.next({ type: 'tui.attached' });
  const ready = await client.next({ type: 'tui.rpc.event' });
  expect(isEvent('gateway.ready')(ready)).toBe(true);
  const payloadOfReady = eventPayload(ready) as unknown as Ready;
  expect(attached.payload.pid).toBe(payloadOfReady.pid);
  return payloadOfReady;
}

export async function attached(modes: string[] = [], options: BuiltOptions = {}, later: Later = onTestFinished) {
  const target = await start(modes, options, later);
  const paired = await device(target, {}, later);
  return { target, ...paired, ready: await attach(paired.client) };
}

export const ask = (client: Client, method: string, params: unknown = {}, id = crypto.randomUUID() as string) =>
  client.send('tui', 'tui.rpc.request', { jsonrpc: '2.0', id, method, params }, id);

export const detach = ({ client }: { client: Client }) => client.send('tui', 'tui.detach');

/** A request that the gateway answers after everything before it. */
export async function echo(client: Client): Promise<Frame> {
  ask(client, 'echo');
  return client.next({ type: 'tui.rpc.response' });
}

export const ofType = (client: Client, type: string) => client.frames.filter((frame) => frame.type === type);

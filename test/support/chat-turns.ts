import { expect } from 'vitest';
import { TYPED } from './chat.ts';
import type { Client, Frame } from './client.ts';
import { authenticate, type Paired, type Target } from './relay.ts';

/** Sends a message whose turn outlives the socket (contract 10 §1). */
export const keep = (client: Client, id: string, payload: Record<string, unknown> = {}) =>
  client.send('chat', 'chat.send', { message: 'hi', session_id: 's9', keep: true, ...payload }, id);

/** Another socket of a paired device. */
export async function again(target: Target, { token }: Pick<Paired, 'token'>, device: object = TYPED): Promise<Client> {
  const { client, frame } = await authenticate(target, { session_token: token, ...device });
  expect(frame.type).toBe('auth.ok');
  return client;
}

/** Sends `chat.follow` and returns the turns that the relay lists. */
export async function follow(client: Client, payload: Record<string, unknown> = {}): Promise<Frame['payload'][]> {
  const id = crypto.randomUUID();
  client.send('chat', 'chat.follow', payload, id);
  const { type, payload: answer } = await client.next({ channel: 'chat', id });
  expect(type).toBe('chat.turns');
  return answer.turns as Frame['payload'][];
}

/** Sends `chat.resume` and returns the first frame of the answer. */
export function resume(
  client: Client,
  payload: Record<string, unknown>,
  id: string = crypto.randomUUID(),
): Promise<Frame> {
  client.send('chat', 'chat.resume', payload, id);
  return client.next({ channel: 'chat', id });
}

/** The next `chat.turn` of a socket that follows its family. */
export const nextTurn = async (client: Client) => (await client.next({ channel: 'chat', type: 'chat.turn' })).payload;

/** The next event of a request, which must be a typed one. */
export async function nextEvent(client: Client, id: string) {
  const { type, payload } = await client.next({ channel: 'chat', id });
  expect(type).toBe('stream.event');
  return payload as { turn_id: string; seq: number; event: string; payload: Record<string, unknown> };
}

/** Resolves once everything that was on its way to the client has arrived. */
export async function settle(client: Client): Promise<void> {
  const id = crypto.randomUUID();
  client.send('system', 'ping', {}, id);
  await client.next({ id });
}

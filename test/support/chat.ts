import { expect } from 'vitest';
import type { Client } from './client.ts';
import { type FakeApi, startFakeApi } from './fake-api-server.ts';
import { type Paired, pair, type Target, type TargetOptions } from './relay.ts';

export const KEY = 'api-key-7c1f';
export const TYPED = { supports: { typed_stream_events: true, event_schema_version: 1 } };

interface Setup {
  api: FakeApi;
  target: Target;
  device: Paired;
  client: Client;
}

type Start = (options?: TargetOptions) => Promise<Target>;

export async function setUp(
  start: Start,
  device: object = TYPED,
  options: { policy?: object; url?: string } = {},
): Promise<Setup> {
  const api = await startFakeApi();
  const target = await start({ env: { RELAY_WEBAPI_URL: options.url ?? `${api.url}/`, API_SERVER_KEY: KEY } });
  const paired = await pair(target, { device: device as Record<string, unknown>, policy: { ...options.policy } });
  return { api, target, device: paired, client: paired.client };
}

export const send = (client: Client, id: string, payload: unknown = { message: 'hi', session_id: 's9' }) =>
  client.send('chat', 'chat.send', payload, id);

/** Payload of a `stream.event`. */
interface StreamEvent {
  seq: number;
  event: string;
  session_id: string;
  run_id: string | null;
  payload: Record<string, unknown>;
}

/** The next typed events of a request, up to and including the named one. */
export async function eventsUntil(client: Client, id: string, last: string): Promise<StreamEvent[]> {
  const events: StreamEvent[] = [];
  while (events.at(-1)?.event !== last) {
    const frame = await client.next({ channel: 'chat', id });
    expect(frame.type).toBe('stream.event');
    events.push(frame.payload as unknown as StreamEvent);
  }
  return events;
}

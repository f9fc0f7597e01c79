import { readFile } from 'node:fs/promises';
import { expect } from 'vitest';
import { bearer, pair, post, type Target, type TargetOptions } from '../relay.ts';
import { connectVoice, type VoiceClient } from './client.ts';
import type { Provider } from './provider.ts';

export const SECRET = 'sk-live-0123456789abcdef';
export const DONE = { type: 'response.done' };
export const delta = (bytes: Uint8Array) => ({
  type: 'response.output_audio.delta',
  delta: Buffer.from(bytes).toString('base64'),
});

export const environment = (provider: Provider): TargetOptions => ({
  env: {
    OPENAI_API_KEY: SECRET,
    OPENAI_BASE_URL: `${provider.url}/v1`,
    XAI_API_KEY: SECRET,
    XAI_BASE_URL: `${provider.url}/v1`,
  },
});

interface Session {
  session_id: string;
  websocket_path: string;
  event_log_path: string;
  [member: string]: unknown;
}

export const create = (target: Target, token: string, body: unknown = { provider: 'stub' }) =>
  target.fetch('/voice/realtime/session', {
    ...post(body),
    headers: { ...bearer(token), 'content-type': 'application/json' },
  });

export async function created(target: Target, token: string, body?: unknown): Promise<Session> {
  const response = await create(target, token, body);
  expect(response.status).toBe(200);
  return response.json();
}

/** A paired device attached to a new session, past its first `ready`. */
export async function attached(target: Target, body?: unknown) {
  const { token } = await pair(target);
  const session = await created(target, token, body);
  const client = await connectVoice(target, session.websocket_path, token);
  const ready = await client.next('voice.session.ready');
  return { token, session, client, ready };
}

/** One render: every event of it, up to its end. */
export function render(client: VoiceClient, message: Record<string, unknown> = {}) {
  client.send({ type: 'response.create', text: 'Hello there.', ...message });
  return client.through('voice.response.done');
}

/** Waits for the header of a recording, which is written behind, as the log of its session is, in no order between files. */
export const untilComplete = (path: string, bytes: number) =>
  expect.poll(async () => (await readFile(path)).readUInt32LE(40)).toBe(bytes);

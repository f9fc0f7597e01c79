import { onTestFinished } from 'vitest';
import { startBuiltTarget } from './built-relay.ts';
import type { Client } from './client.ts';
import { createTestClock } from './clock.ts';
import { startFlakyProxy } from './flaky-proxy.ts';
import { authenticate, pair, post, type Target } from './relay.ts';

const asTool = { headers: { 'x-svc-operator': '1' } };

export async function say(target: Target, id: string) {
  const response = await target.operator('/phone/message', { ...post({ text: id, message_id: id }), ...asTool });
  return response.json();
}

export async function stateOf(target: Target, id: string): Promise<string | undefined> {
  const answer = await (await target.operator('/phone/history', asTool)).json();
  const { items } = answer as { items: { message_id: string; state: string }[] };
  return items.find((item) => item.message_id === id)?.state;
}

export async function subscribe(client: Client): Promise<void> {
  client.send('proactive', 'proactive.subscribe');
  await client.next({ type: 'proactive.subscribed' });
}

/** A relay on a test clock, and a phone that reaches it through a proxy. */
export async function start() {
  const clock = createTestClock();
  const target = await startBuiltTarget({ clock });
  const proxy = await startFlakyProxy({ port: target.port, seed: 1, faults: ['none'] });
  onTestFinished(target.stop);
  onTestFinished(proxy.close);
  const through = { ...target, wsUrl: `ws://127.0.0.1:${proxy.port}/ws` };
  const { client, token } = await pair(through);
  onTestFinished(() => client.terminate());
  await subscribe(client);
  const comeBack = async () => {
    const { client } = await authenticate(target, { session_token: token });
    onTestFinished(() => client.terminate());
    await subscribe(client);
    return client;
  };
  return { clock, target, proxy, client, comeBack };
}

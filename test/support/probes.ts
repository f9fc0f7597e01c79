import { expect, onTestFinished } from 'vitest';
import { createNodeUpstream } from '../../lib/host/node/upstream.ts';
import type { Clock } from '../../lib/kit/clock.ts';
import { startBuiltTarget } from './built-relay.ts';
import { createTestClock } from './clock.ts';
import { startFakeApi } from './fake-api-server.ts';
import { post } from './relay.ts';
import { rerouted } from './rerouted.ts';
import { writeFiles } from './temp.ts';

export const PATH = '/relay/model-capabilities';

/**
 * A relay with these files in its agent home. Every provider is rerouted to one fake server. By default, time stands
 * still: a call may take 1.25 s, and a busy machine may stall for longer.
 */
export async function setUp(
  files: Record<string, string>,
  { upstream = createNodeUpstream(), clock = createTestClock() as Clock } = {},
) {
  const api = await startFakeApi();
  const hosts = [
    'https://ollama.com',
    'https://api.githubcopilot.com',
    'https://api.github.com',
    'https://chatgpt.com',
  ];
  const origins = Object.fromEntries([...hosts, 'https://account.example'].map((host) => [host, api.url]));
  const route = rerouted(origins, upstream);
  const target = await startBuiltTarget({ upstream: route, clock });
  onTestFinished(() => target.stop());
  const named = Object.entries({ 'config.yaml': '', ...files }).map(([name, text]) => [
    name,
    text.replaceAll('<api>', api.url),
  ]);
  await writeFiles(target.agentHome, Object.fromEntries(named));
  return {
    api,
    target,
    called: route.called,
    /** Asks for models named `provider/model`. Returns source and efforts, or `?` for unknown models. */
    async ask(...pairs: string[]) {
      const models = pairs.map((pair) => ({
        provider: pair.split('/', 1)[0],
        model: pair.slice(pair.indexOf('/') + 1),
      }));
      const response = await target.operator(PATH, post({ models }));
      expect(response.status).toBe(200);
      const { capabilities } = await response.json();
      return capabilities.map((row: { source: string; reasoning_efforts: string[] }) =>
        row.source === 'canonical-fallback' ? '?' : `${row.source} ${row.reasoning_efforts}`,
      );
    },
  };
}

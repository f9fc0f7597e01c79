import type { Host } from '../../../lib/host/index.ts';
import type { Upstream, UpstreamRequest } from '../../../lib/host/upstream.ts';
import { createModelCapabilities } from '../../../lib/models/capabilities.ts';
import type { ModelPair } from '../../../lib/models/request.ts';
import { createTestClock } from '../../support/clock.ts';
import { createTestLog } from '../../support/log.ts';

/** A call that the upstream received. */
export interface PendingCall extends UpstreamRequest {
  answer(body: unknown, status?: number): void;
  fail(): void;
  readonly open: boolean;
}

/** An upstream that answers on demand, and rejects calls whose signal aborts. */
export function scriptedUpstream() {
  const calls: PendingCall[] = [];
  let highest = 0;
  const openCalls = () => calls.filter((call) => call.open);
  const upstream: Upstream = (request) =>
    new Promise((resolve, reject) => {
      let open = true;
      const settle = (action: () => void) => {
        if (!open) return;
        open = false;
        action();
      };
      request.signal.addEventListener('abort', () => settle(() => reject(request.signal.reason)));
      calls.push({
        ...request,
        answer: (body, status = 200) =>
          settle(() => {
            const bytes = new TextEncoder().encode(typeof body === 'string' ? body : JSON.stringify(body));
            resolve({ status, headers: {}, body: chunksOf(bytes) });
          }),
        fail: () => settle(() => reject(new Error('connect to http://secret.example failed'))),
        get open() {
          return open;
        },
      });
      highest = Math.max(highest, openCalls().length);
    });
  return {
    upstream,
    /** Every call so far. */
    calls,
    /** Calls without an answer. */
    openCalls,
    /** The largest number of calls that were open at once. */
    highest: () => highest,
  };
}

async function* chunksOf(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes;
}

export const settle = () => new Promise<void>((resolve) => setImmediate(resolve));

/** Model capabilities over a scripted upstream and a stopped clock; without a host unless one is given. */
export function createTestModels({
  env,
  host,
  agentConfig = '/config.yaml',
}: {
  env?: Record<string, string>;
  host?: Host;
  agentConfig?: string;
} = {}) {
  const scripted = scriptedUpstream();
  const clock = createTestClock();
  const log = createTestLog();
  const { upstream } = scripted;
  const models = createModelCapabilities({ host, config: { agentConfig }, upstream, clock, log, version: '1', env });
  return {
    ...scripted,
    clock,
    log,
    models,
    /** Resolves `pairs`, written as `provider/model`. */
    ask: (pairs: string[], { profile = 'default', refresh = false } = {}) =>
      models.resolve({ profile, refresh, models: pairs.map(pairOf) }),
  };
}

function pairOf(text: string): ModelPair {
  const at = text.indexOf('/');
  return { provider: text.slice(0, at), model: text.slice(at + 1) };
}

/** A catalog as LM Studio lists it, from models and their allowed options. */
export const lmCatalog = (models: Record<string, unknown>) => ({
  models: Object.entries(models).map(([key, allowed_options]) => ({
    key,
    capabilities: { reasoning: { allowed_options } },
  })),
});

import { expect, onTestFinished } from 'vitest';
import { type Exchange, type OnEnd, startFakeApi } from '../fake-api-server.ts';

export interface AgentApiOptions {
  /** The bearer that it demands. Without one, requests must have none. */
  key?: string;
  /** Chat sessions that it knows from the start. */
  sessions?: string[];
  /** The answer of `GET /v1/capabilities`; without one, the route is missing. */
  capabilities?: unknown;
  /** The test's own hook, which a concurrent one needs. */
  onEnd?: OnEnd;
}

export interface AgentApi {
  url: string;
  requests: Exchange[];
  /** Chat sessions that it knows. */
  sessions: Set<string>;
  /** Bodies of streams, in order. */
  runs: { session: string; body: Record<string, unknown> }[];
  /** Paths and bodies of what was posted about runs. */
  posts: { path: string; body: Record<string, unknown> }[];
  /** Answers every stream of a known session; by default it ends at once. */
  onRun(handle: (exchange: Exchange) => void | Promise<void>): void;
  /** The messages of every session. */
  messages: unknown;
}

/**
 * The agent's API server as voice uses it, faked on loopback. It checks what it is sent, and fails the test when the test
 * is over if anything was wrong.
 */
export async function startAgentApi({
  key,
  sessions = [],
  capabilities,
  onEnd = onTestFinished,
}: AgentApiOptions = {}): Promise<AgentApi> {
  const fake = await startFakeApi(onEnd);
  const faults: string[] = [];
  let handleRun = (exchange: Exchange): void | Promise<void> => {
    exchange.open();
    exchange.end();
  };
  const agent: AgentApi = {
    url: fake.url,
    requests: fake.requests,
    sessions: new Set(sessions),
    runs: [],
    posts: [],
    messages: { messages: [] },
    onRun(handle) {
      handleRun = handle;
    },
  };

  function jsonOf({ path, headers, body }: Exchange, known: string[]): Record<string, unknown> {
    if (headers['content-type'] !== 'application/json') faults.push(`${path}: content-type ${headers['content-type']}`);
    const value = JSON.parse(body);
    const unknown = Object.keys(value).filter((name) => !known.includes(name));
    if (unknown.length > 0) faults.push(`${path}: unknown members ${unknown}`);
    if (value.profile === 'default') faults.push(`${path}: the default profile is named`);
    return value;
  }

  fake.onAny((exchange) => {
    const { method, path, headers } = exchange;
    const expected = key === undefined ? undefined : `Bearer ${key}`;
    if (headers.authorization !== expected) {
      return exchange.answer(401, { error: { message: `no access with ${headers.authorization}` } });
    }
    const [, id, rest] = /^\/api\/sessions\/([^/]+)\/(.+)$/.exec(path) ?? [];
    const session = decodeURIComponent(id ?? '');
    if (`${method} ${path}` === 'POST /api/sessions') {
      jsonOf(exchange, ['profile']);
      const created = `created-${agent.sessions.size + 1}`;
      agent.sessions.add(created);
      return exchange.answer(201, { session: { id: created } });
    }
    if (`${method} ${rest}` === 'POST chat/stream') {
      if (headers.accept !== 'text/event-stream') faults.push(`${path}: accept ${headers.accept}`);
      const body = jsonOf(exchange, ['message', 'system_message', 'profile']);
      if (!agent.sessions.has(session)) return exchange.answer(404, { error: { code: 'session_not_found' } });
      agent.runs.push({ session, body });
      return handleRun(exchange);
    }
    if (`${method} ${rest}` === 'GET messages') return exchange.answer(200, agent.messages);
    if (`${method} ${path}` === 'GET /v1/capabilities' && capabilities !== undefined) {
      return exchange.answer(200, capabilities);
    }
    if (method === 'POST' && /^\/v1\/runs\/[^/]+\/(stop|approval)$/.test(path)) {
      agent.posts.push({ path, body: jsonOf(exchange, ['confirmation_id', 'answer', 'choice']) });
      return exchange.answer(200, { ok: true });
    }
    if (path !== '/v1/capabilities') faults.push(`${method} ${path} is no route`);
    return exchange.answer(404, { error: 'not found' });
  });

  onEnd(() => expect(faults).toEqual([]));
  return agent;
}

/** Has every run send `before` and answer only once the returned function is called. */
export function holdRuns(api: AgentApi, answer: string, before: object[] = []): () => void {
  let finish = () => {};
  const finished = new Promise<void>((resolve) => {
    finish = resolve;
  });
  api.onRun(async (run) => {
    run.open();
    await run.event({ type: 'run.started', run_id: 'run-1' });
    for (const event of before) await run.event(event);
    await finished;
    await run.event({ type: 'assistant.delta', delta: answer });
    run.end();
  });
  return finish;
}

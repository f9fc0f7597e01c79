import { describe, expect, it, vi } from 'vitest';
import { createNodeUpstream } from '../../../../../lib/host/node/upstream.ts';
import type { Upstream } from '../../../../../lib/host/upstream.ts';
import { systemClock } from '../../../../../lib/kit/clock.ts';
import { credentialOf } from '../../../../../lib/voice/agent/upstream/credential.ts';
import {
  type AgentUpstream,
  createAgentUpstream,
  type RunEvent,
  type RunRequest,
} from '../../../../../lib/voice/agent/upstream/run.ts';
import { fetchUpstream } from '../../../../../lib/web/upstream.ts';
import { createTestClock } from '../../../../support/clock.ts';
import { closedPort } from '../../../../support/closed-port.ts';
import { startFakeApi, whenAbandoned } from '../../../../support/fake-api-server.ts';
import { createTestLog } from '../../../../support/log.ts';
import { type AgentApiOptions, startAgentApi } from '../../../../support/voice/agent-api.ts';

const KEY = 'relay-key-8f2c';
const STOP = { features: { run_stop: true, run_approval_response: true } };

interface Setting {
  url: string;
  upstream?: Upstream;
  /** Of an API caller. */
  bearer?: string;
  key?: string;
  clock?: Parameters<typeof createAgentUpstream>[0]['clock'];
}

function agentFor({ url, upstream, bearer, key = KEY, clock = systemClock }: Setting) {
  const log = createTestLog();
  const agent = createAgentUpstream({
    config: { webapiUrl: url },
    credential: () => credentialOf(bearer, async () => key),
    upstream: upstream ?? createNodeUpstream(),
    clock,
    log,
  });
  return { agent, log };
}

const asked = (request: Partial<RunRequest> = {}): RunRequest => ({
  external: false,
  message: 'What is the time?',
  systemMessage: 'Be brief.',
  signal: new AbortController().signal,
  ...request,
});

async function collect(events: AsyncIterable<RunEvent>): Promise<RunEvent[]> {
  const all: RunEvent[] = [];
  for await (const event of events) all.push(event);
  return all;
}

const runOn = (agent: AgentUpstream, request?: Partial<RunRequest>) => collect(agent.run(asked(request)));

describe.each([
  ['Node streams', () => createNodeUpstream()],
  ['fetch, as at the edge', () => fetchUpstream()],
])('run over %s (contract 06 §5.2)', (_name, makeUpstream) => {
  async function start(options: AgentApiOptions = {}) {
    const api = await startAgentApi({ key: KEY, ...options });
    return { api, ...agentFor({ url: api.url, upstream: makeUpstream() }) };
  }

  it('creates a session, then streams', async () => {
    const { api, agent } = await start();
    api.onRun(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'run.started', run_id: 'r1' });
      await exchange.event({ type: 'assistant.delta', delta: 'Noon.' });
      await exchange.event({ type: 'run.completed' });
    });
    expect(await runOn(agent, { profile: 'work' })).toEqual([
      { type: 'svc.session.bound', session_id: 'created-1', profile: 'work' },
      { type: 'svc.run.started', run_id: 'r1' },
      { type: 'answer', text: 'Noon.' },
      { type: 'end', text: 'Noon.' },
    ]);
    expect(api.runs).toEqual([
      { session: 'created-1', body: { message: 'What is the time?', system_message: 'Be brief.', profile: 'work' } },
    ]);
    // The stream was left at the end of the run, though the server had not ended it.
    await whenAbandoned(api.requests[1]);
    expect(api.posts).toEqual([]);
  });

  it('names no default profile', async () => {
    const { api, agent } = await start();
    expect((await runOn(agent, { profile: 'default' }))[0]).toMatchObject({ profile: 'default' });
    expect((await runOn(agent))[0]).toMatchObject({ profile: 'default' });
    expect(api.runs.map(({ body }) => Object.keys(body))).toEqual(Array(2).fill(['message', 'system_message']));
  });

  it('continues a known session, whatever its id', async () => {
    const id = 'a/b?c=ü#%2e';
    const { api, agent } = await start({ sessions: [id] });
    expect(await runOn(agent, { sessionId: id })).toEqual([{ type: 'end', text: '' }]);
    expect(api.runs.map(({ session }) => session)).toEqual([id]);
  });

  it.each(['gone', '..', ''])('replaces the session %j from outside that upstream does not know', async (sessionId) => {
    const { api, agent } = await start();
    expect(await runOn(agent, { sessionId, external: true })).toEqual([
      { type: 'svc.session.bound', session_id: 'created-1', profile: 'default', reason: 'session_not_found_handoff' },
      { type: 'end', text: '' },
    ]);
    expect(api.runs.map(({ session }) => session)).toEqual(['created-1']);
  });

  it('does so once per run, and never for a session of its own', async () => {
    const { api, agent } = await start();
    const forget = () => api.sessions.clear();
    vi.spyOn(api.sessions, 'add').mockImplementation(() => api.sessions);
    const events = await runOn(agent, { sessionId: 'gone', external: true });
    expect(events.map(({ type }) => type)).toEqual(['svc.session.bound', 'error']);
    forget();
    const own = await runOn(agent, { sessionId: 'gone', external: false });
    expect(own).toEqual([
      { type: 'error', message: expect.stringMatching(/^API server error \(404\): .*session_not_found/) },
    ]);
    expect(api.requests.filter(({ path }) => path === '/api/sessions')).toHaveLength(1);
  });

  it('is silent once cancelled, and aborts at once', async () => {
    const { api, agent, log } = await start({ sessions: ['s'], capabilities: STOP });
    api.onRun(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'run.started', run_id: 'r/1' });
    });
    const end = new AbortController();
    const events: RunEvent[] = [];
    for await (const event of agent.run(asked({ sessionId: 's', signal: end.signal }))) {
      events.push(event);
      end.abort();
    }
    expect(events).toEqual([{ type: 'svc.run.started', run_id: 'r/1' }]);
    await whenAbandoned(api.requests[0]);
    await vi.waitFor(() => expect(api.posts).toEqual([{ path: '/v1/runs/r%2F1/stop', body: {} }]));
    expect(log.lines).toEqual([]);
  });

  it('is stopped upstream when it is left before its end', async () => {
    const { api, agent } = await start({ sessions: ['s'], capabilities: STOP });
    api.onRun(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'run.started', run_id: 'r1' });
    });
    for await (const _ of agent.run(asked({ sessionId: 's' }))) break;
    await vi.waitFor(() => expect(api.posts.map(({ path }) => path)).toEqual(['/v1/runs/r1/stop']));
  });

  it('calls nothing when it was cancelled before', async () => {
    const { api, agent } = await start();
    expect(await runOn(agent, { signal: AbortSignal.abort() })).toEqual([]);
    expect(api.requests).toEqual([]);
  });

  it('fails when the connection breaks, after what came before', async () => {
    const { api, agent } = await start({ sessions: ['s'] });
    api.onRun(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'delta', delta: 'Half' });
      await exchange.write('data: {"type":"delta","delta":"an ev');
    });
    const run = agent.run(asked({ sessionId: 's' }));
    expect((await run.next()).value).toEqual({ type: 'answer', text: 'Half' });
    api.requests[0]?.cut();
    const [error, ...rest] = await collect(run);
    expect(error).toMatchObject({
      type: 'error',
      message: expect.stringMatching(/^The connection to the API server broke/),
    });
    expect(rest).toEqual([]);
  });

  it('reads a stream of single bytes, of cut characters and of garbage', async () => {
    const { api, agent } = await start({ sessions: ['s'] });
    api.onRun(async (exchange) => {
      exchange.open();
      const bytes = new TextEncoder().encode(
        `: ping\n\ndata: garbage\n\nevent: delta\ndata: {"delta":"日本 😀"}\n\ndata: ${'x'.repeat(64)}\n\ndata: {"type":"done"}\n\n`,
      );
      for (const byte of bytes) await exchange.write(Uint8Array.of(byte));
      exchange.end();
    });
    expect(await runOn(agent, { sessionId: 's' })).toEqual([
      { type: 'answer', text: '日本 😀' },
      { type: 'end', text: '日本 😀' },
    ]);
  });

  it('skips an oversize line', async () => {
    const { api, agent } = await start({ sessions: ['s'] });
    api.onRun(async (exchange) => {
      exchange.open();
      await exchange.write('data: {"type":"delta","delta":"');
      for (let n = 0; n < 80; n++) await exchange.write('x'.repeat(64 * 1024));
      await exchange.write('"}\n\n');
      await exchange.event({ type: 'delta', delta: 'small' });
      exchange.end();
    });
    expect((await runOn(agent, { sessionId: 's' })).at(-1)).toEqual({ type: 'end', text: 'small' });
  });

  it('follows no redirect with the bearer', async () => {
    const { api, agent } = await start({ sessions: ['s'] });
    const other = await startFakeApi();
    api.onRun((exchange) => exchange.answer(307, '', { location: `${other.url}/api/sessions/s/chat/stream` }));
    expect(await runOn(agent, { sessionId: 's' })).toEqual([{ type: 'error', message: 'API server error (307):' }]);
    expect(other.requests).toEqual([]);
  });

  it('cuts and redacts what the server says of a failure', async () => {
    const { api, agent } = await start({ sessions: ['s'] });
    api.onRun((exchange) => exchange.answer(500, `bad ${KEY} ${'x'.repeat(500)}`));
    const [refused] = await runOn(agent, { sessionId: 's' });
    expect(refused).toMatchObject({
      message: expect.stringMatching(/^API server error \(500\): bad \[REDACTED\] x+$/),
    });
    api.onRun(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'error', message: `${'y'.repeat(225)} ${KEY}${'z'.repeat(500)}` });
      exchange.end();
    });
    const [failed] = await runOn(agent, { sessionId: 's' });
    for (const event of [refused, failed]) {
      const { message } = event as { message: string };
      expect(message.length).toBeLessThanOrEqual(240);
      expect(message).not.toContain(KEY.slice(0, 6));
    }
  });

  it.each([
    [{ id: 'a', session_id: 'b', session: { id: 'c' } }],
    [{ session_id: 'a', session: { id: 'b' } }],
    [{ id: 'a', session: { title: 'New' } }],
    [{ session: { id: 'a', session_id: 'b' } }],
    [{ session: { session_id: 'a' } }],
  ])('takes the id of a created session from %j (contract 06 §5.2)', async (answer) => {
    async function* body(text: string): AsyncGenerator<Uint8Array> {
      yield new TextEncoder().encode(text);
    }
    const upstream: Upstream = async ({ url }) => ({
      status: 200,
      headers: {},
      body: body(url.endsWith('/api/sessions') ? JSON.stringify(answer) : 'data: {"type":"done"}\n\n'),
    });
    const [bound] = await runOn(agentFor({ url: 'http://agent', upstream }).agent);
    expect(bound).toMatchObject({ type: 'svc.session.bound', session_id: 'a' });
  });

  it('says why it cannot be reached', async () => {
    const url = `http://127.0.0.1:${await closedPort()}`;
    const { agent } = agentFor({ url, upstream: makeUpstream() });
    expect(await runOn(agent)).toEqual([
      { type: 'error', message: expect.stringMatching(/^Cannot reach the API server: /) },
    ]);
  });
});

describe('credential (contract 06 §5.1)', () => {
  it.each([
    ['the relay’s key', undefined, 'wrong', 'the configured relay-side svc credential'],
    ['no key', undefined, '', 'no relay-side svc credential is configured'],
    ['an unusable key', undefined, 'schlüssel', 'no relay-side svc credential is configured'],
    ['the caller’s bearer', 'theirs', KEY, "the caller's own API key"],
  ] as const)('a refusal of %s is told, without the secret', async (_name, bearer, key, words) => {
    const api = await startAgentApi({ key: 'other' });
    const { agent, log } = agentFor({ url: api.url, bearer, key });
    const [error, ...rest] = await runOn(agent);
    expect(rest).toEqual([]);
    expect(error).toEqual({
      type: 'error',
      code: 'svc_broker_auth_failed',
      message: expect.stringContaining('svc broker auth failed: the API server answered HTTP 401'),
    });
    expect((error as { message: string }).message).toContain(words);
    expect(JSON.stringify([error, log.lines])).not.toMatch(/wrong|theirs|other|schl/);
  });

  it('of an API caller is their own bearer', async () => {
    const api = await startAgentApi({ key: 'theirs' });
    const { agent } = agentFor({ url: api.url, bearer: 'theirs' });
    expect((await runOn(agent)).at(-1)).toEqual({ type: 'end', text: '' });
  });

  it('is missing where the API server is open', async () => {
    const api = await startAgentApi();
    const { agent } = agentFor({ url: api.url, key: '' });
    expect((await runOn(agent)).at(-1)).toEqual({ type: 'end', text: '' });
  });

  it('is also told when a stream is refused with 403', async () => {
    const api = await startAgentApi({ key: KEY, sessions: ['s'] });
    api.onRun((exchange) => exchange.answer(403, 'no'));
    const { agent } = agentFor({ url: api.url });
    expect(await runOn(agent, { sessionId: 's' })).toMatchObject([{ code: 'svc_broker_auth_failed' }]);
  });
});

describe('silence (contract 06 §5.2)', () => {
  it('ends a run after 120 seconds without a byte, before the answer or in it', async () => {
    for (const isAnswered of [false, true]) {
      const clock = createTestClock();
      const api = await startAgentApi({ key: KEY, sessions: ['s'] });
      api.onRun(async (exchange) => {
        if (!isAnswered) return;
        exchange.open();
        await exchange.event({ type: 'delta', delta: 'a' });
      });
      const { agent } = agentFor({ url: api.url, clock });
      const run = agent.run(asked({ sessionId: 's' }));
      if (isAnswered) expect((await run.next()).value).toEqual({ type: 'answer', text: 'a' });
      const next = run.next();
      await vi.waitFor(() => expect(api.runs).toHaveLength(1));
      await clock.advanceAsync(119_999);
      expect(api.requests[0]?.abandoned).toBe(false);
      await clock.advanceAsync(1);
      expect((await next).value).toEqual({ type: 'error', message: 'The API server sent nothing for 2 minutes' });
      expect(await run.next()).toEqual({ done: true, value: undefined });
      expect(clock.pending).toBe(0);
    }
  });

  it('does not count the time in which nobody takes events', async () => {
    const clock = createTestClock();
    const api = await startAgentApi({ key: KEY, sessions: ['s'] });
    api.onRun(async (exchange) => {
      exchange.open();
      await exchange.event({ type: 'delta', delta: 'a' });
      await exchange.event({ type: 'done' });
    });
    const { agent } = agentFor({ url: api.url, clock });
    const run = agent.run(asked({ sessionId: 's' }));
    await run.next();
    clock.advance(600_000);
    expect((await run.next()).value).toEqual({ type: 'end', text: 'a' });
  });
});

it('reads the stream no faster than events are taken', async () => {
  let pulled = 0;
  async function* body(): AsyncGenerator<Uint8Array> {
    for (;;) {
      pulled++;
      yield new TextEncoder().encode('data: {"type":"delta","delta":"a"}\n\n');
    }
  }
  const upstream: Upstream = async () => ({ status: 200, headers: {}, body: body() });
  const clock = createTestClock();
  const { agent } = agentFor({ url: 'http://agent', upstream, clock });
  const run = agent.run(asked({ sessionId: 's' }));
  for (let taken = 1; taken < 10; taken++) {
    expect((await run.next()).value).toEqual({ type: 'answer', text: 'a' });
    await clock.advanceAsync(0);
    expect(pulled).toBe(taken);
  }
  await run.return();
  expect(clock.pending).toBe(0);
});

/** A run `r1` that is left before its end. */
async function leaveRun(api: Awaited<ReturnType<typeof startAgentApi>>, agent: AgentUpstream): Promise<void> {
  api.onRun(async (exchange) => {
    exchange.open();
    await exchange.event({ type: 'run.started', run_id: 'r1' });
  });
  for await (const { type } of agent.run(asked())) if (type === 'svc.run.started') break;
}

const ENDPOINTS = { a: { path: '/v1/runs/{run_id}/stop' }, b: { path: '/v1/runs/{run_id}/approval' } };

describe('calls beside a run', () => {
  it.each([
    ['features', STOP],
    ['other names', { features: { run_stop: true, run_approval: true } }],
    ['a list', { capabilities: ['runs.stop', 'runs.approval'] }],
    [
      'endpoints beside odd ones',
      { endpoints: { odd: { path: { toString: null } }, list: [[{ toString: 1 }]], ...ENDPOINTS } },
    ],
    ['endpoints', { endpoints: ENDPOINTS }],
  ])('are made when they are offered by %s (contract 06 §6.5)', async (_name, capabilities) => {
    const api = await startAgentApi({ key: KEY, capabilities });
    const { agent } = agentFor({ url: api.url });
    await agent.approve('r1', 'k1', 'allow');
    await agent.approve('r1', 'k2', 'anything else');
    await leaveRun(api, agent);
    await vi.waitFor(() => expect(api.posts).toHaveLength(3));
    expect(api.posts).toEqual([
      { path: '/v1/runs/r1/approval', body: { confirmation_id: 'k1', answer: 'allow', choice: 'once' } },
      { path: '/v1/runs/r1/approval', body: { confirmation_id: 'k2', answer: 'anything else', choice: 'deny' } },
      { path: '/v1/runs/r1/stop', body: {} },
    ]);
    expect(api.requests.filter(({ path }) => path === '/v1/capabilities')).toHaveLength(1);
  });

  it('are 8 approvals at a time at most, however many answers a client sends', async () => {
    const api = await startAgentApi({ key: KEY, capabilities: STOP });
    const { agent } = agentFor({ url: api.url });
    await Promise.all(Array.from({ length: 50 }, (_, n) => agent.approve('r1', `k${n}`, 'allow')));
    expect(api.posts).toHaveLength(8);
    await agent.approve('r1', 'last', 'deny');
    expect(api.posts).toHaveLength(9);
  });

  it.each([
    ['missing', undefined],
    ['switched off', { features: { run_stop: false, run_approval_response: null } }],
    ['no object', [1]],
  ])('are not made when they are %s', async (_name, capabilities) => {
    const api = await startAgentApi({ key: KEY, capabilities });
    const { agent } = agentFor({ url: api.url });
    await leaveRun(api, agent);
    await agent.approve('r1', 'k1', 'allow');
    expect(api.posts).toEqual([]);
  });

  it('wait three seconds at most', async () => {
    const clock = createTestClock();
    const api = await startFakeApi();
    api.onAny(() => {});
    const { agent } = agentFor({ url: api.url, clock });
    const approving = agent.approve('r1', 'k1', 'allow');
    await api.request(0);
    clock.advance(3000);
    await approving;
    expect(clock.pending).toBe(0);
  });

  it('read the messages of a session (contract 06 §3.3)', async () => {
    const api = await startAgentApi({ key: KEY });
    const { agent } = agentFor({ url: api.url });
    const message = { role: 'user', content: 'hi' };
    for (const messages of [[message, 7], { data: [message] }, { items: [message] }, { messages: [message] }]) {
      api.messages = messages;
      expect(await agent.history('s/1')).toEqual([message]);
    }
    expect(api.requests[0]?.path).toBe('/api/sessions/s%2F1/messages');
    api.messages = { other: [message] };
    expect(await agent.history('s')).toEqual([]);
    expect(await agent.history('..')).toEqual([]);
    expect(await agentFor({ url: api.url, key: 'wrong' }).agent.history('s')).toEqual([]);
  });
});

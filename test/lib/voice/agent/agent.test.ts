import { expect, it } from 'vitest';
import { readConfig } from '../../../../lib/config.ts';
import type { JsonObject } from '../../../../lib/kit/json.ts';
import { createRealtimeAgent } from '../../../../lib/voice/agent/agent.ts';
import type { AgentSessionDeps } from '../../../../lib/voice/agent/session.ts';
import { type AgentSettings, realtimeAgent } from '../../../../lib/voice/agent/settings.ts';
import { createArtifacts } from '../../../../lib/voice/artifacts.ts';
import type { VoicePrincipal } from '../../../../lib/voice/principal.ts';
import { createTestClock } from '../../../support/clock.ts';
import { createTestLog } from '../../../support/log.ts';

const ANNE: VoicePrincipal = { kind: 'api', key: 'anne' };

function setUp({
  settings = {},
  push = async () => undefined,
}: {
  settings?: Partial<AgentSettings>;
  push?(message: JsonObject): Promise<unknown>;
} = {}) {
  const clock = createTestClock();
  const log = createTestLog();
  const made: Omit<AgentSessionDeps<AgentSettings>, 'gate' | 'runIds'>[] = [];
  const closed: unknown[][] = [];
  const calls: { url: string; headers: Record<string, string> }[] = [];
  const ends: ((reason: string) => void)[] = [];
  const agent = createRealtimeAgent({
    config: readConfig({ RELAY_WEBAPI_URL: 'http://agent' }, { home: '/home', agentHome: '/home/.svc' }).config,
    scope: async (profile) => ({
      settings: { ...realtimeAgent.defaults, provider: 'stub', model: 'stub-tone', voice: 'sine', ...settings },
      section: {},
      configPath: '/relay/config.yaml',
      profile,
      configScope: 'relay',
      fallbackToGlobal: false,
      runDir: '/logs',
      headersFor: () => ({}),
      tuningFor: () => ({}),
      servers: {},
      defaultsFor: ({ defaultModel, defaultVoice }) => ({ model: defaultModel, voice: defaultVoice }),
    }),
    artifacts: createArtifacts({ clock, log }),
    onPrincipalEnded(_principal, ended) {
      ends.push(ended);
      return () => {};
    },
    upstream: async ({ url, headers = {} }) => {
      calls.push({ url: String(url), headers: headers as Record<string, string> });
      throw new Error('nobody answers');
    },
    apiKey: async () => 'relay-key',
    pushMessage: push,
    providers: () => async () => {
      throw new Error('not used here');
    },
    renderSpeech: async function* () {},
    openSession(session) {
      made.push(session);
      let isOver = false;
      return {
        id: session.id,
        principal: session.principal,
        scope: session.scope,
        logPath: '',
        isAttached: false,
        isBusy: false,
        get isOver() {
          return isOver;
        },
        open: () => {
          throw new Error('not used here');
        },
        close(...end) {
          isOver = true;
          closed.push(end);
        },
      };
    },
    clock,
    log,
  });
  return { agent, made, closed, calls, ends, log };
}

it("asks the API server with the caller's own key, or with the relay's for paired devices (contract 06 §5.1)", async () => {
  const { agent, calls } = setUp();
  const body = { chat_session_id: 'c/1' };
  expect(await agent.create({ principal: ANNE, bearer: 'own-key' }, null, body)).toMatchObject({
    context_message_count: 0,
  });
  const phone = { kind: 'session', key: 'phone' } as VoicePrincipal;
  await agent.create({ principal: phone, bearer: 'relay-token' }, null, body);
  expect(calls).toMatchObject([
    { url: 'http://agent/api/sessions/c%2F1/messages', headers: { authorization: 'Bearer own-key' } },
    { url: 'http://agent/api/sessions/c%2F1/messages', headers: { authorization: 'Bearer relay-key' } },
  ]);
});

it('closes the sessions of a device that may not use them any more with 4401', async () => {
  const { agent, closed, ends } = setUp();
  await agent.create({ principal: ANNE }, null, {});
  ends[0]?.('session revoked');
  expect(closed).toEqual([[4401, 'session revoked', 'closed']]);
});

it('hands an answer over that nobody has heard: 280 characters of it, and waits for that when it stops', async () => {
  const pushed: JsonObject[] = [];
  let stored = () => {};
  const push = (message: JsonObject) => {
    pushed.push(message);
    return new Promise<void>((resolve) => {
      stored = resolve;
    });
  };
  const { agent, made } = setUp({ push });
  await agent.create({ principal: ANNE }, null, {});
  made[0]?.handOver({ text: 'x'.repeat(281), runId: 'r1', chatSessionId: null });
  expect(pushed).toEqual([
    {
      title: 'Background task finished',
      text: 'x'.repeat(280),
      surfacing: 'notification',
      metadata: { source: 'realtime_agent', run_id: 'r1', chat_session_id: null },
    },
  ]);
  let isStopped = false;
  const stopping = agent.stop().then(() => {
    isStopped = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 10));
  expect(isStopped).toBe(false);
  stored();
  await stopping;
});

it('a message that cannot be kept fails nothing', async () => {
  const { agent, made, log } = setUp({ push: () => Promise.reject(new Error('disk full')) });
  await agent.create({ principal: ANNE }, null, {});
  made[0]?.handOver({ text: 'short', runId: 'r1', chatSessionId: 'c' });
  await agent.stop();
  expect(log.lines.join('\n')).toMatch(/could not be kept for the phone: disk full/);
});

it('gives a session its settings; the final answer only means silence before', async () => {
  const settings = { promoteAfterMs: 7, progressSpokenAfterMs: 9, resultDelivery: 'speak_when_idle' } as const;
  const { agent, made } = setUp({ settings });
  await agent.create({ principal: ANNE }, 'work', { provider: 'openai_realtime', chat_session_id: ' ' });
  await agent.create({ principal: ANNE }, null, { provider: 'xai_realtime', final_answer_only: true });
  await agent.create({ principal: ANNE }, null, { context_messages: [{ role: 'USER', content: 'a  b' }] });
  const [usual, silent, stub] = made;
  expect(usual).toMatchObject({
    unattachedTtl: 120_000,
    keepsAudio: false,
    context: [],
    config: {
      sessionId: usual?.id,
      provider: 'openai_realtime',
      profile: 'work',
      chatSessionId: null,
      promotes: true,
      promoteAfter: 7,
      spokenHandoff: true,
      progressSpokenAfter: 9,
      resultDelivery: 'speak_when_idle',
      speaksExactText: false,
      resumeTtl: 30_000,
      longToolHints: ['cron', 'desktop_', 'browser', 'execute_code', 'terminal', 'spawn'],
    },
  });
  expect(silent?.config).toMatchObject({
    isFinalAnswerOnly: true,
    spokenHandoff: false,
    progressSpokenAfter: 0,
    resultDelivery: 'speak_verbatim',
    speaksExactText: true,
  });
  expect(stub).toMatchObject({ config: { promotes: false }, context: [{ role: 'user', content: 'a b' }] });
});

it.each([{ promotionEnabled: false }, { backgroundDefaultMode: 'foreground' as const }])(
  '%j keeps runs in the foreground',
  async (settings) => {
    const { agent, made } = setUp({ settings });
    await agent.create({ principal: ANNE }, null, { provider: 'openai_realtime' });
    expect(made[0]?.config.promotes).toBe(false);
  },
);

import { describe, expect, it } from 'vitest';
import { ANSWER, CONFIG, TestAgent } from './support.ts';

const end = { type: 'end', text: ANSWER };

describe('a foreground run (contract 06 §6.3)', () => {
  it('is announced, then started after the lead time', () => {
    const agent = new TestAgent();
    agent.speak('what about the kitchen?');
    agent.started('r1');
    agent.call('r1', 'c1', 'svc_run_task', { text: 'look' });
    expect(agent.last('svc.run.progress')).toMatchObject({
      status: 'starting',
      status_key: 'run:checking_svc',
      should_speak: false,
      run_id: null,
      tier: 'foreground',
      source: 'svc',
    });
    agent.pass(CONFIG.runLead - 1);
    expect(agent.did('startRun')).toEqual([]);
    agent.pass(1);
    expect(agent.did('startRun')).toMatchObject([{ task: { text: 'look' }, sessionId: null, isExternal: false }]);
  });

  it('waits until the phone has played what the calling response said', () => {
    const agent = new TestAgent();
    agent.speak('what about the kitchen?');
    agent.started('r1');
    agent.audio('r1');
    agent.call('r1', 'c1', 'svc_run_task', { text: 'look' });
    expect(agent.last('voice.playback_drain.requested')).toMatchObject({ reason: 'pre_svc_ack', call_id: 'c1' });
    agent.pass(CONFIG.playbackDrain - 1);
    expect(agent.of('svc.run.progress')).toEqual([]);
    agent.pass(1);
    expect(agent.last('voice.playback_drain.timeout')).toMatchObject({ reason: 'pre_svc_ack' });
    expect(agent.of('svc.run.progress')).toHaveLength(1);
  });

  it('hands its result to the provider, and is delivered after the drain', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run(end);
    expect(agent.outcomes()).toEqual(['completed']);
    expect(agent.of('svc.run.completed')).toHaveLength(1);
    expect(agent.last('voice.playback_drain.requested')).toMatchObject({ reason: 'tool_result_summary' });
    expect(agent.requests()).toEqual(['user']);
    agent.say('playback.drained');
    expect(agent.requests()).toEqual(['user', 'delivery']);
  });

  it('continues the chat session that it was bound to', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run({ type: 'svc.session.bound', session_id: 'chat-1', profile: 'default' });
    expect(agent.last('svc.session.bound')).toMatchObject({ session_id: 'chat-1', chat_session_id: 'chat-1' });
    agent.run(end);
    expect(agent.last('svc.run.completed')).toMatchObject({ session_id: 'chat-1' });
    agent.say('playback.drained');
    agent.respond('d1', ANSWER);
    agent.startRun({}, 'call-2');
    expect(agent.did('startRun')[1]).toMatchObject({ sessionId: 'chat-1', isExternal: false });
  });

  it('says that a chat session came from outside', () => {
    const agent = new TestAgent({ chatSessionId: 'given' });
    agent.startRun();
    expect(agent.did('startRun')).toMatchObject([{ sessionId: 'given', isExternal: true }]);
  });

  it('announces its start once more for an id that comes late, and never again', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run({ type: 'svc.run.started' });
    agent.run({ type: 'svc.run.started', run_id: 'run-7' });
    agent.run({ type: 'svc.run.started', run_id: 'run-7' });
    expect(agent.of('svc.run.started')).toHaveLength(2);
    agent.run(end);
    expect(agent.last('svc.run.completed')).toMatchObject({ run_id: 'run-7' });
  });

  it('tells of its progress without nulls, which clients take for `run_id` only', () => {
    const agent = new TestAgent({ promotes: false });
    agent.startRun();
    agent.pass(CONFIG.progressInterval);
    const [first] = agent.of('svc.run.progress');
    expect(first?.run_id).toBe(null);
    for (const { run_id, ...members } of agent.of('svc.run.progress'))
      expect(Object.values(members)).not.toContain(null);
    agent.run({ type: 'svc.tool.started', tool_call_id: 't', tool_name: 'search', message: 'Searching' });
    agent.pass(CONFIG.progressInterval);
    expect(agent.last('svc.run.progress')).toMatchObject({ active_tool_name: 'search', last_tool_name: 'search' });
  });

  it('beats while it is alive, with what the agent does', () => {
    const agent = new TestAgent({ promotes: false });
    agent.startRun();
    const keyAfter = (event: object): unknown => {
      agent.run(event as never);
      agent.pass(CONFIG.progressInterval);
      return agent.last('svc.run.progress')?.status_key;
    };
    agent.pass(CONFIG.progressInterval);
    expect(agent.last('svc.run.progress')).toMatchObject({ status_key: 'run:waiting_svc', elapsed_ms: 5750 });
    const tool = { tool_name: 'search', tool_call_id: 't1', message: 'Searching' };
    expect(keyAfter({ type: 'svc.tool.started', ...tool })).toBe('tool:search:running');
    expect(keyAfter({ type: 'svc.tool.delta', ...tool, message: '3 of 9' })).toBe('progress:3 of 9');
    expect(keyAfter({ type: 'svc.tool.completed', ...tool })).toBe('tool:search:done');
    expect(agent.last('svc.run.progress')).toMatchObject({ completed_tool_count: 1, last_tool_name: 'search' });
    expect(keyAfter({ type: 'svc.tool.failed', ...tool })).toBe('tool:search:failed');
    expect(keyAfter({ type: 'svc.confirmation.requested', confirmation_id: 'k1', message: '?' })).toBe('confirmation');
    agent.say('svc.confirm', { confirmation_id: 'k1', answer: 'allow' });
    expect(keyAfter({ type: 'answer', text: 'The' })).toBe('run:drafting');
    agent.run(end);
    const { length } = agent.of('svc.run.progress');
    agent.pass(60_000);
    expect(agent.of('svc.run.progress')).toHaveLength(length);
  });

  it('asks for spoken progress when it is on, the floor is free, and there is news', () => {
    const agent = new TestAgent({ promotes: false, progressSpokenAfter: 8000, progressRepeat: 30_000 });
    agent.startRun();
    const spoken = () => agent.of('svc.run.progress').filter(({ should_speak }) => should_speak === true).length;
    agent.pass(CONFIG.progressInterval);
    expect(spoken()).toBe(0);
    agent.pass(CONFIG.progressInterval);
    expect(spoken()).toBe(1);
    agent.pass(CONFIG.progressInterval);
    expect(spoken()).toBe(1);
    agent.run({ type: 'svc.tool.started', tool_name: 'search', tool_call_id: 't', message: 'm' });
    agent.pass(CONFIG.progressInterval);
    expect(spoken()).toBe(2);
    agent.pass(30_000);
    expect(spoken()).toBe(3);
  });

  it('that failed is delivered as a failure', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run({ type: 'error', message: 'The agent is out of credit today' });
    expect(agent.outcomes()).toEqual(['failed']);
    agent.say('playback.drained');
    expect(agent.requests()).toEqual(['user', 'delivery']);
    expect(agent.of('voice.error')).toEqual([]);
  });

  it('that the agent did not accept ends in an error of the session', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run({ type: 'error', code: 'svc_broker_auth_failed', message: 'svc broker auth failed (401)' });
    expect(agent.last('voice.error')).toMatchObject({ error_code: 'svc_broker_auth_failed', call_id: 'call-1' });
    expect(agent.outcomes()).toEqual(['failed']);
    expect(agent.state.delivery.current).toBeNull();
  });

  it('without an answer counts as failed', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run({ type: 'end', text: ' ' });
    expect(agent.outcomes()).toEqual(['failed']);
  });
});

describe('function calls (contract 06 §6.2)', () => {
  it('are answered once per call id', () => {
    const agent = new TestAgent();
    agent.speak('status?');
    agent.started('r1');
    agent.call('r1', 'c1', 'svc_get_status');
    agent.call('r1', 'c1', 'svc_get_status');
    agent.done('r1');
    expect(agent.outcomes()).toEqual(['status']);
  });

  it('of other names, and without their arguments, are refused', () => {
    const agent = new TestAgent();
    agent.speak('do it');
    agent.started('r1');
    agent.call('r1', 'c1', 'rm_rf');
    agent.call('r1', 'c2', 'svc_run_task');
    agent.provider({ type: 'functionCall', responseId: 'r1', callId: 'c3', name: 'svc_confirm', args: 'no json' });
    agent.done('r1');
    expect(agent.did('toolResult').map(({ outcome }) => outcome)).toMatchObject([
      { type: 'refused', result: { ok: false, error: 'tool is not allowed: rm_rf' } },
      { type: 'refused', result: { ok: false } },
      { type: 'refused', result: { ok: false } },
    ]);
    agent.say('playback.drained');
    expect(agent.requests()).toEqual(['user', 'tool_followup']);
  });

  it('of svc_confirm and svc.confirm forward the answer, and clear what is pending', () => {
    for (const ask of [
      (agent: TestAgent) => agent.say('svc.confirm', { confirmation_id: 'k1', answer: 'deny' }),
      (agent: TestAgent) => {
        agent.speak('no');
        agent.started('r9');
        agent.call('r9', 'c9', 'svc_confirm', { confirmation_id: 'k1', answer: 'deny' });
      },
    ]) {
      const agent = new TestAgent({ promotes: false });
      agent.startRun();
      agent.run({ type: 'svc.run.started', run_id: 'run-1' });
      agent.run({ type: 'svc.confirmation.requested', confirmation_id: 'k1', message: 'Delete?' });
      expect(agent.state.run.current).toMatchObject({ status: 'waiting_for_confirmation', confirmationId: 'k1' });
      ask(agent);
      expect(agent.last('svc.confirmation.forwarded')).toMatchObject({ confirmation_id: 'k1', answer: 'deny' });
      expect(agent.did('approve')).toMatchObject([{ runId: 'run-1', confirmationId: 'k1', answer: 'deny' }]);
      expect(agent.state.run.current).toMatchObject({ status: 'running', confirmationId: null });
    }
  });

  it.each([{}, { confirmation_id: 'k' }, { answer: 'allow' }])('svc.confirm needs both members: %j', (members) => {
    const agent = new TestAgent();
    agent.say('svc.confirm', members);
    expect(agent.of('voice.error')).toHaveLength(1);
    expect(agent.of('svc.confirmation.forwarded')).toEqual([]);
  });

  it('cuts a confirmation id to 200 characters, and takes it back at any length', () => {
    const long = 'k'.repeat(300);
    const agent = new TestAgent({ promotes: false });
    agent.startRun();
    agent.run({ type: 'svc.run.started', run_id: 'run-1' });
    agent.run({ type: 'svc.confirmation.requested', confirmation_id: long, message: 'Delete?' });
    expect(agent.last('svc.confirmation.requested')).toMatchObject({ confirmation_id: long.slice(0, 200) });
    agent.say('svc.confirm', { confirmation_id: long, answer: 'allow' });
    expect(agent.of('voice.error')).toEqual([]);
    expect(agent.did('approve')).toMatchObject([{ confirmationId: long.slice(0, 200), answer: 'allow' }]);
    expect(agent.state.run.current).toMatchObject({ status: 'running', confirmationId: null });
  });
});

describe('promotion (contract 06 §6.7)', () => {
  it('comes with the end of the grace time, with a spoken handoff', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.pass(CONFIG.promoteAfter - 1);
    expect(agent.of('svc.run.promoted')).toEqual([]);
    agent.pass(1);
    expect(agent.last('svc.run.promoted')).toMatchObject({
      tier: 'promoted',
      spoken_handoff: true,
      provider_acknowledged: false,
      origin: 'provider_tool_call',
      call_id: 'call-1',
      queued_count: 0,
    });
    expect(agent.outcomes()).toEqual(['promoted']);
    expect(agent.requests()).toEqual(['user', 'handoff']);
  });

  it('comes soon after a long tool has started', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run({ type: 'svc.tool.started', tool_name: 'Browser_open', tool_call_id: 't', message: 'm' });
    agent.pass(CONFIG.longToolQuickFinish);
    expect(agent.of('svc.run.promoted')).toHaveLength(1);
  });

  it('does not come for a long tool that finishes the run quickly', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run({ type: 'svc.tool.started', tool_name: 'terminal', tool_call_id: 't', message: 'm' });
    agent.run(end);
    agent.pass(60_000);
    expect(agent.of('svc.run.promoted')).toEqual([]);
  });

  it('is immediate with mode background, also when promotion is off', () => {
    const agent = new TestAgent({ promotes: false });
    agent.startRun({ mode: 'background' });
    expect(agent.last('svc.run.promoted')).toMatchObject({ tier: 'durable' });
  });

  it('does not come when it is off', () => {
    const agent = new TestAgent({ promotes: false });
    agent.startRun();
    agent.run({ type: 'svc.tool.started', tool_name: 'terminal', tool_call_id: 't', message: 'm' });
    agent.pass(100_000);
    expect(agent.of('svc.run.promoted')).toEqual([]);
  });

  it.each([
    ['it is off', { spokenHandoff: false }],
    ['only the answer is to be heard', { isFinalAnswerOnly: true }],
    ['results are only shown', { resultDelivery: 'visual_only' as const }],
  ])('has no spoken handoff when %s', (_, config) => {
    const agent = new TestAgent(config);
    agent.startRun({ mode: 'background' });
    expect(agent.last('svc.run.promoted')).toMatchObject({ spoken_handoff: false });
    expect(agent.requests()).toEqual(['user']);
  });

  it('has no spoken handoff when the calling response has spoken already', () => {
    const agent = new TestAgent();
    agent.speak('look');
    agent.started('r1');
    agent.audio('r1');
    agent.call('r1', 'c1', 'svc_run_task', { text: 'look', mode: 'background' });
    agent.done('r1');
    agent.say('playback.drained');
    agent.pass(CONFIG.runLead);
    expect(agent.last('svc.run.promoted')).toMatchObject({ spoken_handoff: false, provider_acknowledged: true });
  });
});

describe('a background run', () => {
  it('reports its end, and its result is delivered', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.run(end);
    expect(agent.last('svc.run.background_completed')).toMatchObject({ ok: true, tool_count: 0 });
    expect(agent.outcomes()).toEqual(['promoted']);
    agent.pass(CONFIG.inputQuiet);
    expect(agent.requests().at(-1)).toBe('delivery');
  });

  it('that failed is reported and shown, and ends no session', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.run({ type: 'error', message: 'no such file' });
    expect(agent.last('svc.run.background_completed')).toMatchObject({ ok: false, error: 'no such file' });
    expect(agent.last('voice.response.delta')).toMatchObject({ delta: 'no such file', delivery: 'visual_only' });
    expect(agent.of('voice.error')).toEqual([]);
  });

  it('is aborted after its cap', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.pass(CONFIG.backgroundRunMax);
    expect(agent.did('abortRun')).toHaveLength(1);
    expect(agent.last('svc.run.background_completed')).toMatchObject({ ok: false, error: 'background run timed out' });
    agent.run(end);
    agent.pass(60_000);
    expect(agent.requests()).not.toContain('delivery');
  });
});

describe('a second task', () => {
  const busy = (config = {}): TestAgent => {
    const agent = new TestAgent(config);
    agent.startBackgroundRun();
    return agent;
  };
  const ask = (agent: TestAgent, callId: string, args = {}): void => {
    agent.speak('and the garden?');
    agent.started(`asks-${callId}`);
    agent.call(`asks-${callId}`, callId, 'svc_run_task', { text: `task ${callId}`, ...args });
    agent.done(`asks-${callId}`);
  };

  it('takes the fast lane, which the client never sees', () => {
    const agent = busy();
    const slot = agent.runKey;
    ask(agent, 'c2');
    const fast = agent.runKey;
    expect(fast).not.toBe(slot);
    const { length } = agent.events;
    agent.run({ type: 'svc.session.bound', session_id: 'fast-chat' }, fast);
    agent.run({ type: 'svc.tool.started', tool_name: 'search', tool_call_id: 't', message: 'm' }, fast);
    agent.run({ type: 'answer', text: 'It' }, fast);
    expect(agent.events).toHaveLength(length);
    agent.run({ type: 'end', text: 'It rains.' }, fast);
    expect(agent.did('toolResult').at(-1)).toMatchObject({
      callId: 'c2',
      outcome: { type: 'completed', isFast: true },
    });
    expect(agent.state.chatSessionId).toBeNull();
    agent.say('playback.drained');
    expect(agent.requests().at(-1)).toBe('tool_followup');
    agent.respond('r3', 'It rains.');
    ask(agent, 'c3');
    expect(agent.did('startRun').at(-1)).toMatchObject({ sessionId: 'fast-chat', isExternal: false });
  });

  it.each([
    ['for longer than the grace time', (agent: TestAgent) => agent.pass(CONFIG.promoteAfter)],
    [
      'with a long tool',
      (agent: TestAgent) =>
        agent.run({ type: 'svc.tool.started', tool_name: 'browser', tool_call_id: 't', message: 'm' }),
    ],
    ['in vain', (agent: TestAgent) => agent.run({ type: 'error', message: 'x' })],
  ])('is queued when it uses the fast lane %s', (_, happen) => {
    const agent = busy();
    ask(agent, 'c2');
    happen(agent);
    expect(agent.state.run.fast).toBeNull();
    expect(agent.last('svc.run.queued')).toMatchObject({ queue_position: 1, transcript_preview: 'task c2' });
    expect(agent.outcomes()).toEqual(['promoted', 'queued']);
  });

  it('is queued at once when promotion is off, or it asks for the background', () => {
    for (const agent of [busy({ promotes: false }), busy()]) {
      ask(agent, 'c2', { mode: 'background' });
      expect(agent.outcomes()).toEqual(['promoted', 'queued']);
      expect(agent.did('startRun')).toHaveLength(1);
    }
  });

  it('finds a queue of three', () => {
    const agent = busy();
    for (const id of ['c2', 'c3', 'c4', 'c5']) {
      ask(agent, id, { mode: 'background' });
      agent.say('playback.drained');
      agent.respond(`says-${id}`, 'Queued.');
    }
    expect(agent.outcomes()).toEqual(['promoted', 'queued', 'queued', 'queued', 'already_running']);
    expect(agent.state.run.queue).toHaveLength(3);
  });

  it('starts when the result before it was delivered, with a spoken transition', () => {
    const agent = busy();
    ask(agent, 'c2', { mode: 'background' });
    agent.say('playback.drained');
    agent.respond('says', 'Queued.');
    agent.run(end);
    agent.pass(CONFIG.inputQuiet);
    expect(agent.did('startRun')).toHaveLength(1);
    agent.respond('d1', ANSWER);
    expect(agent.did('startRun')).toMatchObject([{}, { task: { text: 'task c2' } }]);
    expect(agent.last('svc.run.promoted')).toMatchObject({ tier: 'durable', origin: 'queued', spoken_handoff: true });
    expect(agent.requests().at(-1)).toBe('handoff');
    expect(agent.marked('voice.svc_run.queued_started')).toHaveLength(1);
    // Its call was answered when it was queued.
    expect(agent.outcomes()).toEqual(['promoted', 'queued']);
  });

  it('starts after a while although the result before it waits for the phone', () => {
    const agent = busy();
    ask(agent, 'c2', { mode: 'background' });
    agent.say('playback.drained');
    agent.respond('says', 'Queued.');
    agent.post({ type: 'detached' });
    agent.run(end);
    agent.pass(10_000 + CONFIG.deliveryConfirm);
    expect(agent.did('startRun')).toHaveLength(2);
  });

  it('starts after a run that failed', () => {
    const agent = busy();
    ask(agent, 'c2', { mode: 'background' });
    agent.run({ type: 'error', message: 'x' });
    expect(agent.did('startRun')).toHaveLength(2);
  });
});

describe('cancel (contract 06 §6.6)', () => {
  it('of a foreground run aborts it, once, and asks for no response', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.say('response.cancel');
    agent.say('response.cancel');
    expect(agent.did('abortRun')).toHaveLength(1);
    expect(agent.of('svc.run.cancelled')).toHaveLength(1);
    expect(agent.outcomes()).toEqual(['cancelled']);
    // The client's turn is over with the response: its run must be, too.
    const types = agent.events.map(({ type }) => type);
    expect(types.indexOf('svc.run.cancelled')).toBeLessThan(types.indexOf('voice.response.done'));
    agent.run(end);
    agent.pass(60_000);
    expect(agent.requests()).toEqual(['user']);
    expect(agent.of('svc.run.completed')).toEqual([]);
  });

  it('of a run that waits for its drain never starts it', () => {
    const agent = new TestAgent();
    agent.speak('look');
    agent.started('r1');
    agent.audio('r1');
    agent.call('r1', 'c1', 'svc_run_task', { text: 'look' });
    agent.say('response.cancel');
    agent.say('playback.drained');
    agent.pass(60_000);
    expect(agent.did('startRun')).toEqual([]);
  });

  it('empties queue and fast lane', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    for (const [id, mode] of [
      ['c2', 'background'],
      ['c3', 'chat'],
    ]) {
      agent.speak('more');
      agent.started(`r-${id}`);
      agent.call(`r-${id}`, id as string, 'svc_run_task', { text: 'x', mode });
      agent.done(`r-${id}`);
    }
    agent.say('response.cancel');
    expect(agent.did('abortRun')).toHaveLength(2);
    expect(agent.of('svc.run.cancelled')).toHaveLength(1);
    expect(agent.state.run).toMatchObject({ current: null, fast: null, queue: [] });
    agent.pass(600_000);
    expect(agent.did('startRun')).toHaveLength(2);
  });

  it('by svc_cancel says so to the provider', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.speak('stop it');
    agent.started('r2');
    agent.call('r2', 'c2', 'svc_cancel');
    agent.done('r2');
    expect(agent.of('svc.run.cancelled')).toHaveLength(1);
    expect(agent.did('toolResult').at(-1)).toMatchObject({ outcome: { type: 'cancel', hadRun: true } });
    agent.say('playback.drained');
    expect(agent.requests().at(-1)).toBe('tool_followup');
  });

  it('does not turn a finished run into a cancelled one', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run(end);
    agent.say('response.cancel');
    expect(agent.of('svc.run.cancelled')).toEqual([]);
    expect(agent.of('svc.run.completed')).toHaveLength(1);
  });
});

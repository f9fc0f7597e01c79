import { expect, it } from 'vitest';
import type { AgentConfig } from '../../../../../lib/voice/agent/core/state.ts';
import { TestAgent } from './support.ts';

const STUB: Partial<AgentConfig> = {
  provider: 'stub',
  model: 'stub-tone',
  voice: 'sine',
  sampleRate: 16_000,
  promotes: false,
};

const asking = (text = 'Is it on?') => {
  const agent = new TestAgent(STUB);
  agent.say('response.create', { text });
  return agent;
};

it('runs a text on the agent, shows the answer as it comes, and reads it aloud', () => {
  const agent = asking();
  agent.run({ type: 'svc.run.started', run_id: 'r1' });
  agent.run({ type: 'answer', text: 'It ' });
  agent.run({ type: 'answer', text: 'is.' });
  agent.run({ type: 'end', text: 'It is.' });
  const [render] = agent.did('render');
  expect(render).toMatchObject({ text: 'It is.' });
  agent.post({ type: 'rendered', id: render?.id as number, pcm: new Uint8Array(4), sampleRate: 16_000 });
  agent.post({ type: 'renderEnded', id: render?.id as number, done: { metrics: {} } });
  expect(agent.types()).toEqual([
    'voice.input_transcript.final',
    'voice.response.started',
    'svc.run.started',
    'svc.run.progress',
    'voice.response.delta',
    'voice.response.delta',
    'svc.run.completed',
    'voice.output_audio.delta',
    'voice.output_audio.done',
    'voice.response.done',
  ]);
  expect(agent.events[0]).toMatchObject({ text: 'Is it on?', sample_rate: 16_000, input_audio_bytes: 0 });
  expect(agent.last('voice.response.done')).toMatchObject({
    provider: 'stub',
    model: 'local-tone',
    voice: 'sine',
    final_text: 'It is.',
    run_id: 'r1',
    metrics: {},
  });
  const ids = new Set(agent.events.map(({ response_id }) => response_id).filter((id) => id !== undefined));
  expect(ids.size).toBe(1);
  expect(agent.timers).toEqual([]);
  expect([agent.state.turn.active, agent.state.run.current, agent.state.delivery.current]).toEqual([null, null, null]);
});

it('never moves a run to the background, and keeps the client informed of it', () => {
  const agent = asking();
  agent.run({ type: 'svc.tool.started', tool_name: 'terminal', tool_call_id: 't' });
  agent.pass(60_000);
  expect(agent.of('svc.run.progress')).toHaveLength(12);
  expect(agent.of('svc.run.promoted')).toEqual([]);
});

it('takes the text of an utterance from its commit', () => {
  const agent = new TestAgent(STUB);
  agent.append(320);
  agent.say('input_audio.commit');
  expect(agent.last('voice.error')?.message).toMatch(/client transcript text is required/);
  agent.append(320);
  agent.say('input_audio.commit', { prompt: 'Hello' });
  expect(agent.last('voice.input_transcript.final')).toMatchObject({ text: 'Hello', input_audio_bytes: 320 });
  expect(agent.did('startRun')).toHaveLength(1);
});

it('does one thing at a time', () => {
  const agent = asking();
  agent.say('response.create', { text: 'And now?' });
  expect(agent.last('voice.error')?.message).toBe('response already running');
  agent.run({ type: 'end', text: 'Yes.' });
  agent.say('input_audio.commit', { text: 'And now?' });
  expect(agent.of('voice.error')).toHaveLength(2);
  expect(agent.did('startRun')).toHaveLength(1);
});

it.each([
  ['an answer without words', { type: 'end', text: ' ' }, { message: 'the run ended without an answer' }],
  [
    'a failure',
    { type: 'error', message: 'no', code: 'svc_broker_auth_failed' },
    { error_code: 'svc_broker_auth_failed' },
  ],
  ['a freeze', { type: 'frozen', message: 'frozen by Pixel' }, { message: 'frozen by Pixel' }],
])('%s is an error, and the next turn is like the first', (_name, event, error) => {
  const agent = asking();
  agent.run(event);
  expect(agent.last('voice.error')).toMatchObject(error);
  expect(agent.did('render')).toEqual([]);
  agent.say('response.create', { text: 'Again' });
  expect(agent.did('startRun')).toHaveLength(2);
});

it('cancel stops the run or the speech, and always ends the response', () => {
  const running = asking();
  running.run({ type: 'svc.run.started', run_id: 'r1' });
  running.say('response.cancel');
  expect(running.of('svc.run.cancelled')).toMatchObject([{ run_id: 'r1' }]);
  expect(running.did('abortRun')).toHaveLength(1);
  expect(running.of('voice.response.done')).toMatchObject([{ cancelled: true, run_id: 'r1' }]);
  const speaking = asking();
  speaking.run({ type: 'end', text: 'Yes.' });
  speaking.say('response.cancel');
  const [render] = speaking.did('render');
  expect(speaking.did('stopRender')).toMatchObject([{ id: render?.id }]);
  speaking.post({ type: 'renderEnded', id: render?.id as number });
  expect(speaking.of('voice.response.done')).toMatchObject([{ cancelled: true }]);
  const idle = new TestAgent(STUB);
  idle.say('response.cancel');
  expect(idle.of('voice.response.done')).toMatchObject([{ cancelled: true, response_id: null }]);
});

it('answers confirmations, and has no result to repeat', () => {
  const agent = asking();
  agent.run({ type: 'svc.run.started', run_id: 'r1' });
  agent.run({ type: 'svc.confirmation.requested', confirmation_id: 'c1', message: 'Really?' });
  agent.say('svc.confirm', { confirmation_id: 'c1', answer: 'deny' });
  expect(agent.did('approve')).toMatchObject([{ runId: 'r1', confirmationId: 'c1', answer: 'deny' }]);
  agent.say('svc.result.respeak');
  agent.say('dance');
  expect(agent.types()).toContain('svc.result.respeak_unavailable');
  expect(agent.last('voice.error')?.message).toMatch(/dance/);
});

it('ends without a trace', () => {
  const agent = asking();
  agent.post({ type: 'ended', why: 'closed' });
  expect(agent.did('abortRun')).toHaveLength(1);
  expect(agent.timers).toEqual([]);
});

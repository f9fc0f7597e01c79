import { describe, expect, it } from 'vitest';
import { ANSWER, CONFIG, TestAgent } from './support.ts';

const end = { type: 'end', text: ANSWER };

describe('a provider that is lost (contract 06 §8, region T)', () => {
  it('ends an idle session without an error', () => {
    const agent = new TestAgent();
    agent.provider({ type: 'closed', idle: false });
    expect(agent.events).toEqual([]);
    expect(agent.did('close')).toMatchObject([{ code: 1000 }]);
  });

  it('because nobody spoke ends the session as an idle timeout', () => {
    const agent = new TestAgent();
    agent.provider({ type: 'closed', idle: true });
    expect(agent.did('close')).toMatchObject([{ code: 1000, reason: 'provider idle timeout' }]);
    expect(agent.marked('voice.realtime_agent.provider_idle_close')).toHaveLength(1);
    expect(agent.events).toEqual([]);
  });

  it.each([
    ['while the user speaks', (agent: TestAgent) => agent.append()],
    ['while it answers', (agent: TestAgent) => agent.speak('hello')],
    ['while a run is alive', (agent: TestAgent) => agent.startRun()],
  ])('%s ends it with an error, and aborts the run', (_, prepare) => {
    const agent = new TestAgent();
    prepare(agent);
    agent.provider({ type: 'closed', idle: false });
    expect(agent.last('voice.error')).toMatchObject({ error_code: 'provider_disconnected' });
    expect(agent.did('close')).toMatchObject([{ code: 1000 }]);
    expect(agent.did('startRun')).toHaveLength(agent.did('abortRun').length);
    expect(agent.timers).toEqual([]);
  });

  it('with an answer due has it rendered first', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run(end);
    agent.say('playback.drained');
    agent.provider({ type: 'closed', idle: false });
    expect(agent.did('close')).toEqual([]);
    const { id } = agent.did('render')[0] as { id: number };
    agent.post({ type: 'renderEnded', id });
    expect(agent.types().slice(-2)).toEqual(['voice.response.done', 'voice.error']);
    expect(agent.did('close')).toHaveLength(1);
    expect(agent.did('phoneMessage')).toEqual([]);
  });

  it('with a result held for the phone sends it as a message', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.post({ type: 'detached' });
    agent.run(end);
    agent.provider({ type: 'closed', idle: true });
    expect(agent.did('phoneMessage')).toMatchObject([{ text: ANSWER }]);
    expect(agent.did('close')).toHaveLength(1);
  });

  it('in the middle of an answer shows the answer', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run(end);
    agent.say('playback.drained');
    agent.started('d1');
    agent.text('d1', ANSWER);
    agent.provider({ type: 'closed', idle: false });
    expect(agent.last('voice.response.delta')).toMatchObject({ delivery: 'visual_only', delta: ANSWER });
    expect(agent.did('close')).toHaveLength(1);
  });

  it.each([
    ['toolResult', 'provider_tool_result_send_failed'],
    ['request', 'provider_response_request_failed'],
  ] as const)('or does not take a %s: the answer is rendered, then the session ends', (what, error_code) => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run(end);
    if (what === 'request') agent.say('playback.drained');
    agent.post({ type: 'providerRefused', what });
    const { id } = agent.did('render')[0] as { id: number };
    agent.post({ type: 'renderEnded', id });
    expect(agent.last('voice.error')).toMatchObject({ error_code });
    expect(agent.did('close')).toHaveLength(1);
  });
});

describe('the socket is told (contract 06 §4.1)', () => {
  it('to wait for the phone for as long as a run or a delivery is alive', () => {
    const agent = new TestAgent();
    agent.startRun({ mode: 'background' });
    expect(agent.did('resumeTtl')).toMatchObject([{ ttl: CONFIG.backgroundDetachedMax }]);
    expect(agent.did('activity')).toMatchObject([{ isBusy: true }]);
    agent.post({ type: 'detached' });
    agent.run(end);
    expect(agent.did('resumeTtl').at(-1)).toMatchObject({ ttl: 30_000 });
    expect(agent.did('activity').at(-1)).toMatchObject({ isBusy: false });
  });

  it('not to wait longer than the cap for a queue of runs', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.speak('more');
    agent.started('r2');
    agent.call('r2', 'c2', 'svc_run_task', { text: 'x', mode: 'background' });
    agent.done('r2');
    agent.post({ type: 'detached' });
    agent.pass(100_000);
    agent.run({ type: 'error', message: 'x' });
    agent.pass(1000);
    expect(agent.did('resumeTtl').every(({ ttl }) => ttl <= CONFIG.backgroundDetachedMax)).toBe(true);
    expect(agent.state.run.current).not.toBeNull();
  });
});

describe('a session that has ended', () => {
  it('has no timers, no run and ignores whatever comes', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.append();
    agent.say('input_audio.commit');
    agent.post({ type: 'ended', why: 'closed' });
    expect(agent.timers).toEqual([]);
    expect(agent.did('abortRun')).toHaveLength(1);
    expect(agent.did('close')).toEqual([]);
    expect(agent.run(end)).toEqual([]);
    expect(agent.speak('hello')).toBeUndefined();
    expect(agent.requests()).toEqual(['user']);
  });
});

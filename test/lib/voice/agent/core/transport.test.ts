import { describe, expect, it } from 'vitest';
import { ANSWER, CONFIG, TestAgent } from './support.ts';

const end = { type: 'end', text: ANSWER };

describe('a provider that is lost (contract 06 §6.9)', () => {
  it('while nothing goes on is dialled when the user speaks again', () => {
    const agent = new TestAgent();
    agent.lose();
    expect([agent.events, agent.did('close'), agent.did('dial')]).toEqual([[], [], []]);
    agent.append();
    expect(agent.types()).toEqual(['voice.input_audio.received', 'voice.provider.reconnecting']);
    expect(agent.last('voice.provider.reconnecting')).toEqual({ type: 'voice.provider.reconnecting', reason: 'idle' });
    expect(agent.did('dial')).toHaveLength(1);
    agent.now += 120;
    agent.dialled();
    expect(agent.last('voice.provider.reconnected')).toEqual({ type: 'voice.provider.reconnected', gap_ms: 120 });
    expect(agent.timers).toEqual([]);
  });

  it('because nobody spoke ends the session as an idle timeout', () => {
    const agent = new TestAgent();
    agent.lose(true);
    expect(agent.did('close')).toMatchObject([{ code: 1000, reason: 'provider idle timeout' }]);
    expect(agent.marked('voice.realtime_agent.provider_idle_close')).toHaveLength(1);
    expect(agent.events).toEqual([]);
  });

  it('before its response began is asked again, and for an utterance without a transcript the user is', () => {
    const agent = new TestAgent();
    agent.speak('hello');
    agent.lose();
    expect(agent.requests()).toEqual(['user']);
    agent.dialled();
    expect(agent.did('request').at(-1)?.request).toEqual({ kind: 'user', prompt: null });
    agent.respond('r1', 'Hello!');
    agent.append();
    agent.say('input_audio.commit');
    agent.lose();
    agent.dialled();
    expect(agent.did('request').at(-1)?.request).toEqual({ kind: 'user', prompt: { type: 'repeat' } });
    expect(agent.timers).toEqual([]);
  });

  it('takes an utterance that ended in the gap, and waits for its transcript', () => {
    const agent = new TestAgent();
    agent.append();
    agent.lose();
    agent.append();
    agent.say('input_audio.commit');
    agent.pass(1000);
    expect(agent.timers).toEqual(['gap']);
    agent.dialled();
    expect(agent.timers).toEqual(['transcript']);
    agent.provider({ type: 'transcriptFinal', text: 'all of it' });
    expect(agent.did('request').at(-1)?.request).toEqual({ kind: 'user', prompt: null });
  });

  it('in the middle of an answer is asked for its rest, and of a whole one for nothing', () => {
    const agent = new TestAgent();
    agent.speak('hello');
    agent.started('r1');
    agent.text('r1', 'One, two,');
    agent.audio('r1');
    agent.lose();
    agent.dialled();
    expect(agent.of('voice.response.done')).toEqual([]);
    const prompt = { type: 'rest', said: 'One, two,' };
    expect(agent.did('request').at(-1)?.request).toEqual({ kind: 'user', prompt });
    agent.respond('r2', ' three.');
    expect(agent.of('voice.response.done')).toMatchObject([{ response_id: 'r2' }]);
    agent.speak('and?');
    agent.started('r3');
    agent.text('r3', 'Four.');
    agent.audio('r3');
    agent.provider({ type: 'audioDone', responseId: 'r3' });
    agent.lose();
    expect(agent.last('voice.response.done')).toMatchObject({ response_id: 'r3' });
    agent.dialled();
    expect(agent.requests()).toEqual(['user', 'user', 'user']);
  });

  it('in the middle of a delivery is asked for its rest', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run(end);
    agent.say('playback.drained');
    agent.started('d1');
    agent.text('d1', ANSWER);
    agent.audio('d1');
    agent.lose();
    agent.dialled();
    const { request } = agent.did('request').at(-1) ?? {};
    expect(request).toMatchObject({
      kind: 'delivery',
      prompt: { type: 'rest', said: ANSWER, result: { answer: ANSWER } },
    });
    agent.respond('d2', 'and that is all.');
    expect(agent.last('voice.response.done')).toMatchObject({ response_id: 'd2', delivery: 'forced_summary' });
    expect(agent.state.delivery.current).toBeNull();
    expect(agent.timers).toEqual([]);
  });

  it.each([
    ['while its tool runs', (agent: TestAgent) => agent.startRun()],
    ['while a run is in the background', (agent: TestAgent) => agent.startBackgroundRun()],
  ])('%s has the run go on, and its result delivered once', (_, prepare) => {
    const agent = new TestAgent();
    prepare(agent);
    agent.lose();
    expect(agent.did('abortRun')).toEqual([]);
    agent.run(end);
    agent.dialled();
    agent.say('playback.drained');
    agent.pass(CONFIG.inputQuiet);
    agent.respond('d1', ANSWER);
    expect(agent.of('voice.response.delta').filter(({ delta }) => delta === ANSWER)).toHaveLength(1);
    expect(agent.did('close')).toEqual([]);
    expect(agent.timers).toEqual([]);
  });

  it('is dialled five times at growing distances, counted anew after a turn that completed', () => {
    const agent = new TestAgent();
    const dials: number[] = [];
    agent.speak('hello');
    const start = agent.now;
    agent.lose();
    for (let tries = 1; tries < 5; tries++) {
      dials.push(agent.now - start);
      agent.post({ type: 'dialFailed', message: 'refused' });
      while (agent.did('dial').length === tries) agent.pass(100);
    }
    dials.push(agent.now - start);
    expect(dials).toEqual([0, 500, 1500, 3500, 7500]);
    agent.dialled();
    agent.respond('r1', 'Hello!');
    for (let losses = 0; losses < 5; losses++) {
      agent.speak('and?');
      agent.lose();
      while (agent.state.link.phase === 'waiting') agent.pass(100);
      agent.dialled();
      agent.respond(`r${losses}`, 'So.');
    }
    expect(agent.of('voice.provider.reconnected')).toHaveLength(6);
    expect(agent.of('voice.error')).toEqual([]);
  });

  it('is given up after five losses without a turn between them, or 20 s', () => {
    const agent = new TestAgent();
    agent.speak('hello');
    for (let losses = 0; losses < 6; losses++) {
      agent.lose();
      while (agent.state.link.phase === 'waiting' && agent.state.phase === 'open') agent.pass(100);
      agent.dialled();
    }
    expect(agent.last('voice.error')).toMatchObject({ error_code: 'provider_disconnected', message: 'reset' });
    expect(agent.did('close')).toMatchObject([{ code: 1000 }]);
    const slow = new TestAgent();
    slow.speak('hello');
    slow.lose();
    slow.pass(19_999);
    expect(slow.did('close')).toEqual([]);
    slow.pass(1);
    expect(slow.did('close')).toMatchObject([{ code: 1000 }]);
    expect(slow.did('hangUp')).toHaveLength(1);
    expect(slow.state.phase).toBe('closed');
    expect(slow.timers).toEqual([]);
  });

  it.each([
    ['in the foreground', {}],
    ['in the background', { mode: 'background' }],
  ])('for good, with a run %s: the session ends, and the run delivers a message', (_, args) => {
    const agent = new TestAgent({ promotes: false });
    agent.startRun(args);
    agent.speak('and then?');
    agent.loseForGood();
    expect(agent.last('svc.run.promoted')).toMatchObject({ tier: 'durable' });
    expect(agent.last('voice.error')).toMatchObject({ error_code: 'provider_disconnected' });
    expect(agent.did('close')).toMatchObject([{ code: 1000 }]);
    expect([agent.did('abortRun'), agent.did('phoneMessage'), agent.timers]).toEqual([[], [], ['cap']]);
    agent.run(end);
    expect(agent.did('phoneMessage')).toMatchObject([{ text: ANSWER }]);
    expect([agent.state.phase, agent.timers]).toEqual(['closed', []]);
  });

  it('for good, with a task that waits: it runs, too', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.speak('more');
    agent.started('r2');
    agent.call('r2', 'c2', 'svc_run_task', { text: 'more', mode: 'background' });
    agent.done('r2');
    agent.loseForGood();
    agent.run(end);
    expect(agent.did('startRun').map(({ task }) => task.text)).toEqual(['look at the kitchen', 'more']);
    agent.run({ type: 'error', message: 'no luck' });
    expect(agent.did('phoneMessage').map(({ text }) => text)).toEqual([ANSWER, 'no luck']);
    expect([agent.state.phase, agent.timers]).toEqual(['closed', []]);
  });

  it('for good, with an answer due: it is rendered first', () => {
    const agent = new TestAgent();
    agent.startRun();
    agent.run(end);
    agent.say('playback.drained');
    agent.loseForGood();
    expect(agent.did('close')).toEqual([]);
    const { id } = agent.did('render')[0] as { id: number };
    agent.post({ type: 'renderEnded', id });
    expect(agent.types().slice(-2)).toEqual(['voice.response.done', 'voice.error']);
    expect(agent.did('close')).toHaveLength(1);
    expect(agent.did('phoneMessage')).toEqual([]);
  });

  it('for good, with a result held for the phone: it is sent as a message', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.post({ type: 'detached' });
    agent.run(end);
    agent.loseForGood();
    expect(agent.did('phoneMessage')).toMatchObject([{ text: ANSWER }]);
    expect(agent.did('close')).toHaveLength(1);
  });

  it('soon, as it says, is dialled a minute before, once nobody speaks', () => {
    const agent = new TestAgent();
    agent.provider({ type: 'ready', expiresIn: 30 * 60_000 });
    agent.pass(28 * 60_000);
    agent.speak('hello');
    agent.started('r1');
    agent.pass(2000);
    agent.pass(58_000);
    expect(agent.did('dial')).toEqual([]);
    agent.done('r1');
    expect(agent.last('voice.provider.reconnecting')).toMatchObject({ reason: 'session_limit' });
    const done = agent.effects.map(({ type }) => type).filter((type) => ['hangUp', 'dial'].includes(type));
    expect(done).toEqual(['hangUp', 'dial']);
    agent.dialled();
    expect(agent.timers).toEqual([]);
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

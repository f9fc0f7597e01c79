import { describe, expect, it } from 'vitest';
import { ANSWER, CONFIG, TestAgent } from './support.ts';

const end = { type: 'end', text: ANSWER };
const MiB = 1024 * 1024;

/** A foreground run whose result the provider was just asked to speak. */
function requested(config = {}): TestAgent {
  const agent = new TestAgent({ promotes: false, ...config });
  agent.startRun();
  agent.run(end);
  agent.say('playback.drained');
  return agent;
}

/** A background run that has just ended. */
function finished(config = {}): TestAgent {
  const agent = new TestAgent(config);
  agent.startBackgroundRun();
  agent.run(end);
  return agent;
}

const deltas = (agent: TestAgent): unknown[] =>
  agent.of('voice.response.delta').map(({ delta, delivery }) => [delivery, delta]);

describe('a delivery by the provider (contract 06 §7.2)', () => {
  it('is held back until it is known to be good, then streams', () => {
    const agent = requested();
    agent.started('d1');
    agent.text('d1', 'The kitchen ');
    agent.audio('d1');
    expect(agent.of('voice.response.started')).toHaveLength(1);
    agent.text('d1', 'thermostat reports 21 degrees');
    expect(agent.marked('voice.response.forced_summary_streaming')).toHaveLength(1);
    expect(agent.types().slice(-4)).toEqual([
      'voice.response.started',
      'voice.response.delta',
      'voice.output_audio.delta',
      'voice.response.delta',
    ]);
    agent.audio('d1');
    agent.done('d1');
    const own = agent.events.filter(({ response_id }) => response_id === 'd1');
    expect(own.every(({ delivery }) => delivery === 'forced_summary')).toBe(true);
    expect(agent.last('voice.response.done')).toMatchObject({ response_id: 'd1', delivery: 'forced_summary' });
    expect(agent.state.delivery.current).toBeNull();
    expect(agent.timers).toEqual([]);
  });

  it('is accepted at its end when it is short and good', () => {
    const agent = requested();
    agent.respond('d1', 'It is 21 degrees.');
    expect(agent.marked('voice.response.forced_summary_delivered')).toHaveLength(1);
    expect(agent.did('render')).toEqual([]);
    expect(agent.last('voice.response.delta')).toMatchObject({ delta: 'It is 21 degrees.' });
  });

  it.each([
    ['empty_summary', ''],
    ['acknowledgement_not_summary', 'One moment, let me check that for you.'],
    ['no_answer_overlap', 'Bananas are yellow.'],
  ])('is replaced when it is bad: %s', (reason, said) => {
    const agent = requested();
    agent.respond('d1', said);
    expect(agent.marked('voice.response.forced_summary_fallback')).toMatchObject([{ reason }]);
    expect(agent.events.filter(({ response_id }) => response_id === 'd1')).toEqual([]);
    expect(agent.did('render')).toMatchObject([{ text: ANSWER }]);
    expect(agent.heldResponses).toEqual([]);
  });

  it('without a transcript is fine when it was given the exact text', () => {
    for (const speaksExactText of [true, false]) {
      const agent = requested({ speaksExactText });
      agent.started('d1');
      agent.audio('d1');
      agent.done('d1');
      expect(agent.did('render')).toHaveLength(speaksExactText ? 0 : 1);
    }
  });

  it('is asked for again, once, when it calls a function instead', () => {
    const agent = requested();
    agent.started('d1');
    agent.call('d1', 'c8', 'svc_run_task', { text: 'again' });
    agent.done('d1');
    expect(agent.did('toolResult').at(-1)).toMatchObject({ callId: 'c8', outcome: { type: 'completed' } });
    expect(agent.did('startRun')).toHaveLength(1);
    expect(agent.last('voice.playback_drain.requested')).toMatchObject({ reason: 'forced_summary' });
    agent.say('playback.drained');
    expect(agent.requests()).toEqual(['user', 'delivery', 'delivery']);
    agent.started('d2');
    agent.call('d2', 'c9', 'svc_run_task', { text: 'again' });
    agent.done('d2');
    expect(agent.did('render')).toHaveLength(1);
  });

  it('suppresses responses that nobody asked for, with their calls, until the next request', () => {
    const agent = requested();
    agent.respond('d1', ANSWER);
    const { length } = agent.events;
    agent.started('unasked');
    agent.text('unasked', 'Also');
    agent.call('unasked', 'c5', 'svc_run_task', { text: 'x' });
    agent.done('unasked');
    expect(agent.events).toHaveLength(length);
    expect(agent.marked('voice.response.suppressed')).toHaveLength(1);
    agent.speak('thanks');
    agent.respond('r3', 'Any time.');
    agent.respond('r4', 'By the way');
    expect(agent.last('voice.response.delta')).toMatchObject({ delta: 'By the way' });
  });

  it('is bounded: 8 MiB are held back at most', () => {
    const agent = requested();
    agent.started('d1');
    for (let n = 0; n < 9; n++) agent.audio('d1', MiB);
    expect(agent.did('render')).toHaveLength(1);
    expect(agent.heldResponses).toEqual([]);
    expect(agent.commands()).toContain('cancel');
  });

  it.each([
    ['text', (agent: TestAgent) => agent.text('d1', ' x'.repeat(MiB))],
    ['small events', (agent: TestAgent) => Array.from({ length: 8192 }, () => agent.audio('d1', 2))],
  ])(
    'is bounded, also for %s',
    (_name, flood) => {
      const agent = requested();
      agent.started('d1');
      agent.audio('d1');
      for (let n = 0; n < 5; n++) flood(agent);
      expect(agent.did('render')).toHaveLength(1);
      expect(agent.heldResponses).toEqual([]);
    },
    60_000,
  );
});

describe('the fallback (contract 06 §7.3)', () => {
  const fallenBack = (): TestAgent => {
    const agent = requested();
    agent.respond('d1', '');
    return agent;
  };

  it('shows the text, renders it, and ends as one response', () => {
    const agent = fallenBack();
    const { id } = agent.did('render')[0] as { id: number };
    expect(agent.state.floor.speaker).toBe('relay_tts');
    agent.post({ type: 'rendered', id, pcm: new Uint8Array(4096), sampleRate: 24_000 });
    agent.post({ type: 'renderEnded', id, done: { metrics: { first_audio_ms: 5 }, audio_path: '' } });
    const own = agent.events.filter(({ delivery }) => delivery === 'fallback');
    expect(own.map(({ type }) => type)).toEqual([
      'voice.response.started',
      'voice.response.delta',
      'voice.output_audio.delta',
      'voice.output_audio.done',
      'voice.response.done',
    ]);
    expect(new Set(own.map(({ response_id }) => response_id)).size).toBe(1);
    expect(own.every(({ source }) => source === 'svc')).toBe(true);
    expect(own.at(-1)).toMatchObject({ final_text: ANSWER, metrics: { first_audio_ms: 5 } });
    expect(agent.state.floor.speaker).toBe('free');
  });

  it('ends with the response although rendering failed', () => {
    const agent = fallenBack();
    const { id } = agent.did('render')[0] as { id: number };
    agent.post({ type: 'renderEnded', id, error: 'no voice' });
    expect(agent.of('voice.error')).toEqual([]);
    expect(agent.last('voice.response.done')).toMatchObject({ delivery: 'fallback' });
  });

  it('ends although rendering never does', () => {
    const agent = fallenBack();
    agent.pass(60_000);
    expect(agent.did('stopRender')).toHaveLength(1);
    expect(agent.last('voice.response.done')).toMatchObject({ delivery: 'fallback' });
    expect(agent.timers).toEqual([]);
  });

  it('is mentioned to the provider in the next turn, and only then', () => {
    const agent = fallenBack();
    expect(agent.did('provider').map(({ command }) => command)).toContainEqual({
      type: 'context',
      role: 'assistant',
      text: ANSWER,
    });
    const { id } = agent.did('render')[0] as { id: number };
    agent.post({ type: 'renderEnded', id });
    agent.speak('thanks');
    expect(agent.did('request').at(-1)?.request.prompt).toEqual({
      type: 'delivered',
      request: 'look at the kitchen',
      answer: ANSWER,
    });
    agent.respond('r5', 'Any time.');
    agent.speak('bye');
    expect(agent.did('request').at(-1)?.request.prompt).toBeNull();
  });

  it('holds the floor: the provider is not heard meanwhile', () => {
    const agent = fallenBack();
    agent.started('r7');
    agent.audio('r7');
    expect(agent.of('voice.output_audio.delta')).toEqual([]);
  });

  it('follows when the provider refuses the request', () => {
    const agent = requested();
    agent.provider({ type: 'error', message: 'bad request' });
    expect(agent.did('render')).toHaveLength(1);
    expect(agent.of('voice.error')).toEqual([]);
  });

  it('gives way to a new turn of the user', () => {
    const agent = fallenBack();
    agent.speak('stop that');
    expect(agent.did('stopRender')).toHaveLength(1);
    expect(agent.last('voice.response.done')).toMatchObject({ delivery: 'fallback', cancelled: true });
    expect(agent.requests().at(-1)).toBe('user');
  });
});

describe('alarm and preemption (contract 06 §7.4)', () => {
  const visual = [['visual_only', ANSWER]];

  it('shows the text when nothing comes of a delivery', () => {
    const agent = requested();
    agent.pass(CONFIG.deliveryConfirm);
    expect(deltas(agent)).toEqual(visual);
    expect(agent.last('voice.response.started')).toMatchObject({ source: 'svc', delivery: 'visual_only' });
    expect(agent.last('voice.response.done')).not.toHaveProperty('source');
    agent.respond('d1', ANSWER);
    expect(deltas(agent)).toEqual(visual);
  });

  it('spares a delivery that streams', () => {
    const agent = requested();
    agent.started('d1');
    agent.text('d1', ANSWER);
    agent.pass(CONFIG.deliveryConfirm);
    agent.audio('d1');
    agent.pass(CONFIG.deliveryConfirm);
    agent.audio('d1');
    agent.done('d1');
    expect(deltas(agent)).toEqual([['forced_summary', ANSWER]]);
    expect(agent.of('voice.output_audio.delta')).toHaveLength(2);
  });

  it('of an old delivery does not touch the next', () => {
    const agent = requested();
    agent.pass(CONFIG.deliveryConfirm - 1);
    agent.respond('d1', ANSWER);
    agent.startRun({}, 'call-2');
    agent.run({ type: 'end', text: 'The garage door is open.' });
    agent.say('playback.drained');
    agent.pass(2);
    expect(agent.state.delivery.current?.phase).toBe('requested');
  });

  it('shows the text when the user speaks before anything was heard', () => {
    const agent = requested();
    agent.started('d1');
    agent.audio('d1');
    agent.speak('wait, what is the time?');
    expect(deltas(agent)).toEqual(visual);
    expect(agent.commands()).toContain('cancel');
    expect(agent.marked('voice.realtime_agent.delivery_preempted')).toHaveLength(1);
    expect(agent.requests().at(-1)).toBe('user');
    agent.done('d1', 'cancelled');
    agent.respond('r2', 'Three.');
    expect(deltas(agent)).toEqual([...visual, [undefined, 'Three.']]);
  });

  it('spares it when the utterance has no words', () => {
    const agent = requested();
    agent.speak('');
    expect(agent.requests()).toEqual(['user', 'delivery']);
    agent.respond('d1', ANSWER);
    expect(deltas(agent)).toEqual([['forced_summary', ANSWER]]);
  });
});

describe('a background result', () => {
  it('waits until the floor is free and the microphone quiet', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.speak('meanwhile');
    agent.started('r2');
    agent.audio('r2');
    agent.run(end);
    expect(agent.state.delivery.current?.phase).toBe('waiting_floor');
    agent.provider({ type: 'audioDone', responseId: 'r2' });
    agent.done('r2');
    expect(agent.requests().at(-1)).toBe('user');
    agent.pass(CONFIG.inputQuiet);
    expect(agent.requests().at(-1)).toBe('delivery');
  });

  it('waits for 12 s at most, then the active response is cancelled', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.speak('tell me a long story');
    agent.started('r2');
    agent.audio('r2');
    agent.run(end);
    agent.pass(CONFIG.floorWait - 1);
    expect(agent.requests().at(-1)).toBe('user');
    agent.pass(1);
    expect(agent.commands().at(-1)).toBe('cancel');
    expect(agent.requests().at(-1)).toBe('delivery');
  });

  it('is announced by the progress of the next run while it waits', () => {
    const agent = new TestAgent({ promotes: false, floorWait: 60_000 });
    agent.startBackgroundRun();
    agent.speak('sing');
    agent.started('r2');
    agent.run(end);
    agent.call('r2', 'c2', 'svc_run_task', { text: 'sing' });
    expect(agent.last('svc.run.progress')).toMatchObject({ floor: 'result_pending' });
    agent.audio('r2');
    agent.pass(CONFIG.runLead + CONFIG.progressInterval);
    expect(agent.last('svc.run.progress')).toMatchObject({ floor: 'provider_speaking' });
  });

  it('is held while the phone is away, and delivered when it is back', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.post({ type: 'detached' });
    agent.run(end);
    expect(agent.marked('voice.realtime_agent.result_deferred')).toHaveLength(1);
    agent.pass(20_000);
    expect(agent.requests()).not.toContain('delivery');
    agent.post({ type: 'attached' });
    expect(agent.requests().at(-1)).toBe('delivery');
    agent.respond('d1', ANSWER);
    expect(deltas(agent).at(-1)).toEqual(['forced_summary', ANSWER]);
    agent.post({ type: 'ended', why: 'closed' });
    expect(agent.did('phoneMessage')).toEqual([]);
  });

  it('becomes a message to the phone when the session ends without it', () => {
    const agent = new TestAgent({ chatSessionId: 'chat-1' });
    agent.startBackgroundRun();
    agent.post({ type: 'detached' });
    agent.run(end);
    agent.post({ type: 'ended', why: 'resume_ttl_expired' });
    expect(agent.did('phoneMessage')).toMatchObject([{ text: ANSWER, chatSessionId: 'chat-1' }]);
    expect(agent.timers).toEqual([]);
  });

  it('becomes one, too, when it was spoken into the void', () => {
    const agent = finished();
    agent.pass(CONFIG.inputQuiet);
    agent.post({ type: 'detached' });
    agent.respond('d1', ANSWER);
    agent.post({ type: 'ended', why: 'resume_ttl_expired' });
    expect(agent.did('phoneMessage')).toHaveLength(1);
  });

  it.each([
    ['only shown', { resultDelivery: 'visual_only' as const }, end],
    ['a failure', {}, { type: 'error', message: 'no such file' }],
  ])('becomes one, too, when it was %s while the phone was away', (_, config, last) => {
    const agent = new TestAgent(config);
    agent.startBackgroundRun();
    agent.post({ type: 'detached' });
    agent.run(last);
    agent.post({ type: 'ended', why: 'resume_ttl_expired' });
    expect(agent.did('phoneMessage')).toHaveLength(1);
  });

  it('becomes none when the provider was lost, and the phone left after it had the whole text', () => {
    const agent = new TestAgent();
    agent.startBackgroundRun();
    agent.run(end);
    agent.loseForGood();
    expect(deltas(agent).at(-1)).toEqual(['fallback', ANSWER]);
    agent.post({ type: 'detached' });
    expect(agent.state.phase).toBe('closed');
    expect(agent.did('phoneMessage')).toEqual([]);
  });

  it('of which the phone finds the events after a resume becomes none', () => {
    const agent = finished();
    agent.pass(CONFIG.inputQuiet);
    agent.post({ type: 'detached' });
    agent.respond('d1', ANSWER);
    agent.post({ type: 'attached' });
    agent.post({ type: 'ended', why: 'closed' });
    expect(agent.did('phoneMessage')).toEqual([]);
  });

  it('is shown as text when results are only to be seen', () => {
    const agent = finished({ resultDelivery: 'visual_only' });
    expect(deltas(agent).at(-1)).toEqual(['visual_only', ANSWER]);
    expect(agent.requests()).not.toContain('delivery');
    expect(agent.state.delivery.current).toBeNull();
  });

  it('lets a foreground result go first, and follows it', () => {
    const agent = new TestAgent({ promotes: false });
    agent.startBackgroundRun();
    agent.append();
    agent.run(end);
    expect(agent.state.delivery.current?.phase).toBe('waiting_floor');
    agent.say('input_audio.clear');
    agent.say('response.create', { text: 'and the garage?' });
    agent.started('r3');
    agent.call('r3', 'c3', 'svc_run_task', { text: 'garage' });
    agent.done('r3');
    agent.pass(CONFIG.runLead);
    agent.run({ type: 'end', text: 'The garage door is open.' });
    agent.say('playback.drained');
    agent.respond('d1', 'The garage door is open.');
    agent.pass(CONFIG.inputQuiet);
    agent.respond('d2', ANSWER);
    expect(deltas(agent).slice(-2)).toEqual([
      ['forced_summary', 'The garage door is open.'],
      ['forced_summary', ANSWER],
    ]);
  });
});

describe('an interruption (contract 06 §6.6)', () => {
  it('settles a delivery that speaks, without an alarm', () => {
    const agent = requested();
    agent.started('d1');
    agent.text('d1', ANSWER);
    agent.audio('d1');
    agent.say('response.cancel');
    expect(agent.state.delivery.current).toBeNull();
    expect(agent.of('voice.response.done')).toMatchObject([{ response_id: 'd1', cancelled: true }]);
    expect(agent.did('truncate').some(({ isCertain }) => isCertain)).toBe(true);
    agent.pass(100_000);
    expect(deltas(agent)).toHaveLength(1);
  });

  it('by noise offers the answer again, once', () => {
    const agent = requested();
    agent.started('d1');
    agent.text('d1', ANSWER);
    agent.audio('d1');
    agent.say('response.cancel');
    agent.speak('');
    agent.pass(CONFIG.inputQuiet);
    expect(agent.requests()).toEqual(['user', 'delivery', 'delivery']);
    agent.started('d2');
    agent.text('d2', ANSWER);
    agent.say('response.cancel');
    agent.speak('  ');
    agent.pass(CONFIG.inputQuiet);
    expect(agent.requests()).toEqual(['user', 'delivery', 'delivery', 'user']);
  });

  it('by noise, while the phone still plays an answer that was sent whole, offers it again', () => {
    const agent = requested();
    agent.respond('d1', ANSWER);
    agent.playback = { played: 0, isAllPlayed: false };
    agent.say('response.cancel');
    agent.playback = { played: 0, isAllPlayed: true };
    agent.speak('');
    agent.pass(CONFIG.inputQuiet);
    expect(agent.requests()).toEqual(['user', 'delivery', 'delivery']);
  });

  it('after everything was played does not', () => {
    const agent = requested();
    agent.respond('d1', ANSWER);
    agent.say('response.cancel');
    agent.speak('');
    agent.pass(CONFIG.inputQuiet);
    expect(agent.requests()).toEqual(['user', 'delivery']);
  });

  it('by noise at which the phone has stopped playing offers the answer again, once', () => {
    const agent = requested();
    agent.respond('d1', ANSWER);
    agent.playback = { played: 3, isAllPlayed: false };
    agent.speak('');
    expect(agent.did('truncate')).toMatchObject([{ isCertain: false }, { isCertain: true }]);
    agent.pass(CONFIG.inputQuiet);
    expect(agent.requests()).toEqual(['user', 'delivery', 'delivery']);
    agent.respond('d2', ANSWER);
    agent.speak('');
    agent.pass(CONFIG.inputQuiet);
    expect(agent.requests()).toEqual(['user', 'delivery', 'delivery', 'user']);
  });

  it('by noise through which the phone plays on changes nothing', () => {
    const agent = requested();
    agent.respond('d1', ANSWER);
    agent.playback = { played: 3, isAllPlayed: false };
    agent.append();
    agent.say('input_audio.commit');
    agent.playback = { played: 5, isAllPlayed: false };
    agent.provider({ type: 'transcriptFinal', text: '' });
    agent.pass(CONFIG.inputQuiet);
    expect(agent.requests()).toEqual(['user', 'delivery']);
  });

  it('by words at an answer that was not heard to its end keeps it for a respeak', () => {
    const agent = requested();
    agent.respond('d1', ANSWER);
    agent.playback = { played: 3, isAllPlayed: false };
    agent.speak('thanks');
    agent.respond('r2', 'Sure.');
    agent.say('svc.result.respeak');
    expect(agent.did('render')).toMatchObject([{ text: ANSWER }]);
  });

  it('by words lets the answer go, and keeps it for a respeak', () => {
    const agent = requested();
    agent.started('d1');
    agent.text('d1', ANSWER);
    agent.audio('d1');
    agent.say('response.cancel');
    agent.speak('never mind');
    agent.respond('r2', 'Fine.');
    agent.speak('');
    expect(agent.requests()).toEqual(['user', 'delivery', 'user']);
    agent.say('svc.result.respeak');
    expect(agent.did('render')).toMatchObject([{ text: ANSWER }]);
  });

  it('cancels a rendered answer', () => {
    const agent = requested();
    agent.respond('d1', '');
    agent.say('response.cancel');
    expect(agent.did('stopRender')).toHaveLength(1);
    expect(agent.of('voice.response.done').filter(({ cancelled }) => cancelled)).toHaveLength(1);
    expect(agent.state.floor.speaker).toBe('free');
  });
});

describe('respeak (contract 06 §7.5)', () => {
  it('renders the last background result again', () => {
    const agent = finished();
    agent.pass(CONFIG.inputQuiet);
    agent.respond('d1', ANSWER);
    agent.say('svc.result.respeak');
    expect(agent.last('voice.response.delta')).toMatchObject({ delta: ANSWER, delivery: 'respeak', source: 'svc' });
    const { id } = agent.did('render')[0] as { id: number };
    agent.post({ type: 'renderEnded', id });
    expect(agent.last('voice.response.done')).toMatchObject({ delivery: 'respeak' });
  });

  it('is not available without one', () => {
    const agent = new TestAgent();
    agent.say('svc.result.respeak');
    expect(agent.last('svc.result.respeak_unavailable')).toMatchObject({ source: 'svc' });
  });
});

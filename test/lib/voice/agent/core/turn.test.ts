import { describe, expect, it } from 'vitest';
import { NO_USAGE } from '../../../../../lib/voice/agent/usage.ts';
import { CONFIG, TestAgent } from './support.ts';

describe('microphone audio (contract 06 §6.1)', () => {
  it('is forwarded and acknowledged, with the bytes of the session', () => {
    const agent = new TestAgent();
    agent.append(320, { chunk_id: 1 });
    agent.append(640, { chunk_id: 2 });
    expect(agent.last('voice.input_audio.received')).toMatchObject({
      input_chunk_id: 2,
      byte_count: 640,
      total_bytes: 960,
      sample_rate: 16_000,
    });
    expect(agent.commands()).toEqual(['audio', 'audio']);
  });

  it('is not forwarded twice, however often a client repeats a chunk', () => {
    const agent = new TestAgent();
    agent.append(320, { chunk_id: 5 });
    agent.append(320, { chunk_id: 5 });
    agent.append(320, { chunk_id: 3 });
    expect(agent.commands()).toEqual(['audio']);
    expect(agent.last('voice.input_audio.received')).toMatchObject({ duplicate: true, total_bytes: 320 });
  });

  it.each([
    ['without audio', { audio_base64: undefined }, /audio_base64/],
    ['that is not base64', { audio_base64: 'no base64!' }, /audio_base64/],
    ['of half a sample', { audio_base64: 'AAAA' }, /16-bit/],
    ['below 8000 hertz', { sample_rate: 7999 }, /sample_rate/],
    ['above 96000 hertz', { sample_rate: 96_001 }, /sample_rate/],
  ])('%s is refused', (_, members, message) => {
    const agent = new TestAgent();
    agent.append(320, members);
    expect(agent.last('voice.error')?.message).toMatch(message);
    expect(agent.commands()).toEqual([]);
  });

  it('is refused in chunks over 1 MiB and beyond 32 MiB uncommitted', () => {
    const agent = new TestAgent();
    const MiB = 1024 * 1024;
    agent.append(MiB + 2);
    expect(agent.last('voice.error')?.message).toMatch(/1 MiB/);
    for (let n = 0; n < 32; n++) agent.append(MiB);
    expect(agent.of('voice.error')).toHaveLength(1);
    agent.append(2);
    expect(agent.last('voice.error')?.message).toMatch(/32 MiB/);
    agent.say('input_audio.clear');
    agent.append(2);
    expect(agent.of('voice.error')).toHaveLength(2);
  });
});

describe('an utterance', () => {
  it('is answered when its transcript arrives', () => {
    const agent = new TestAgent();
    agent.append();
    agent.say('input_audio.commit');
    expect(agent.requests()).toEqual([]);
    agent.provider({ type: 'transcriptDelta', text: 'hel' });
    agent.provider({ type: 'transcriptFinal', text: 'hello' });
    expect(agent.last('voice.input_transcript.final')).toMatchObject({ text: 'hello' });
    expect(agent.requests()).toEqual(['user']);
    expect(agent.timers).toEqual([]);
  });

  it('is answered once: after 8 s without a transcript, which is only shown when it comes', () => {
    const agent = new TestAgent();
    agent.append();
    agent.say('input_audio.commit');
    agent.pass(CONFIG.transcriptWait);
    expect(agent.requests()).toEqual(['user']);
    agent.provider({ type: 'transcriptFinal', text: 'late' });
    expect(agent.requests()).toEqual(['user']);
    expect(agent.last('voice.input_transcript.final')).toMatchObject({ text: 'late' });
  });

  it('without words asks for no answer while nothing goes on (§6.9)', () => {
    const agent = new TestAgent();
    for (const text of ['', '  ']) agent.speak(text);
    agent.pass(100_000);
    expect(agent.requests()).toEqual([]);
    expect(agent.of('voice.input_transcript.final')).toMatchObject([{ text: '' }, { text: '  ' }]);
    agent.speak('Hello');
    expect(agent.requests()).toEqual(['user']);
  });

  it('without words, after it has cut an answer, is answered once', () => {
    const agent = new TestAgent();
    agent.speak('Hello');
    agent.started('r1');
    agent.say('response.cancel');
    agent.speak('');
    expect(agent.requests()).toEqual(['user', 'user']);
    agent.respond('r2', 'Yes?');
    agent.speak('');
    expect(agent.requests()).toEqual(['user', 'user']);
  });

  it('is answered although its transcription failed', () => {
    const agent = new TestAgent();
    agent.append();
    agent.say('input_audio.commit');
    agent.provider({ type: 'transcriptFailed' });
    expect(agent.requests()).toEqual(['user']);
  });

  it('needs audio: a commit that is repeated after a resume is ignored', () => {
    const agent = new TestAgent();
    agent.append();
    agent.say('input_audio.commit');
    agent.say('input_audio.commit');
    expect(agent.commands()).toEqual(['audio', 'commit']);
  });

  it('is forgotten by clear', () => {
    const agent = new TestAgent();
    agent.append();
    agent.say('input_audio.clear');
    agent.say('input_audio.commit');
    expect(agent.commands()).toEqual(['audio', 'clear']);
    expect(agent.state.turn.input).toBe('idle');
  });

  it('is not answered after response.cancel', () => {
    const agent = new TestAgent();
    agent.append();
    agent.say('input_audio.commit');
    agent.say('response.cancel');
    agent.provider({ type: 'transcriptFinal', text: 'hello' });
    agent.pass(20_000);
    expect(agent.requests()).toEqual([]);
  });
});

describe('a text turn', () => {
  it('is shown, sent to the provider and answered', () => {
    const agent = new TestAgent();
    agent.say('response.create', { text: ` ${'x'.repeat(6000)}` });
    expect(agent.last('voice.input_transcript.final')).toMatchObject({ source: 'client_text', text: 'x'.repeat(5000) });
    expect(agent.commands()).toEqual(['text']);
    expect(agent.requests()).toEqual(['user']);
  });

  it.each([{}, { text: '' }, { text: 7 }])('needs text: %j', (members) => {
    const agent = new TestAgent();
    agent.say('response.create', members);
    expect(agent.last('voice.error')?.message).toMatch(/missing text/);
    expect(agent.requests()).toEqual([]);
  });
});

describe('one response in flight (contract 06 §6.1)', () => {
  it('is announced once, and ended once', () => {
    const agent = new TestAgent();
    agent.speak('hello');
    agent.started('r1');
    agent.started('r1');
    agent.text('r1', 'hi');
    agent.done('r1');
    agent.done('r1');
    agent.started('r1');
    expect(agent.types().filter((type) => String(type).startsWith('voice.response'))).toEqual([
      'voice.response.started',
      'voice.response.delta',
      'voice.response.done',
    ]);
  });

  it('makes the next one wait until it ends', () => {
    const agent = new TestAgent();
    agent.speak('one');
    agent.started('r1');
    agent.speak('two');
    expect(agent.requests()).toEqual(['user']);
    agent.done('r1');
    expect(agent.requests()).toEqual(['user', 'user']);
  });

  it('is cancelled when the next one has waited for 3 s', () => {
    const agent = new TestAgent();
    agent.speak('one');
    agent.started('r1');
    agent.audio('r1');
    agent.speak('two');
    agent.pass(2999);
    expect(agent.requests()).toEqual(['user']);
    agent.pass(1);
    expect(agent.requests()).toEqual(['user', 'user']);
    expect(agent.commands().at(-1)).toBe('cancel');
    expect(agent.last('voice.response.done')).toMatchObject({ response_id: 'r1', cancelled: true });
    expect(agent.did('truncate').at(-1)).toMatchObject({ isCertain: true });
  });

  it('frees its place at once when it is cancelled before it started', () => {
    const agent = new TestAgent();
    agent.speak('one');
    agent.say('response.cancel');
    agent.speak('two');
    expect(agent.requests()).toEqual(['user', 'user']);
  });

  it('drops whatever still comes of a cancelled response', () => {
    const agent = new TestAgent();
    agent.speak('one');
    agent.started('r1');
    agent.say('response.cancel');
    const { length } = agent.events;
    agent.text('r1', 'more');
    agent.audio('r1');
    agent.call('r1', 'c1', 'svc_run_task', { text: 'x' });
    agent.started('r1');
    agent.done('r1', 'cancelled');
    expect(agent.events).toHaveLength(length);
    expect(agent.state.turn.active).toBeNull();
  });

  it('is not mistaken for one that was cancelled before it started and begins nevertheless', () => {
    const agent = new TestAgent();
    agent.speak('one');
    agent.say('response.cancel');
    agent.speak('two');
    agent.started('late');
    agent.text('late', 'Answer to the first question');
    agent.done('late', 'cancelled');
    agent.started('r2');
    agent.text('r2', 'Answer to the second');
    agent.done('r2');
    expect(agent.of('voice.response.delta').map(({ delta }) => delta)).toEqual(['Answer to the second']);
    expect(agent.of('voice.response.started').map(({ response_id }) => response_id)).toEqual(['r2']);
    expect(agent.heldResponses).toEqual([]);
  });

  it('starts nothing by a function call while it may belong to a cancelled request', () => {
    for (const status of ['cancelled', 'completed']) {
      const agent = new TestAgent();
      agent.speak('delete it');
      agent.say('response.cancel');
      agent.speak('wait');
      agent.started('r1');
      agent.call('r1', 'c1', 'svc_run_task', { text: 'x' });
      agent.pass(100);
      expect(agent.of('svc.run.progress')).toEqual([]);
      agent.done('r1', status);
      expect(agent.of('svc.run.progress')).toHaveLength(status === 'completed' ? 1 : 0);
    }
  });

  it('is heard after a cancelled request that never began', () => {
    const agent = new TestAgent();
    agent.speak('one');
    agent.say('response.cancel');
    agent.speak('two');
    agent.respond('r2', 'Answer to the second');
    expect(agent.of('voice.response.delta').map(({ delta }) => delta)).toEqual(['Answer to the second']);
    expect(agent.last('voice.response.done')).toMatchObject({ response_id: 'r2' });
  });

  it('is asked for again when the provider had not yet cancelled the one before', () => {
    const agent = new TestAgent();
    agent.speak('one');
    agent.started('r1');
    agent.say('response.cancel');
    agent.speak('two');
    agent.provider({ type: 'notice', message: 'Conversation already has an active response in progress' });
    expect(agent.requests()).toEqual(['user', 'user']);
    agent.done('r1', 'cancelled');
    expect(agent.requests()).toEqual(['user', 'user', 'user']);
    agent.respond('r2', 'here');
    expect(agent.last('voice.response.delta')).toMatchObject({ delta: 'here' });
  });

  it('ends with the sum of what the conversation has used', () => {
    const agent = new TestAgent();
    agent.respond('r1', 'free');
    expect(agent.last('voice.response.done')).not.toHaveProperty('usage');
    for (const id of ['r2', 'r3']) {
      agent.started(id);
      agent.provider({ type: 'usage', usage: { ...NO_USAGE, input_audio_tokens: 7, output_audio_tokens: 1 } });
      agent.done(id);
    }
    expect(agent.last('voice.response.done')?.usage).toEqual({
      ...NO_USAGE,
      input_audio_tokens: 14,
      output_audio_tokens: 2,
    });
  });

  it('may be one that nobody asked for', () => {
    const agent = new TestAgent();
    agent.respond('r1', 'By the way');
    expect(agent.last('voice.response.delta')).toMatchObject({ delta: 'By the way' });
  });

  it('is not ended for the client when it called a function', () => {
    const agent = new TestAgent();
    agent.speak('status?');
    agent.started('r1');
    agent.call('r1', 'c1', 'svc_get_status');
    agent.done('r1');
    expect(agent.of('voice.response.done')).toEqual([]);
    agent.say('playback.drained');
    agent.respond('r2', 'Nothing is running.');
    expect(agent.of('voice.response.done')).toHaveLength(1);
    expect(agent.requests()).toEqual(['user', 'tool_followup']);
  });

  it('tells the client of a response that failed', () => {
    const agent = new TestAgent();
    agent.speak('hello');
    agent.started('r1');
    agent.provider({ type: 'responseDone', responseId: 'r1', status: 'failed', message: 'overloaded' });
    expect(agent.last('voice.error')).toMatchObject({ message: 'overloaded', provider: 'openai_realtime' });
    expect(agent.last('voice.response.done')).toMatchObject({ response_id: 'r1' });
  });
});

describe('an answer that the provider cuts (contract 06 §6.9)', () => {
  it.each(['incomplete', 'failed'])('is ended with its reason after speech began: %s', (status) => {
    const agent = new TestAgent();
    agent.speak('hello');
    agent.started('r1');
    agent.audio('r1');
    agent.provider({ type: 'responseDone', responseId: 'r1', status, reason: 'max_output_tokens', message: 'cut' });
    expect(agent.last('voice.response.done')).toMatchObject({
      response_id: 'r1',
      incomplete: true,
      reason: 'max_output_tokens',
    });
    expect(agent.of('voice.error')).toEqual([]);
  });

  it('is an error before speech', () => {
    const agent = new TestAgent();
    agent.speak('hello');
    agent.started('r1');
    agent.provider({ type: 'responseDone', responseId: 'r1', status: 'incomplete', message: 'filtered' });
    expect(agent.last('voice.error')).toMatchObject({ message: 'filtered' });
    expect(agent.last('voice.response.done')).not.toHaveProperty('incomplete');
  });

  it('comes with advice when a rate limit is met, and the session stays', () => {
    const agent = new TestAgent();
    agent.speak('hello');
    agent.started('r1');
    agent.provider({ type: 'responseDone', responseId: 'r1', status: 'failed', message: 'slow down', retryAfter: 7 });
    expect(agent.last('voice.error')).toMatchObject({ message: 'slow down', retry_after_s: 7 });
    agent.provider({ type: 'error', message: 'slow down', retryAfter: 9 });
    expect(agent.last('voice.error')).toMatchObject({ retry_after_s: 9 });
    expect(agent.did('close')).toEqual([]);
    agent.speak('again');
    expect(agent.requests()).toEqual(['user', 'user']);
  });

  it('is not given by a model whose settings were refused: the session ends', () => {
    const agent = new TestAgent();
    agent.speak('hello');
    agent.started('r1');
    agent.provider({ type: 'settingsRefused', setting: 'session.tools', message: 'bad tools' });
    expect(agent.last('voice.response.done')).toMatchObject({ response_id: 'r1', cancelled: true });
    expect(agent.last('voice.error')).toMatchObject({ message: 'bad tools', setting: 'session.tools' });
    expect(agent.did('close')).toMatchObject([{ code: 1011 }]);
    agent.audio('r1');
    expect(agent.of('voice.output_audio.delta')).toEqual([]);
  });
});

describe('the floor (contract 06 §8)', () => {
  it('is taken with the first audio, and free again after the last', () => {
    const agent = new TestAgent();
    agent.speak('hello');
    agent.started('r1');
    agent.text('r1', 'hi');
    expect(agent.state.floor.speaker).toBe('free');
    agent.audio('r1');
    expect(agent.state.floor.speaker).toBe('provider');
    agent.provider({ type: 'audioDone', responseId: 'r1' });
    expect(agent.state.floor.speaker).toBe('free');
    agent.audio('r1');
    agent.done('r1');
    expect(agent.state.floor.speaker).toBe('free');
  });
});

describe('response.cancel', () => {
  it('stops the provider, empties the microphone buffer and ends the response', () => {
    const agent = new TestAgent();
    agent.speak('hello');
    agent.started('r1');
    agent.audio('r1');
    agent.say('response.cancel');
    expect(agent.commands().slice(-2).sort()).toEqual(['cancel', 'clear']);
    expect(agent.of('voice.response.done')).toMatchObject([{ response_id: 'r1', cancelled: true }]);
    expect(agent.did('truncate').some(({ isCertain }) => isCertain)).toBe(true);
  });

  it('is answered also when there is nothing to cancel', () => {
    const agent = new TestAgent();
    agent.say('response.cancel');
    expect(agent.commands()).toEqual(['cancel', 'clear']);
    expect(agent.of('voice.response.done')).toMatchObject([{ response_id: null, cancelled: true }]);
    expect(agent.of('svc.run.cancelled')).toEqual([]);
  });
});

it('refuses messages of an unknown type', () => {
  const agent = new TestAgent();
  agent.say('voice.whistle');
  expect(agent.last('voice.error')?.message).toBe('unsupported message type: voice.whistle');
});

it('refuses a message whose type is a deep list', () => {
  const agent = new TestAgent();
  const type = JSON.parse('['.repeat(5000) + ']'.repeat(5000));
  agent.say(type);
  expect(agent.last('voice.error')?.message).toBe('unsupported message type: a list');
});

it('records notices of the provider, and shows its errors', () => {
  const agent = new TestAgent();
  agent.provider({ type: 'notice', message: 'no active response' });
  expect(agent.events).toEqual([]);
  agent.provider({ type: 'error', message: 'OpenAI Realtime error: bad' });
  expect(agent.last('voice.error')).toMatchObject({ message: 'OpenAI Realtime error: bad' });
});

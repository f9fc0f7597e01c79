import { describe, expect, it } from 'vitest';
import { AGENT_RULES, LAB_RULES, OUTPUT_RULES } from '../../../../lib/voice/socket/rules.ts';
import { createTestSession, TTL } from './support.ts';

const busy = (session: ReturnType<typeof createTestSession>) => session.step({ type: 'activity', activity: 'busy' });

/** A session whose owner `a` has started a render. */
function rendering(rules = OUTPUT_RULES) {
  const session = createTestSession(rules);
  session.open('a');
  busy(session);
  return session;
}

describe('the owner of a voice output session (contract 05 §12)', () => {
  it('gets ready on attach and once more for session.start', () => {
    const session = createTestSession();
    session.open('a');
    session.say('a', { type: 'session.start' });
    expect(session.from('a')).toEqual([
      {
        type: 'voice.session.ready',
        event_id: 1,
        at_ms: 0,
        session_id: 'session-1',
        provider: 'stub',
        last_event_id: 0,
        last_audio_event_id: 0,
      },
      {
        type: 'voice.session.ready',
        event_id: 2,
        at_ms: 0,
        session_id: 'session-1',
        provider: 'stub',
        last_event_id: 1,
        last_audio_event_id: 0,
      },
    ]);
  });

  it('is told by ready what was sent, not what it has acknowledged', () => {
    const session = createTestSession();
    session.open('a');
    session.publish({ type: 'voice.response.started' });
    for (const label of ['one', 'two']) session.audio(label);
    session.say('a', { type: 'client.ack', event_id: 2, audio_event_id: 1 });
    session.say('a', { type: 'session.start' });
    expect(session.from('a').at(-1)).toMatchObject({
      type: 'voice.session.ready',
      event_id: 5,
      last_event_id: 4,
      last_audio_event_id: 2,
    });
  });

  it('keeps its socket open after bad input', () => {
    const session = createTestSession();
    session.open('a');
    session.step({ type: 'binary', socket: 'a' });
    session.step({ type: 'text', socket: 'a', text: '{' });
    session.say('a', [1]);
    expect(
      session
        .from('a')
        .slice(1)
        .map(({ message }) => message),
    ).toEqual(['unsupported websocket frame', 'invalid JSON message', 'message must be a JSON object']);
    expect(session.codeOf('a')).toBeUndefined();
  });

  it('answers a long message of too much structure without parsing it', () => {
    const session = createTestSession();
    session.open('a');
    session.step({ type: 'text', socket: 'a', text: `${'['.repeat(50_000)}${']'.repeat(50_000)}` });
    session.say('a', { type: 'response.create', text: 'A'.repeat(2 * 1024 * 1024) });
    expect(session.from('a').slice(1)).toMatchObject([{ type: 'voice.error', message: 'invalid JSON message' }]);
    expect(session.effects.filter(({ type }) => type === 'deliver')).toHaveLength(1);
  });

  it('has every other message delivered, in order', () => {
    const session = createTestSession();
    session.open('a');
    session.say('a', { type: 'response.create', text: 'hello' });
    session.say('a', { type: 'nonsense' });
    expect(session.effects.filter(({ type }) => type === 'deliver')).toEqual([
      { type: 'deliver', message: { type: 'response.create', text: 'hello' } },
      { type: 'deliver', message: { type: 'nonsense' } },
    ]);
  });

  it.each([
    ['before any response.create', 'idle', 1006, 'closed'],
    ['before any response.create, with 1000', 'idle', 1000, 'closed'],
    ['while it renders', 'busy', 1006, 'detached'],
    ['while it renders, with 1000', 'busy', 1000, 'detached'],
    ['after the render, with 1000', 'done', 1000, 'closed'],
    ['after the render, otherwise', 'done', 1006, 'detached'],
  ] as const)('whose socket ends %s', (_when, activity, code, phase) => {
    const session = createTestSession();
    session.open('a');
    session.step({ type: 'activity', activity });
    session.lose('a', code);
    expect(session.machine.phase).toBe(phase);
    expect(session.ended()).toBe(phase === 'closed' ? 'closed' : undefined);
  });

  it('closes the session with session.close', () => {
    const session = rendering();
    session.open('b');
    session.say('a', { type: 'session.close' });
    expect([session.codeOf('a'), session.codeOf('b')]).toEqual([1000, 4008]);
    expect(session.from('b')).toMatchObject([{ type: 'voice.session.resume_failed', reason: 'session_closed' }]);
    expect(session.ended()).toBe('closed');
    expect(session.machine.deadline).toBeUndefined();
  });

  it('detaches with a wrong token of its own, which ends nothing else', () => {
    const session = createTestSession();
    session.open('a');
    session.say('a', { type: 'session.start', resume_token: 'wrong' });
    expect(session.codeOf('a')).toBe(4003);
    expect(session.machine.phase).toBe('detached');
    session.lose('a', 4003);
    session.open('b');
    session.resume('b');
    expect(session.machine.phase).toBe('attached');
  });
});

describe('candidates (contract 05 §12)', () => {
  it('get no events, and neither opening nor losing one disturbs the owner', () => {
    const session = rendering();
    const before = session.types('a');
    session.open('b');
    session.lose('b');
    session.audio('1');
    expect(session.from('b')).toEqual([]);
    expect(session.types('a')).toEqual([...before, 'voice.audio.delta']);
    expect(session.machine.phase).toBe('attached');
  });

  it('take over with the right token: 4000 for the previous socket, whose end then means nothing', () => {
    const session = rendering();
    session.audio('1');
    session.open('b');
    session.resume('b', { last_event_id: 1 });
    session.lose('a', 1000);
    session.audio('2');
    expect(session.codeOf('a')).toBe(4000);
    expect(session.machine.phase).toBe('attached');
    expect(session.from('b')).toMatchObject([
      {
        type: 'voice.session.resumed',
        event_id: 3,
        last_event_id: 1,
        last_audio_event_id: 0,
        last_played_audio_event_id: 0,
      },
      { type: 'voice.replay.started', event_id: 4, from_event_id: 1, from_audio_event_id: 0, replay_event_count: 1 },
      { type: 'voice.audio.delta', event_id: 2, audio_event_id: 1, label: '1', replayed: true },
      { type: 'voice.replay.done', event_id: 5, replay_event_count: 1 },
      { type: 'voice.audio.delta', event_id: 6, audio_event_id: 2, label: '2' },
    ]);
    expect(session.from('b').at(-1)).not.toHaveProperty('replayed');
  });

  it('claim with session.start too', () => {
    const session = rendering();
    session.open('b');
    session.say('b', { type: 'session.start', resume_token: 'the-right-token' });
    expect(session.types('b')[0]).toBe('voice.session.resumed');
  });

  it.each([
    ['a wrong token', { type: 'session.resume', resume_token: 'wrong' }, 'invalid_resume_token', 4003],
    ['no token', { type: 'session.resume' }, 'invalid_resume_token', 4003],
    ['a token that is no text', { type: 'session.resume', resume_token: 7 }, 'invalid_resume_token', 4003],
    ['session.start without a token', { type: 'session.start' }, 'invalid_resume_token', 4003],
    ['another message', { type: 'response.create', text: 'x' }, 'session_not_claimed', 4009],
    ['session.close', { type: 'session.close' }, 'session_not_claimed', 4009],
    ['an unknown message', { type: 'x' }, 'session_not_claimed', 4009],
  ])('are closed after %s, which changes nothing else', (_name, message, reason, code) => {
    const session = rendering();
    session.lose('a');
    const { deadline } = session.machine;
    session.open('b');
    session.say('b', message);
    expect(session.from('b')).toMatchObject([{ type: 'voice.session.resume_failed', session_id: 'session-1', reason }]);
    expect(session.codeOf('b')).toBe(code);
    expect(session.machine.phase).toBe('detached');
    expect(session.machine.deadline).toBe(deadline);
    session.open('c');
    session.resume('c');
    expect(session.machine.phase).toBe('attached');
    expect(session.types('c')).not.toContain('voice.session.resume_failed');
  });

  it('are told of malformed frames without a record', () => {
    const session = rendering();
    session.open('b');
    session.step({ type: 'binary', socket: 'b' });
    session.step({ type: 'text', socket: 'b', text: 'no JSON' });
    session.say('b', null);
    expect(session.types('b')).toEqual(['voice.error', 'voice.error', 'voice.error']);
    expect(session.codeOf('b')).toBeUndefined();
    session.resume('b', { last_event_id: 1 });
    expect(session.from('b').at(-1)).toMatchObject({ type: 'voice.replay.done', replay_event_count: 0 });
    expect(session.types('a')).toEqual(['voice.session.ready']);
  });

  it('have 10 s to claim, and are four at most', () => {
    const session = rendering();
    for (const socket of ['b', 'c', 'd', 'e', 'f']) session.open(socket);
    expect(session.codeOf('f')).toBe(4009);
    session.pass(9_999);
    expect(session.codeOf('b')).toBeUndefined();
    session.pass(1);
    for (const socket of ['b', 'c', 'd', 'e']) expect(session.codeOf(socket)).toBe(4009);
    expect(session.machine.phase).toBe('attached');
    expect(session.machine.deadline).toBeUndefined();
  });
});

describe('a detached session (contract 05 §12)', () => {
  it('records that it was detached, and renders on', () => {
    const session = rendering();
    session.lose('a');
    session.audio('1');
    session.open('b');
    expect(session.from('b')).toEqual([]);
    session.resume('b');
    expect(session.types('b')).toEqual([
      'voice.session.resumed',
      'voice.replay.started',
      'voice.session.ready',
      'voice.session.detached',
      'voice.audio.delta',
      'voice.replay.done',
    ]);
    expect(session.from('b')[3]).toMatchObject({
      reason: 'websocket_disconnected',
      resume_ttl_ms: TTL,
      replayed: true,
    });
  });

  it('ends when its time is over', () => {
    const session = rendering();
    session.lose('a');
    session.pass(TTL - 1);
    expect(session.machine.phase).toBe('detached');
    session.pass(1);
    expect(session.ended()).toBe('resume_ttl_expired');
    session.open('b');
    expect(session.codeOf('b')).toBe(4008);
  });

  it('turns down a claim that comes too late, even before the timer has fired', () => {
    const session = rendering();
    session.lose('a');
    session.pass(TTL - 1000);
    session.open('b');
    session.pass(1000);
    session.resume('b');
    expect(session.from('b')).toMatchObject([{ type: 'voice.session.resume_failed', reason: 'resume_expired' }]);
    expect(session.codeOf('b')).toBe(4008);
    expect(session.ended()).toBe('resume_expired');
  });

  it('does not count the time in which it was attached again', () => {
    const session = rendering();
    session.lose('a');
    session.pass(TTL - 1);
    session.open('b');
    session.resume('b');
    session.pass(TTL);
    expect(session.machine.phase).toBe('attached');
    session.lose('b');
    session.pass(TTL - 1);
    expect(session.machine.phase).toBe('detached');
  });
});

describe('cursors and replay (contract 05 §12)', () => {
  it('never fall, count anything but integers as 0, and never pass what was sent', () => {
    const session = rendering();
    session.audio('1');
    session.audio('2');
    session.say('a', { type: 'client.ack', event_id: 2, audio_event_id: 1, played_audio_event_id: 1.5 });
    session.say('a', { type: 'client.ack', event_id: '9', audio_event_id: -3, played_audio_event_id: null });
    expect(session.machine.cursors).toEqual({ event: 2, audio: 1, played: 0, input: 0 });
    session.open('b');
    session.resume('b', { last_event_id: 1, last_audio_event_id: 0 });
    expect(session.from('b').filter(({ replayed }) => replayed)).toMatchObject([{ label: '2' }]);
    session.say('b', { type: 'client.ack', event_id: 1e9, audio_event_id: 1e9 });
    session.audio('3');
    session.open('c');
    session.resume('c');
    expect(session.from('c').filter(({ replayed }) => replayed)).toMatchObject([{ label: '3' }]);
  });

  it('replays audio by the further of heard and played, the rest by event_id', () => {
    const session = rendering();
    session.audio('1');
    session.publish({ type: 'voice.audio.done' });
    session.audio('2');
    session.lose('a');
    session.open('b');
    session.resume('b', { last_event_id: 2, last_audio_event_id: 0, last_played_audio_event_id: 1 });
    expect(session.from('b').filter(({ replayed }) => replayed)).toMatchObject([
      { type: 'voice.audio.done', event_id: 3 },
      { label: '2', event_id: 4 },
      { type: 'voice.session.detached', event_id: 5 },
    ]);
  });

  it('stops the producer while 8 MiB wait, and loses nothing', () => {
    const session = rendering();
    session.lose('a');
    let count = 0;
    while (!session.effects.some((effect) => effect.type === 'producer')) session.audio(String(++count), 60_000);
    const { bytes } = session.machine.buffered;
    expect(bytes).toBeLessThanOrEqual(8 * 1024 * 1024);
    expect(bytes).toBeGreaterThan(7 * 1024 * 1024);
    session.open('b');
    session.resume('b');
    expect(session.from('b').filter(({ label }) => label)).toHaveLength(count);
    expect(session.from('b').find(({ type }) => type === 'voice.replay.started')).not.toHaveProperty('gap');
    expect(session.effects.filter((effect) => effect.type === 'producer')).toEqual([
      { type: 'producer', paused: true },
    ]);
    session.say('b', { type: 'client.ack', audio_event_id: Math.floor(count / 2) });
    expect(session.effects.at(-1)).toEqual({ type: 'producer', paused: false });
  });

  it('keeps within its bounds when bad input comes without end, and owns up to the gap', () => {
    const session = rendering();
    session.audio('1');
    for (let count = 0; count < 5000; count++) session.step({ type: 'text', socket: 'a', text: '{' });
    expect(session.machine.buffered.events).toBeLessThanOrEqual(4096);
    session.open('b');
    session.resume('b', { last_event_id: 1 });
    expect(session.from('b')[1]).toMatchObject({ type: 'voice.replay.started', gap: true });
    expect(session.from('b').filter(({ label }) => label)).toMatchObject([{ label: '1' }]);
  });
});

describe('the other rules', () => {
  it('waits five minutes for the first socket', () => {
    const session = createTestSession();
    session.pass(299_999);
    expect(session.machine.phase).toBe('created');
    session.pass(1);
    expect(session.ended()).toBe('resume_ttl_expired');
  });

  it('closes every socket with the code of an end from outside', () => {
    const session = rendering();
    session.open('b');
    session.step({ type: 'close', code: 4001, reason: 'session revoked', why: 'closed' });
    expect([session.codeOf('a'), session.codeOf('b')]).toEqual([4001, 4001]);
    expect(session.from('b')).toEqual([]);
  });

  it('has no ids, no resume and no candidates in the lab: a second socket replaces the first (contract 05 §14)', () => {
    const session = rendering(LAB_RULES);
    session.open('b');
    expect(session.codeOf('a')).toBe(4000);
    expect(session.from('b')).toEqual([
      { type: 'voice.session.ready', at_ms: 0, session_id: 'session-1', provider: 'stub' },
    ]);
    session.lose('a');
    expect(session.machine.phase).toBe('attached');
    session.say('b', { type: 'session.resume', resume_token: 'the-right-token' });
    expect(session.effects.at(-1)).toMatchObject({ type: 'deliver' });
    session.audio('1');
    expect(session.machine.buffered).toEqual({ events: 0, bytes: 0 });
    session.lose('b');
    expect(session.ended()).toBe('closed');
  });
});

describe('a session that connects to its provider first (contract 06 §4.1)', () => {
  const connecting = () => {
    const session = createTestSession(AGENT_RULES);
    session.open('a');
    return session;
  };

  it('leaves the owner unread until it is ready, then handles what came meanwhile', () => {
    const session = connecting();
    expect(session.effects).toEqual([{ type: 'reading', socket: 'a', paused: true }, { type: 'connect' }]);
    session.say('a', { type: 'session.start' });
    session.say('a', { type: 'response.create', text: 'hi' });
    expect(session.from('a')).toEqual([]);
    session.step({ type: 'connected' });
    expect(session.types('a')).toEqual(['voice.session.ready']);
    expect(session.effects.slice(2).map(({ type }) => type)).toEqual(['reading', 'made', 'send', 'deliver']);
  });

  it('honours a claim made meanwhile once it is ready', () => {
    const session = connecting();
    session.open('b');
    session.resume('b');
    session.pass(12_000);
    expect(session.from('b')).toEqual([]);
    session.step({ type: 'connected' });
    expect(session.codeOf('a')).toBe(4000);
    expect(session.types('b')).toEqual([
      'voice.session.resumed',
      'voice.replay.started',
      'voice.session.ready',
      'voice.replay.done',
    ]);
    expect(session.from('b')[0]).toMatchObject({ last_input_chunk_id: 0 });
  });

  it('stays attachable when the provider cannot be reached', () => {
    const session = connecting();
    session.step({ type: 'connect-failed', error: { type: 'voice.error', message: 'unreachable', provider: 'x' } });
    expect(session.from('a')).toMatchObject([{ type: 'voice.error', provider: 'x' }]);
    expect(session.codeOf('a')).toBe(1000);
    session.open('b');
    expect(session.effects.at(-1)).toEqual({ type: 'connect' });
  });

  it('connects again for a claim that comes after a failure', () => {
    const failed = { type: 'connect-failed', error: { type: 'voice.error', message: 'unreachable' } } as const;
    const session = connecting();
    session.open('b');
    session.step(failed);
    session.resume('b');
    expect(session.effects.at(-1)).toEqual({ type: 'connect' });
    expect(session.machine.phase).toBe('connecting');
    expect(session.machine.deadline).toBeUndefined();
    expect(session.from('b')).toEqual([]);
    session.open('c');
    session.step(failed);
    expect(session.types('b')).toEqual(['voice.error']);
    expect(session.codeOf('b')).toBe(1000);
    session.resume('c');
    session.step({ type: 'connected' });
    expect(session.machine.phase).toBe('attached');
    expect(session.types('c').slice(0, 2)).toEqual(['voice.session.resumed', 'voice.replay.started']);
    expect(session.types('c').at(-1)).toBe('voice.replay.done');
  });

  it('detaches when its owner was lost meanwhile', () => {
    const session = connecting();
    session.lose('a');
    session.step({ type: 'connected' });
    expect(session.machine.phase).toBe('detached');
  });

  it('closes an owner that sends more than 4 MiB too early', () => {
    const session = connecting();
    for (let count = 0; count < 5; count++)
      session.step({ type: 'text', socket: 'a', text: `"${'x'.repeat(1 << 20)}"` });
    expect(session.codeOf('a')).toBe(1013);
  });

  it.each([
    [1000, 'session ended', 'idle', 'closed'],
    [1000, 'done', 'idle', 'closed'],
    [1000, 'done', 'busy', 'detached'],
    [1000, '', 'idle', 'detached'],
    [1006, 'done', 'idle', 'detached'],
  ] as const)('after %s %j while %s is %s', (code, reason, activity, phase) => {
    const session = connecting();
    session.step({ type: 'connected' });
    session.step({ type: 'activity', activity });
    session.lose('a', code, reason);
    expect(session.machine.phase).toBe(phase);
  });

  it('keeps the last 256 events and says when a needed one is gone', () => {
    const session = connecting();
    session.step({ type: 'connected' });
    for (let count = 1; count <= 300; count++) session.audio(String(count));
    expect(session.machine.buffered.events).toBe(256);
    session.lose('a');
    session.open('b');
    session.resume('b', { last_event_id: 300, last_audio_event_id: 40 });
    expect(session.from('b')[1]).toMatchObject({ gap: true });
    session.open('c');
    session.resume('c', { last_event_id: 301, last_audio_event_id: 300 });
    expect(session.from('c')[1]).not.toHaveProperty('gap');
  });

  it('takes what was played from another message too', () => {
    const session = connecting();
    session.step({ type: 'connected' });
    for (const label of ['1', '2', '3']) session.audio(label);
    for (const audioEventId of [2, 1, 99.5]) session.step({ type: 'played', audioEventId });
    expect(session.machine.cursors).toEqual({ event: 0, audio: 0, played: 2, input: 0 });
    expect(session.machine.buffered.events).toBe(2);
  });

  it('waits longer for a claim while a run goes on, and shorter after it', () => {
    const session = connecting();
    session.step({ type: 'connected' });
    session.step({ type: 'resume-ttl', ttl: 600_000 });
    session.lose('a');
    session.pass(300_000);
    expect(session.machine.phase).toBe('detached');
    session.step({ type: 'resume-ttl', ttl: TTL });
    session.pass(TTL);
    expect(session.ended()).toBe('resume_ttl_expired');
  });
});

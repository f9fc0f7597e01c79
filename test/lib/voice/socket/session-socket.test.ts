import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../../../lib/kit/json.ts';
import { sha256 } from '../../../../lib/kit/sha256.ts';
import { AGENT_RULES, OUTPUT_RULES, type Rules } from '../../../../lib/voice/socket/rules.ts';
import { SessionSocket, type SessionSocketDeps } from '../../../../lib/voice/socket/session-socket.ts';
import { createTestClock } from '../../../support/clock.ts';
import { FakeTransport, TOKEN, TTL } from './support.ts';

const MiB = 1024 * 1024;

function setUp(rules: Rules = OUTPUT_RULES, overrides: Partial<SessionSocketDeps> = {}) {
  const clock = createTestClock();
  const delivered: JsonObject[] = [];
  const ended: string[] = [];
  const socket = new SessionSocket({
    rules,
    sessionId: 'session-1',
    tokenHash: sha256(TOKEN),
    resumeTtl: TTL,
    clock,
    ready: () => ({}),
    deliver: (message) => delivered.push(message),
    made: () => {},
    ended: (why) => ended.push(why),
    failed: (error) => {
      throw error;
    },
    ...overrides,
  });
  return {
    clock,
    socket,
    delivered,
    ended,
    open(id: string, credit?: number) {
      const transport = new FakeTransport(id, credit);
      transport.events = socket.open(transport);
      return transport;
    },
    audio: (bytes: number) => socket.publishAudio({ type: 'voice.audio.delta', audio_base64: 'A'.repeat(bytes) }),
  };
}

const settled = async (promise: Promise<void> | undefined): Promise<boolean> => {
  let isDone = promise === undefined;
  void promise?.then(() => {
    isDone = true;
  });
  await new Promise((resolve) => setImmediate(resolve));
  return isDone;
};

describe('timers', () => {
  it('owns one per deadline and one for pings, and frees both with the session', () => {
    const { clock, socket, ended } = setUp();
    expect(clock.pending).toBe(2);
    clock.advance(299_999);
    expect(ended).toEqual([]);
    clock.advance(1);
    expect(ended).toEqual(['resume_ttl_expired']);
    expect(clock.pending).toBe(0);
    expect(socket.isOver).toBe(true);
  });

  it('detaches and expires, and closes a candidate that does not claim', () => {
    const { clock, socket, open, ended } = setUp();
    const a = open('a');
    socket.setActivity('busy');
    a.events.closed({ code: 1006, reason: '' });
    clock.advance(TTL - 10_000);
    const b = open('b');
    clock.advance(9_999);
    expect(b.end).toBeUndefined();
    expect(ended).toEqual([]);
    clock.advance(1);
    expect(b.end).toMatchObject({ code: 4009 });
    expect(ended).toEqual(['resume_ttl_expired']);
    expect(clock.pending).toBe(0);
  });
});

describe('keep-alive', () => {
  it('pings every 20 s and drops a socket that shows no sign of life for 10 s', async () => {
    const { clock, open, socket } = setUp();
    const a = open('a');
    socket.setActivity('busy');
    for (let round = 1; round <= 3; round++) {
      await clock.advanceAsync(10_000);
      expect(a.pings).toBe(round);
      a.bytesReceived += 6;
      await clock.advanceAsync(10_000);
      expect(a.end).toBeUndefined();
    }
    a.drain();
    await clock.advanceAsync(10_000);
    expect(a.end).toBeUndefined();
    await clock.advanceAsync(10_000);
    expect(a.end).toEqual({ code: 1006 });
    expect(socket.isAttached).toBe(false);
    expect(socket.isOver).toBe(false);
  });

  it('takes audio that leaves for a sign of life: the pong may wait behind it', async () => {
    const { clock, open, audio } = setUp();
    const a = open('a');
    for (let count = 0; count < 10; count++) audio(10_000);
    await clock.advanceAsync(10_000);
    a.waiting -= 1000;
    await clock.advanceAsync(10_000);
    expect(a.end).toBeUndefined();
  });

  it('leaves sockets alone whose runtime keeps them alive itself', async () => {
    const { clock, socket } = setUp();
    const transport = new FakeTransport('a');
    Object.assign(transport, { received: undefined, ping: undefined });
    transport.events = socket.open(transport);
    await clock.advanceAsync(60_000);
    expect(transport.end).toBeUndefined();
  });
});

describe('backpressure', () => {
  it('stops the producer above 4 MiB unsent, until half has left', async () => {
    const { socket, open, audio } = setUp();
    const a = open('a');
    while (!socket.room()) audio(60_000);
    expect(a.waiting).toBeGreaterThan(4 * MiB);
    expect(a.waiting).toBeLessThan(4.1 * MiB);
    const room = socket.room();
    a.waiting = 3 * MiB;
    a.events.drained();
    expect(await settled(room)).toBe(false);
    a.waiting = 2 * MiB;
    a.events.drained();
    expect(await settled(room)).toBe(true);
    expect(socket.room()).toBeUndefined();
  });

  it('obeys the lower credit of a runtime that hides what is unsent', () => {
    const { socket, open, audio } = setUp();
    const a = open('a', MiB);
    while (!socket.room()) audio(60_000);
    expect(a.waiting).toBeLessThan(1.1 * MiB);
  });

  it('lets a detached session fill its ring only, and goes on once that is acknowledged', async () => {
    const { socket, open, audio } = setUp();
    const a = open('a');
    socket.setActivity('busy');
    a.events.closed();
    let count = 0;
    for (; !socket.room(); count++) audio(60_000);
    expect(count * 60_000).toBeGreaterThan(7 * MiB);
    const room = socket.room();
    const b = open('b');
    b.say({ type: 'session.resume', resume_token: TOKEN });
    expect(b.types().filter((type) => type === 'voice.audio.delta')).toHaveLength(count);
    expect(b.end).toBeUndefined();
    b.drain();
    expect(await settled(room)).toBe(false);
    b.say({ type: 'client.ack', audio_event_id: count });
    expect(await settled(room)).toBe(true);
  });

  it('lets a waiting producer go when the session ends', async () => {
    const { socket, open, audio } = setUp();
    open('a');
    while (!socket.room()) audio(60_000);
    const room = socket.room();
    socket.close(1001, 'server shutting down', 'shutdown');
    expect(await settled(room)).toBe(true);
    expect(socket.room()).toBeUndefined();
  });

  it('loses a client that makes it answer without reading', () => {
    const { open, socket } = setUp();
    const a = open('a');
    for (let count = 0; count < 200_000 && !a.end; count++) a.say({ type: 'session.start' });
    expect(a.end).toEqual({ code: 1006 });
    expect(a.waiting).toBeLessThan(8.1 * MiB);
    expect(socket.isOver).toBe(true);
  });

  it('counts an agent client with more than 4 MiB of live events unsent as lost, but not for its replay', () => {
    const { open, socket, audio } = setUp(AGENT_RULES);
    const a = open('a');
    socket.connected();
    for (let count = 0; count < 100; count++) audio(60_000);
    expect(a.end).toEqual({ code: 1006 });
    const b = open('b');
    b.say({ type: 'session.resume', resume_token: TOKEN });
    expect(b.waiting).toBeGreaterThan(5 * MiB);
    audio(1000);
    expect(b.end).toBeUndefined();
    for (let count = 0; count < 80; count++) audio(60_000);
    expect(b.end).toEqual({ code: 1006 });
  });
});

describe('sockets', () => {
  it('lifts the limit on what a socket may send, and has it closed with its session', () => {
    const { socket, open, ended } = setUp();
    const a = open('a');
    expect(a.isTrusted).toBe(true);
    socket.close(4001, 'session revoked', 'closed');
    expect(a.end).toEqual({ code: 4001, reason: 'session revoked' });
    expect(ended).toEqual(['closed']);
    a.say({ type: 'session.start' });
    a.events.closed();
    expect(a.types()).toEqual(['voice.session.ready']);
    expect(ended).toHaveLength(1);
  });

  it('drops a superseded socket that does not read, with all that waits for it', () => {
    const { socket, open, audio } = setUp();
    const a = open('a');
    while (!socket.room()) audio(60_000);
    const b = open('b');
    b.say({ type: 'session.resume', resume_token: TOKEN });
    expect(a.end).toEqual({ code: 1006 });
    a.events.closed();
    expect(socket.isAttached).toBe(true);
  });

  it('handles an event that another one causes after it, in order', () => {
    const answering = setUp(OUTPUT_RULES, {
      deliver: () => {
        answering.socket.publish({ type: 'first' });
        answering.socket.publish({ type: 'second' });
      },
    });
    const a = answering.open('a');
    a.say({ type: 'anything' });
    expect(a.messages.map(({ type, event_id }) => [type, event_id])).toEqual([
      ['voice.session.ready', 1],
      ['first', 2],
      ['second', 3],
    ]);
  });

  it('stops reading the owner until the provider is connected', () => {
    let connects = 0;
    const { socket, open, delivered } = setUp(AGENT_RULES, { connect: () => connects++ });
    const a = open('a');
    expect([a.isPaused, connects]).toEqual([true, 1]);
    // It is no session that gives way to a new one.
    expect(socket.isAttached).toBe(true);
    a.say({ type: 'response.create', text: 'hi' });
    expect(delivered).toEqual([]);
    socket.connected();
    expect(a.isPaused).toBe(false);
    expect(delivered).toEqual([{ type: 'response.create', text: 'hi' }]);
    socket.setResumeTtl(600_000);
    a.events.closed();
    expect(socket.isOver).toBe(false);
  });
});

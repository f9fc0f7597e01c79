import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { JsonObject } from '../../../../lib/kit/json.ts';
import { AGENT_RULES, LAB_RULES, OUTPUT_RULES } from '../../../../lib/voice/socket/rules.ts';
import { runs } from '../../../support/runs.ts';
import { createTestSession, TOKEN, TTL } from './support.ts';

/** Small enough that a short history fills it. */
const RULES = { ...OUTPUT_RULES, ring: { events: 40, bytes: 6000, reserve: { events: 8, bytes: 1500 } } };
const MAX_AUDIO = 600;

/** One connection of the phone. What the session sends waits in it until the network delivers it. */
interface Link {
  socket: string;
  /** Frames of the session that have been delivered. */
  delivered: number;
  /** The phone listens to one link at a time. */
  isListening: boolean;
  /** The session has been told of its end. */
  isOver: boolean;
}

/** A phone that follows the contract, and the provider that speaks to it, around the state machine. */
class World {
  readonly session = createTestSession(RULES);
  readonly links: Link[] = [];
  /** Labels in the order in which the phone heard them. */
  readonly heard: string[] = [];
  spoken = 0;
  lastEvent = 0;
  lastAudio = 0;
  sockets = 0;

  constructor() {
    this.connect();
    this.session.step({ type: 'activity', activity: 'busy' });
  }

  get link(): Link | undefined {
    return this.links.find(({ isListening }) => isListening);
  }

  get isPaused(): boolean {
    const signal = this.session.effects.findLast((effect) => effect.type === 'producer');
    return signal?.type === 'producer' && signal.paused;
  }

  connect(): Link {
    for (const link of this.links) link.isListening = false;
    const link = { socket: `s${++this.sockets}`, delivered: 0, isListening: true, isOver: false };
    this.links.push(link);
    this.session.open(link.socket);
    return link;
  }

  /** The provider sends on for as long as it is read. */
  speak(size: number, count = 1): void {
    for (let n = 0; n < count && !this.isPaused; n++) this.session.audio(String(++this.spoken), size);
  }

  /** Delivers frames to the phone, which acknowledges each if its link still works in that direction. */
  deliver(count: number, acknowledges: boolean): void {
    const { link } = this;
    if (!link) return;
    for (const frame of this.session.from(link.socket).slice(link.delivered, link.delivered + count)) {
      link.delivered++;
      this.#receive(link, frame, acknowledges);
    }
  }

  #receive(link: Link, frame: JsonObject, acknowledges: boolean): void {
    const { type, event_id, audio_event_id, label } = frame;
    expect(type).not.toBe('voice.session.resume_failed');
    expect(frame).not.toHaveProperty('gap');
    if (audio_event_id !== undefined) {
      this.heard.push(String(label));
      expect(audio_event_id).toBe(this.lastAudio + 1);
      this.lastAudio = audio_event_id as number;
    }
    if (/^voice\.(?:session|replay)\./.test(String(type))) return;
    this.lastEvent = Math.max(this.lastEvent, event_id as number);
    if (acknowledges) {
      this.session.say(link.socket, { type: 'client.ack', event_id: this.lastEvent, audio_event_id: this.lastAudio });
    }
  }

  resume(): void {
    const link = this.connect();
    this.session.say(link.socket, {
      type: 'session.resume',
      resume_token: TOKEN,
      last_event_id: this.lastEvent,
      last_audio_event_id: this.lastAudio,
      last_played_audio_event_id: Math.floor(this.lastAudio / 2),
    });
  }

  /** The session learns that a connection has ended, maybe long after the phone did. */
  lose(which: number): void {
    const open = this.links.filter(({ isOver }) => !isOver);
    const link = open[which % Math.max(open.length, 1)];
    if (!link) return;
    link.isOver = true;
    link.isListening = false;
    this.session.lose(link.socket);
  }

  check(): void {
    const { machine } = this.session;
    expect(machine.phase).not.toBe('closed');
    const { link } = this;
    const isOwner = link && this.session.codeOf(link.socket) === undefined;
    // Whatever becomes of other sockets, the one that the phone listens to stays attached.
    if (isOwner) expect(machine.phase).toBe('attached');
    expect(machine.buffered.events).toBeLessThanOrEqual(RULES.ring.events);
    expect(machine.buffered.bytes).toBeLessThanOrEqual(RULES.ring.bytes);
    expect(this.heard).toEqual(Array.from({ length: this.heard.length }, (_, at) => String(at + 1)));
  }

  /** Every id in the order in which it was given. */
  ids = (): unknown[] => this.session.effects.flatMap((e) => (e.type === 'made' ? [e.event.event_id] : []));
}

type Command = { name: string; run(world: World): void };
const command = <T>(name: string, argument: fc.Arbitrary<T>, run: (world: World, value: T) => void) =>
  argument.map((value): Command => ({ name: `${name}(${JSON.stringify(value)})`, run: (world) => run(world, value) }));

const commands = fc.oneof(
  {
    weight: 6,
    arbitrary: command('speak', fc.tuple(fc.nat(MAX_AUDIO), fc.integer({ min: 1, max: 20 })), (world, [size, count]) =>
      world.speak(size, count),
    ),
  },
  {
    weight: 6,
    arbitrary: command(
      'deliver',
      fc.tuple(fc.integer({ min: 1, max: 12 }), fc.boolean()),
      (world, [count, acknowledges]) => world.deliver(count, acknowledges),
    ),
  },
  { weight: 2, arbitrary: command('resume', fc.constant(null), (world) => world.resume()) },
  { weight: 2, arbitrary: command('lose', fc.nat(5), (world, which) => world.lose(which)) },
  // Strangers to the session: sockets of the same principal without its token.
  {
    weight: 1,
    arbitrary: command('intrude', fc.constantFrom('wrong', undefined), (world, resume_token) => {
      const socket = `x${++world.sockets}`;
      const { phase, cursors, buffered: kept } = world.session.machine;
      const before = JSON.stringify([phase, cursors, kept]);
      world.session.open(socket);
      world.session.say(socket, { type: 'session.resume', resume_token, last_audio_event_id: 1e6, last_event_id: 1e6 });
      const after = world.session.machine;
      expect(JSON.stringify([after.phase, after.cursors, after.buffered])).toBe(before);
      expect([4003, 4009]).toContain(world.session.codeOf(socket));
    }),
  },
  {
    weight: 1,
    arbitrary: command('linger', fc.boolean(), (world, isLost) => {
      const socket = `x${++world.sockets}`;
      world.session.open(socket);
      if (isLost) world.session.lose(socket);
    }),
  },
  {
    weight: 1,
    arbitrary: command('bad input', fc.constant(null), (world) => {
      // One at a time: a phone that never read the answers would push its own events out of the ring.
      if (world.link && world.session.machine.buffered.events < 20)
        world.session.step({ type: 'text', socket: world.link.socket, text: '{' });
    }),
  },
  {
    weight: 1,
    arbitrary: command('pass', fc.integer({ min: 1, max: TTL / 2 }), (world, ms) => {
      // A phone that comes back in time, unless four candidates keep it out.
      if (world.session.machine.phase === 'detached') world.resume();
      if (world.session.machine.phase === 'attached') world.session.pass(ms);
    }),
  },
);

it('lets a phone that follows the contract hear every sample once and in order, whatever its network does', () => {
  fc.assert(
    fc.property(fc.array(commands, { maxLength: 60 }), (history) => {
      const world = new World();
      for (const { run } of history) {
        run(world);
        world.check();
      }
      // The network heals: the phone resumes once more and hears all the rest.
      for (const link of [...world.links]) if (!link.isOver && !link.isListening) world.session.lose(link.socket);
      for (let round = 0; round < 5; round++) {
        // Candidates of the past must be gone: there are four places.
        world.session.pass(10_000);
        world.resume();
        world.deliver(Number.POSITIVE_INFINITY, true);
        world.speak(MAX_AUDIO);
        world.deliver(Number.POSITIVE_INFINITY, true);
        world.check();
      }
      expect(world.heard).toHaveLength(world.spoken);
      expect(world.spoken).toBeGreaterThanOrEqual(5);
      expect(world.isPaused).toBe(false);
      const ids = world.ids();
      expect(ids).toEqual(Array.from(ids, (_, at) => at + 1));
    }),
    { numRuns: runs(400) },
  );
});

const WORDS = [
  'session.start',
  'session.resume',
  'session.close',
  'client.ack',
  'response.create',
  'type',
  'resume_token',
  'event_id',
  'audio_event_id',
  'last_event_id',
  'last_audio_event_id',
  TOKEN,
  '__proto__',
  'constructor',
];
const frame = fc.oneof(
  fc.string(),
  fc.json(),
  fc
    .dictionary(fc.constantFrom(...WORDS), fc.oneof(fc.constantFrom(...WORDS), fc.jsonValue()))
    .map((o) => JSON.stringify(o)),
);

it.each([
  ['voice output', RULES],
  ['the lab', LAB_RULES],
  ['the realtime agent', AGENT_RULES],
])('%s survives whatever clients send, in any phase, and tells nobody but the owner anything', (_name, rules) => {
  const socket = fc.constantFrom('a', 'b', 'c');
  const action = fc.oneof(
    { weight: 8, arbitrary: fc.tuple(fc.constant('text'), socket, frame) },
    {
      weight: 2,
      arbitrary: fc.tuple(
        fc.constantFrom('opened', 'binary', 'lost', 'connected', 'connect-failed', 'audio'),
        socket,
        frame,
      ),
    },
  );
  fc.assert(
    fc.property(fc.array(action, { maxLength: 40 }), (actions) => {
      const session = createTestSession(rules);
      const open = new Set<string>();
      for (const [type, name, text] of actions) {
        if (type === 'audio') session.audio('x');
        else if (type === 'connected') session.step({ type });
        else if (type === 'connect-failed') session.step({ type, error: { type: 'voice.error', message: 'x' } });
        else if (type === 'opened') {
          if (open.has(name)) continue;
          open.add(name);
          session.open(name);
        } else if (!open.has(name)) continue;
        else if (type === 'lost') session.lose(name);
        else if (type === 'binary') session.step({ type, socket: name });
        else session.step({ type: 'text', socket: name, text });
        const { owner, phase } = session.machine;
        expect(phase === 'attached').toBe(owner !== undefined && phase !== 'connecting');
        if (phase === 'closed') expect(session.machine.deadline).toBeUndefined();
      }
      // Whatever a socket hears that never owned the session is about itself.
      for (const name of open) {
        const types = session.types(name);
        if (types.includes('voice.session.ready') || types.includes('voice.session.resumed')) continue;
        expect(types.every((type) => type === 'voice.error' || type === 'voice.session.resume_failed')).toBe(true);
      }
    }),
    { numRuns: runs(300) },
  );
});

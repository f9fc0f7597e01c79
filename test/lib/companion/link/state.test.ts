import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { authority, isSecure } from '../../../../lib/companion/link/endpoints.ts';
import type { Pairing } from '../../../../lib/companion/link/settings.ts';
import {
  initialMachine,
  type LinkEffect,
  type LinkEvent,
  type LinkMachine,
  type LinkState,
  PACE,
  rateLimitBackoff,
  transition,
} from '../../../../lib/companion/link/state.ts';
import { backoff, endingOf, QUICK_WAIT } from '../../../../lib/kit/reconnect.ts';
import { PAIRING, REACH } from './support.ts';

const unit = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });
const [KEY, OTHER_KEY] = ['a'.repeat(64), 'b'.repeat(64)];
const PINNED: Pairing = { ...PAIRING, tofu_pins: { 'relay.example:443': KEY } };
const OFFER = { code: 'ABC123', endpoints: PAIRING.endpoints };
const relay = { serverVersion: '1', expiresAt: null, grants: {} };
const session = { ...relay, sessionToken: 'token-2', refreshToken: 'refresh-2' };
const end = { code: 1006, reason: '' };

const REVOKED: LinkEvent = { name: 'closed', end: { code: 4401, reason: 'session revoked' } };

const EVENTS: LinkEvent[] = [
  { name: 'start' },
  { name: 'stop' },
  { name: 'opened', spki: KEY },
  { name: 'opened', spki: OTHER_KEY },
  { name: 'opened', spki: undefined },
  { name: 'auth-ok', session },
  { name: 'auth-ok', session: null },
  { name: 'auth-fail', reason: 'Authentication timeout' },
  { name: 'auth-fail', reason: 'could not be stored: try again later' },
  { name: 'auth-fail', reason: 'Invalid session token' },
  { name: 'home-online' },
  { name: 'stored', relay },
  { name: 'store-failed', reason: 'no space left' },
  { name: 'forgotten' },
  { name: 'closed', end },
  { name: 'closed', end: { ...end, isRefused: true } },
  { name: 'closed', end: { code: 1001, reason: 'server shutting down' } },
  REVOKED,
  { name: 'closed', end: { ...end, status: 429 } },
  { name: 'silent', reason: 'nothing was heard for 14 s' },
  { name: 'timeout' },
];

/** The world as the effects make it: what a runner has open, armed, written and reported. */
interface World {
  sockets: number;
  timer: number | null;
  isOnline: boolean;
  /** Waiting for `stored` or `forgotten`. */
  writing: 'store' | 'forget' | null;
  pairing: Pairing | null;
  reported: LinkState[];
}

/** Performs an effect on the world, and asserts that it is legal there. */
function perform(world: World, effect: LinkEffect): void {
  switch (effect.name) {
    case 'report':
      world.reported.push(effect.state);
      break;
    case 'timer':
      world.timer = effect.delay;
      break;
    case 'dial':
      expect(world.sockets, 'one socket at a time').toBe(0);
      world.sockets++;
      break;
    case 'authenticate':
      expect(world.sockets).toBe(1);
      break;
    case 'store':
    case 'forget':
      expect(world.writing, 'one write at a time').toBeNull();
      world.writing = effect.name;
      break;
    case 'go-online':
      expect([world.sockets, world.isOnline, world.writing]).toEqual([1, false, null]);
      world.isOnline = true;
      break;
    case 'disconnect':
      world.sockets = 0;
      world.isOnline = false;
      break;
    case 'log':
      break;
  }
}

type Scenario = [event: LinkEvent, passed: number, random: number][];
const scenario = fc.array(fc.tuple(fc.constantFrom(...EVENTS), fc.nat(40_000), unit), { maxLength: 60 });
/** As `scenario`, but most steps are one that means something in the current state. */
const plausible = fc.array(fc.tuple(fc.nat(), fc.integer({ min: 0, max: 40_000 }), unit, fc.nat(9)), { maxLength: 60 });

const RELEVANT: Record<string, LinkEvent['name'][]> = {
  unpaired: ['start'],
  waiting: ['start', 'timeout'],
  connecting: ['opened', 'closed', 'timeout'],
  answer: ['auth-ok', 'auth-fail', 'closed', 'timeout'],
  store: ['stored', 'store-failed', 'closed'],
  forget: ['forgotten'],
  online: ['closed', 'silent'],
  stopped: ['start'],
};

function relevantEvents({ state }: LinkMachine): LinkEvent[] {
  const names = RELEVANT[state.name === 'authenticating' ? state.step.name : state.name] ?? [];
  return EVENTS.filter(({ name }) => names.includes(name));
}

interface Taken {
  event: LinkEvent;
  before: LinkMachine;
  after: LinkMachine;
  effects: LinkEffect[];
  world: World;
  now: number;
}

/** Runs events through the machine on a world of its own, and passes every step to `check`. */
function play(
  { offer, pairing }: { offer: typeof OFFER | null; pairing: Pairing | null },
  steps: Iterable<[choose: (machine: LinkMachine) => LinkEvent, passed: number, random: number]>,
  check: (step: Taken) => void,
): void {
  let machine = initialMachine(offer);
  const world: World = { sockets: 0, timer: null, isOnline: false, writing: null, pairing, reported: [] };
  let now = 0;
  for (const [choose, passed, random] of steps) {
    const event = choose(machine);
    now += passed;
    if (event.name === 'timeout' && world.timer === null) continue;
    // A write that nobody asked for cannot end.
    if ((event.name === 'stored' || event.name === 'store-failed') && world.writing !== 'store') continue;
    if (event.name === 'forgotten' && world.writing !== 'forget') continue;
    if (event.name === 'stored') world.pairing = { ...PINNED, session_token: 'token-2' };
    if (event.name === 'forgotten') world.pairing = null;
    if (event.name === 'stored' || event.name === 'store-failed' || event.name === 'forgotten') world.writing = null;
    const before = machine;
    const step = transition(machine, event, { now, epoch: 0, random, pairing: world.pairing });
    machine = step.machine;
    for (const effect of step.effects) perform(world, effect);
    check({ event, before, after: machine, effects: step.effects, world, now });
  }
}

const STARTS = [
  { offer: null, pairing: PINNED },
  { offer: null, pairing: PAIRING },
  { offer: null, pairing: { ...PAIRING, endpoints: [...PAIRING.endpoints, REACH] } },
  { offer: null, pairing: null },
  { offer: OFFER, pairing: null },
  { offer: OFFER, pairing: PINNED },
];

/** Checks a property over random events, and over events that are mostly relevant and so reach every state. */
function always(check: (step: Taken) => void, settings: { seed?: number } = {}): void {
  const fixed = (steps: Scenario) =>
    steps.map(([event, passed, random]): [() => LinkEvent, number, number] => [() => event, passed, random]);
  fc.assert(
    fc.property(fc.constantFrom(...STARTS), scenario, (from, steps) => play(from, fixed(steps), check)),
    { ...settings, numRuns: 100 },
  );
  fc.assert(
    fc.property(fc.constantFrom(...STARTS), plausible, (from, steps) => {
      const chosen = steps.map(([pick, passed, random, noise]): [(m: LinkMachine) => LinkEvent, number, number] => [
        (machine) => {
          const events = noise === 0 ? EVENTS.filter(({ name }) => name !== 'stop') : relevantEvents(machine);
          return events[pick % events.length] as LinkEvent;
        },
        passed,
        random,
      ]);
      play(from, chosen, check);
    }),
    { ...settings, numRuns: 300 },
  );
}

const named = <N extends LinkEffect['name']>(effects: LinkEffect[], name: N) =>
  effects.filter((effect): effect is Extract<LinkEffect, { name: N }> => effect.name === name);

describe('the life cycle, whatever happens', () => {
  it('reaches every state and every step of authentication in these tests', () => {
    const seen = new Set<string>();
    // Once in a while, other seeds miss one.
    always(
      ({ after: { state } }) => seen.add(state.name === 'authenticating' ? `auth ${state.step.name}` : state.name),
      { seed: 1 },
    );
    expect([...seen].sort()).toEqual([
      'auth answer',
      'auth forget',
      'auth store',
      'connecting',
      'online',
      'stopped',
      'unpaired',
      'waiting',
    ]);
  });

  it('connects, authenticates, stores and goes online in this order only', () => {
    always(({ event, before, after, effects }) => {
      if (after.state.name === before.state.name) return;
      if (after.state.name === 'authenticating')
        expect([before.state.name, event.name]).toEqual(['connecting', 'opened']);
      if (after.state.name === 'online') expect([before.state.name, event.name]).toEqual(['authenticating', 'stored']);
      expect(named(effects, 'go-online')).toHaveLength(after.state.name === 'online' ? 1 : 0);
    });
  });

  it('has a socket exactly while connecting, authenticating or online', () => {
    always(({ event, after: { state }, world }) => {
      if (event.name === 'stop') return;
      expect(world.sockets).toBe(['connecting', 'authenticating', 'online'].includes(state.name) ? 1 : 0);
      expect(world.isOnline).toBe(state.name === 'online');
    });
  });

  it('has a timer exactly while it waits for the network or for the next round, and a write for every other wait', () => {
    always(({ after: { state }, world }) => {
      const isWriting = state.name === 'authenticating' && state.step.name !== 'answer';
      const isTimed = ['connecting', 'authenticating', 'waiting'].includes(state.name) && !isWriting;
      expect(world.timer === null).toBe(!isTimed);
      if (isWriting) expect(world.writing).toBe(state.step.name);
      if (state.name === 'waiting') expect(world.timer).toBe(state.wait);
    });
  });

  it('reports every state once, and nothing but states that it has entered', () => {
    always(({ before, after, effects }) => {
      const reports = named(effects, 'report');
      expect(reports.length).toBeLessThanOrEqual(1);
      if (before.state.name !== after.state.name) expect(reports).toHaveLength(1);
      for (const { state } of reports) expect(state).toBe(after.state);
    });
  });

  it('an event without meaning changes nothing and has no effect', () => {
    always(({ before, after, effects }) => {
      if (effects.length > 0) return;
      // Only the end of a socket during a write is remembered without an effect.
      const isRemembered = after.state.name === 'authenticating' && after.state.step.name === 'store';
      if (!isRemembered) expect(after).toBe(before);
    });
  });

  it('stops for good from every state', () => {
    always(({ event, before, after, effects }) => {
      if (event.name === 'stop') expect(after.state.name).toBe('stopped');
      if (before.state.name === 'stopped') expect([after, effects]).toEqual([before, []]);
    });
  });

  it('never gives up a pairing that the relay has not refused', () => {
    always(({ event, before, after, effects, world }) => {
      if (named(effects, 'forget').length > 0) {
        const { state } = before;
        if (state.name === 'online') {
          expect([event, state.endpoint.pinned]).toEqual([REVOKED, REACH.pinned]);
        } else expect([event, before.offer]).toEqual([{ name: 'auth-fail', reason: 'Invalid session token' }, null]);
      }
      // Ways into `unpaired`: a refusal, or a start without anything to connect with.
      if (after.state.name === 'unpaired' && before.state.name !== 'unpaired') {
        const isRefused = event.name === 'forgotten' || event.name === 'auth-fail';
        if (isRefused) expect(after.state.reason).toMatch(/^(Invalid session token|session revoked)$/);
        else expect([world.pairing, after.offer]).toEqual([null, null]);
      }
    });
  });

  it('goes on by timeouts alone: every wait for the network leads to another attempt', () => {
    always(({ after, world, now }) => {
      let machine = after;
      for (let count = 0; count < 10 && machine.state.name === 'connecting'; count++) {
        machine = transition(
          machine,
          { name: 'timeout' },
          { now, epoch: 0, random: 0, pairing: world.pairing },
        ).machine;
      }
      if (after.state.name !== 'connecting' && after.state.name !== 'waiting') return;
      expect(machine.state.name).toBe('waiting');
      const next = transition(
        machine,
        { name: 'timeout' },
        { now, epoch: 0, random: 0, pairing: world.pairing },
      ).machine;
      expect(next.state.name).toBe(world.pairing || next.offer ? 'connecting' : 'unpaired');
    });
  });
});

describe('credentials', () => {
  it('are sent once per socket, right after it opened, and only to a key that is pinned or new', () => {
    always(({ event, before, effects, world }) => {
      const [sent, ...more] = named(effects, 'authenticate');
      if (!sent) return;
      expect([more, before.state.name, event.name]).toEqual([[], 'connecting', 'opened']);
      if (before.state.name !== 'connecting' || event.name !== 'opened') return;
      const { endpoint, pins } = before.state;
      if (!isSecure(endpoint.url)) return;
      expect(event.spki).toBeDefined();
      expect([undefined, event.spki]).toContain(pins[authority(endpoint.url)]);
      if (!before.offer) expect(pins).toEqual(world.pairing?.tofu_pins ?? {});
    });
  });

  it('a changed key ends the attempt at once, and says so', () => {
    always(({ event, before, effects }) => {
      if (before.state.name !== 'connecting' || event.name !== 'opened') return;
      const pinned = before.state.pins[authority(before.state.endpoint.url)];
      if (pinned === undefined || pinned === event.spki) return;
      expect(named(effects, 'disconnect')).toEqual([{ name: 'disconnect', how: 'terminate' }]);
      expect(named(effects, 'authenticate')).toEqual([]);
      expect(named(effects, 'log')[0]?.text).toContain('nothing was sent');
    });
  });

  it('a new key is stored with the session, and with it only', () => {
    always(({ event, before, effects }) => {
      const [store] = named(effects, 'store');
      if (!store) return;
      expect(event).toMatchObject({ name: 'auth-ok', session: store.session });
      if (before.state.name === 'authenticating') expect(store.pins).toBe(before.state.pins);
      const expected = isSecure(store.endpoint.url) ? { 'relay.example:443': expect.any(String) } : {};
      expect(store.pins).toMatchObject(expected);
    });
  });

  it('the code of an offer is never sent again once its session is stored, and no pin of an old pairing is used', () => {
    always(({ event, before, after, effects, world }) => {
      for (const { credentials } of named(effects, 'authenticate')) {
        expect(credentials).toEqual(
          before.offer
            ? { pairingCode: 'ABC123' }
            : { sessionToken: world.pairing?.session_token, refreshToken: 'refresh-1' },
        );
      }
      // A stopped machine authenticates no more: it is not told of a write that ends after it.
      if (event.name === 'stored' && before.state.name !== 'stopped') expect(after.offer).toBeNull();
      else expect(after.offer).toBe(before.offer);
      if (after.offer && after.state.name === 'connecting') expect(after.state.pins).toEqual({});
    });
  });

  it('a socket that ends during the write costs no session: it is stored, and the next attempt uses it', () => {
    const facts = { now: 0, epoch: 0, random: 0, pairing: PINNED };
    let machine = initialMachine(OFFER);
    const take = (event: LinkEvent) => {
      const step = transition(machine, event, facts);
      machine = step.machine;
      return step.effects;
    };
    take({ name: 'start' });
    take({ name: 'opened', spki: undefined });
    expect(named(take({ name: 'auth-ok', session }), 'store')).toMatchObject([{ session, offer: OFFER }]);
    expect(take({ name: 'closed', end })).toEqual([]);
    expect(named(take({ name: 'stored', relay }), 'dial')).toMatchObject([{ endpoint: PAIRING.endpoints[1] }]);
    expect(named(take({ name: 'opened', spki: KEY }), 'authenticate')).toMatchObject([
      { credentials: { sessionToken: 'token-1' } },
    ]);
  });
});

describe('rounds and waits', () => {
  it('tries every endpoint of a round once, in order, without a wait in between', () => {
    always(({ before, after, effects }) => {
      for (const { endpoint } of named(effects, 'dial')) {
        expect(endpoint).toBe(after.round[after.index]);
        if (before.state.name === 'connecting' || before.state.name === 'authenticating') {
          expect(after.index).toBe(before.index + 1);
        } else expect(after.index).toBe(0);
      }
      if (before.state.name === 'connecting' && after.state.name === 'waiting' && !after.state.rateLimited) {
        expect(before.index).toBe(before.round.length - 1);
      }
    });
  });

  it('waits as the reconnect policy says: for the end of a connection, and of the attempt at the same endpoint', () => {
    always(({ event, before, after, now }) => {
      if (after.state.name !== 'waiting' || before.state.name === 'waiting') return;
      if (after.state.rateLimited) {
        expect([event.name, before.state.name]).toEqual(['closed', 'connecting']);
        expect(after.state.wait).toBeGreaterThanOrEqual(300_000);
        expect(after.attempts).toEqual(before.attempts);
        return;
      }
      const lasted = before.state.name === 'online' ? now - before.state.since : null;
      const isQuick = after.attempts.failures === before.attempts.failures || after.attempts.failures === 0;
      if (isQuick) {
        const isBroken = event.name === 'silent' || (event.name === 'closed' && endingOf(event.end) === 'broken');
        const { min, max } = lasted !== null && isBroken ? PACE.afterBreak : QUICK_WAIT;
        expect(now).toBeLessThan(after.attempts.quickUntil);
        expect(after.state.wait).toBeGreaterThanOrEqual(min);
        expect(after.state.wait).toBeLessThanOrEqual(max);
        if (lasted === null) expect(['restarting', 'refused']).toContain(after.ending);
      } else {
        const full = backoff(after.attempts.failures - 1, 0, PACE);
        expect(after.state.wait).toBeLessThanOrEqual(full);
        expect(after.state.wait).toBeGreaterThanOrEqual(full * 0.8 - 1);
      }
    });
  });

  it('hurries for the endpoint that it was online on, and for no other', () => {
    let now = 0;
    let machine = initialMachine();
    const take = (event: LinkEvent) => {
      machine = transition(machine, event, { now, epoch: 0, random: 0.5, pairing: PINNED }).machine;
    };
    const wait = () => (machine.state.name === 'waiting' ? machine.state.wait : machine.state.name);
    const refused: LinkEvent = { name: 'closed', end: { ...end, isRefused: true } };
    take({ name: 'start' });
    take(refused);
    take(refused);
    // Nothing has answered yet.
    expect(wait()).toBe(900);
    take({ name: 'timeout' });
    take({ name: 'opened', spki: undefined });
    take({ name: 'auth-ok', session });
    take({ name: 'stored', relay });
    take({ name: 'closed', end: { code: 1001, reason: '' } });
    expect(wait()).toBe(1250);
    take({ name: 'timeout' });
    take(refused);
    take({ name: 'closed', end });
    expect(wait()).toBe(1250);
    take({ name: 'timeout' });
    take({ name: 'timeout' });
    take(refused);
    expect(wait()).toBe(900);
    now += 15_000;
    take({ name: 'timeout' });
    take(refused);
    take(refused);
    expect(wait()).toBe(1800);
  });

  it('without a pairing there is nothing to start', () => {
    const { machine } = transition(initialMachine(), { name: 'start' }, { now: 0, epoch: 0, random: 0, pairing: null });
    expect(machine.state).toEqual({ name: 'unpaired' });
  });

  it('a backoff is 1 s doubling to 30 s, shortened by at most a fifth', () => {
    expect([0, 1, 2, 3, 4, 5, 6, 1000].map((failures) => backoff(failures, 0, PACE))).toEqual([
      1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000,
    ]);
    fc.assert(
      fc.property(fc.nat(2000), unit, (failures, random) => {
        const full = backoff(failures, 0, PACE);
        const wait = backoff(failures, random, PACE);
        expect(wait).toBeLessThanOrEqual(full);
        expect(wait).toBeGreaterThanOrEqual(full * 0.8 - 1);
      }),
    );
  });

  it('after a 429 it is never below five minutes', () => {
    fc.assert(fc.property(unit, (random) => void expect(rateLimitBackoff(random)).toBeGreaterThanOrEqual(300_000)));
    expect(rateLimitBackoff(0.999)).toBeLessThanOrEqual(330_000);
  });
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { backoff, rateLimitWait } from '../../../../lib/companion/link/backoff.ts';
import { attemptOrder, authority, preferRole } from '../../../../lib/companion/link/endpoints.ts';
import { checkPin } from '../../../../lib/companion/link/pins.ts';
import { initialMachine, type LinkEvent, transition } from '../../../../lib/companion/link/state.ts';

const endpoint = (role: string, priority: number) => ({ role, url: `ws://${role}.example:1/ws`, priority });
const LIST = [endpoint('public', 1), endpoint('lan', 2), endpoint('tailscale', 0)];
const unit = fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true });

describe('backoff', () => {
  it('is 1 s doubling to 30 s, shortened by at most a fifth', () => {
    expect([0, 1, 2, 3, 4, 5, 6, 1000].map((failures) => backoff(failures, 0))).toEqual([
      1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000,
    ]);
    fc.assert(
      fc.property(fc.nat(2000), unit, (failures, random) => {
        const full = backoff(failures, 0);
        const wait = backoff(failures, random);
        expect(wait).toBeLessThanOrEqual(full);
        expect(wait).toBeGreaterThanOrEqual(full * 0.8 - 1);
      }),
    );
  });

  it('after 429 is never below five minutes', () => {
    fc.assert(fc.property(unit, (random) => void expect(rateLimitWait(random)).toBeGreaterThanOrEqual(300_000)));
    expect(rateLimitWait(0.999)).toBeLessThanOrEqual(330_000);
  });
});

describe('endpoints', () => {
  it('come by priority, the one that worked last in front, without touching the list', () => {
    const before = structuredClone(LIST);
    expect(attemptOrder(LIST).map(({ role }) => role)).toEqual(['tailscale', 'public', 'lan']);
    expect(attemptOrder(LIST, 'ws://lan.example:1/ws').map(({ role }) => role)).toEqual(['lan', 'tailscale', 'public']);
    expect(attemptOrder(LIST, 'ws://gone:1').map(({ role }) => role)).toEqual(['tailscale', 'public', 'lan']);
    expect(LIST).toEqual(before);
  });

  it('of a preferred role, in any case, are in front and stay there', () => {
    const preferred = preferRole(LIST, ' LAN ') ?? [];
    expect(attemptOrder(preferred).map(({ role }) => role)).toEqual(['lan', 'public', 'tailscale']);
    expect(preferRole(LIST, 'carrier pigeon')).toBeNull();
  });

  it.each([
    ['ws://Host:8767/ws', 'host:8767'],
    ['wss://host/ws', 'host:443'],
    ['ws://host/ws', 'host:80'],
    ['wss://[2001:db8::1]/ws', '[2001:db8::1]:443'],
  ])('%s is %s', (url, expected) => {
    expect(authority(url)).toBe(expected);
  });
});

describe('pins (spec 2.1)', () => {
  const [a, b] = ['a'.repeat(64), 'b'.repeat(64)];

  it('first seen is kept, the same is known, another is refused, none is refused', () => {
    const first = checkPin({}, 'wss://host/ws', a);
    expect(first).toEqual({ kind: 'first', pins: { 'host:443': a } });
    const pins = first.kind === 'first' ? first.pins : {};
    expect(checkPin(pins, 'wss://HOST:443/other', a)).toEqual({ kind: 'known' });
    expect(checkPin(pins, 'wss://host/ws', b)).toMatchObject({ kind: 'refused' });
    expect(checkPin(pins, 'wss://host/ws', undefined)).toMatchObject({ kind: 'refused' });
    expect(checkPin(pins, 'wss://host/ws', 'xyz')).toMatchObject({ kind: 'refused' });
    // Another port is another place.
    expect(checkPin(pins, 'wss://host:8767/ws', b)).toMatchObject({ kind: 'first' });
  });

  it('a plain connection has none, and a host named like a property of every object is only a host', () => {
    expect(checkPin({}, 'ws://host/ws', undefined)).toEqual({ kind: 'none' });
    expect(checkPin({}, 'wss://constructor/ws', a).kind).toBe('first');
  });
});

describe('the state machine', () => {
  const relay = { serverVersion: '1', expiresAt: null, grants: {} };
  const events: LinkEvent[] = [
    { name: 'start' },
    { name: 'open' },
    { name: 'accepted', relay },
    { name: 'refused', reason: 'Authentication timeout' },
    { name: 'refused', reason: 'Invalid session token' },
    { name: 'lost', reason: 'x' },
    { name: 'rate-limited' },
    { name: 'due' },
    { name: 'stop' },
  ];

  it('from any history: online only by open and accepted, stopped for ever, an endpoint only of its round', () => {
    fc.assert(
      fc.property(fc.array(fc.tuple(fc.constantFrom(...events), fc.nat(40_000), unit), { maxLength: 60 }), (steps) => {
        let machine = initialMachine();
        let now = 0;
        for (const [event, passed, random] of steps) {
          now += passed;
          const { state: before } = machine;
          machine = transition(machine, event, { now, random, order: () => LIST });
          const { state } = machine;
          if (before.name === 'stopped') expect(state).toBe(before);
          if (state.name === 'online' && state !== before) expect(before.name).toBe('authenticating');
          if (state.name === 'authenticating' && state !== before) expect(before.name).toBe('connecting');
          if ('endpoint' in state) expect(LIST).toContain(state.endpoint);
          if (state.name === 'waiting') expect(state.wait).toBeGreaterThanOrEqual(800);
          if (event.name === 'stop') expect(state.name).toBe('stopped');
        }
      }),
    );
  });

  it('without a pairing there is nothing to start', () => {
    const facts = { now: 0, random: 0, order: () => [] };
    expect(transition(initialMachine(), { name: 'start' }, facts).state).toEqual({ name: 'unpaired' });
  });
});

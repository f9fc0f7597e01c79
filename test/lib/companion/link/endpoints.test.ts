import { describe, expect, it } from 'vitest';
import { attemptOrder, authority, checkPin, preferRole } from '../../../../lib/companion/link/endpoints.ts';

const endpoint = (role: string, priority: number) => ({ role, url: `ws://${role}.example:1/ws`, priority });
const LIST = [endpoint('public', 1), endpoint('lan', 2), endpoint('tailscale', 0)];

describe('endpoints', () => {
  it('are ordered by priority, the last good one first, without changing the list', () => {
    const before = structuredClone(LIST);
    expect(attemptOrder(LIST).map(({ role }) => role)).toEqual(['tailscale', 'public', 'lan']);
    expect(attemptOrder(LIST, 'ws://lan.example:1/ws').map(({ role }) => role)).toEqual(['lan', 'tailscale', 'public']);
    expect(attemptOrder(LIST, 'ws://gone:1').map(({ role }) => role)).toEqual(['tailscale', 'public', 'lan']);
    expect(LIST).toEqual(before);
  });

  it('of a preferred role, in any case, come first and stay first', () => {
    const preferred = preferRole(LIST, ' LAN ') ?? [];
    expect(attemptOrder(preferred).map(({ role }) => role)).toEqual(['lan', 'public', 'tailscale']);
    expect(preferRole(LIST, 'carrier pigeon')).toBeNull();
  });

  it.each([
    ['ws://Host:8767/ws', 'host:8767'],
    ['wss://host/ws', 'host:443'],
    ['ws://host/ws', 'host:80'],
    ['wss://[2001:db8::1]/ws', '[2001:db8::1]:443'],
  ])('%s has the authority %s', (url, expected) => {
    expect(authority(url)).toBe(expected);
  });
});

describe('pins (spec 2.1)', () => {
  const [a, b] = ['a'.repeat(64), 'b'.repeat(64)];

  it('records the first key, recognises it, and refuses another key or none', () => {
    const first = checkPin({}, { url: 'wss://host/ws' }, a);
    expect(first).toEqual({ kind: 'first', pins: { 'host:443': a } });
    const pins = first.kind === 'first' ? first.pins : {};
    expect(checkPin(pins, { url: 'wss://HOST:443/other' }, a)).toEqual({ kind: 'known' });
    expect(checkPin(pins, { url: 'wss://host/ws' }, b)).toMatchObject({ kind: 'refused' });
    expect(checkPin(pins, { url: 'wss://host/ws' }, undefined)).toMatchObject({ kind: 'refused' });
    expect(checkPin(pins, { url: 'wss://host/ws' }, 'xyz')).toMatchObject({ kind: 'refused' });
    // Another port is another place.
    expect(checkPin(pins, { url: 'wss://host:8767/ws' }, b)).toMatchObject({ kind: 'first' });
  });

  it('does not apply to plain connections, and is not fooled by a host named like an object member', () => {
    expect(checkPin({}, { url: 'ws://host/ws' }, undefined)).toEqual({ kind: 'none' });
    expect(checkPin({}, { url: 'wss://constructor/ws' }, a).kind).toBe('first');
  });
});

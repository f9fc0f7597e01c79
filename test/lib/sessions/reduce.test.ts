import { describe, expect, it } from 'vitest';
import { DAY, setup } from './setup.ts';

describe('reduction (01 §6.4)', () => {
  it('shortens the session and clamps its grants', async () => {
    const { sessions, store, reduced, pair, now } = await setup();
    const { session } = await pair();
    await sessions.reduce(session, { ttlSeconds: 3600 });
    expect(session.expiresAt).toBe(now() + 3600);
    expect(new Set(Object.values(session.grants))).toEqual(new Set([now() + 3600]));
    expect(reduced).toEqual([session]);
    expect((await store.getItem(session.family))?.expires_at).toBe(now() + 3600);
  });

  it('shortens named grants and leaves the others', async () => {
    const { sessions, pair, now } = await setup();
    const { session } = await pair();
    const before = session.grants;
    await sessions.reduce(session, { grants: { bridge: 1, terminal: 1.5 } });
    expect(session.grants).toEqual({ ...before, bridge: now() + 1, terminal: now() + 1.5 });
    expect(session.expiresAt).toBe(now() + 30 * DAY);
  });

  it('accepts a finite end for a session without one, and 0 as no change', async () => {
    const { sessions, pair, now } = await setup();
    const { session } = await pair({}, { ttlSeconds: 0 });
    await sessions.reduce(session, { ttlSeconds: 0, grants: { bridge: 0 } });
    expect([session.expiresAt, session.grants.bridge]).toEqual([null, null]);
    await sessions.reduce(session, { ttlSeconds: 60 });
    expect([session.expiresAt, session.grants.bridge]).toEqual([now() + 60, now() + 60]);
  });

  it.each<[string, object, string]>([
    ['a longer life', { ttlSeconds: 31 * DAY }, 'forbidden'],
    ['no end', { ttlSeconds: 0 }, 'forbidden'],
    ['a longer grant', { grants: { bridge: 8 * DAY } }, 'forbidden'],
    ['a grant without end', { grants: { bridge: 0 } }, 'forbidden'],
    ['a grant it has not', { grants: { other: 1 } }, 'invalid'],
    ['a name of the prototype', { grants: { constructor: 1 } }, 'invalid'],
    ['a longer grant beside a shorter life', { ttlSeconds: 60, grants: { bridge: 8 * DAY } }, 'forbidden'],
    ['one longer grant of two', { grants: { terminal: 1, bridge: 8 * DAY } }, 'forbidden'],
    ['an unknown grant beside a longer life', { ttlSeconds: 0, grants: { other: 1 } }, 'invalid'],
  ])('refuses %s and changes nothing', async (_, reduction, kind) => {
    const { sessions, store, reduced, pair } = await setup();
    const { session } = await pair();
    const before = structuredClone({ expiresAt: session.expiresAt, grants: session.grants });
    const stored = await store.getItem(session.family);
    await expect(sessions.reduce(session, reduction)).rejects.toMatchObject({ name: 'RelayError', kind });
    expect({ expiresAt: session.expiresAt, grants: session.grants }).toEqual(before);
    expect(await store.getItem(session.family)).toEqual(stored);
    expect(reduced).toEqual([]);
  });

  it('says which refusal extends a session', async () => {
    const { sessions, pair } = await setup();
    const { session } = await pair();
    await expect(sessions.reduce(session, { ttlSeconds: 0 })).rejects.toThrow(
      'operator approval required to extend session',
    );
  });

  it('does not revive an expired grant', async () => {
    const { sessions, clock, pair } = await setup();
    const { session } = await pair({}, { grants: { bridge: 10 } });
    clock.advance(11_000);
    await expect(sessions.reduce(session, { grants: { bridge: 1 } })).rejects.toMatchObject({ kind: 'forbidden' });
  });
});

import { describe, expect, it } from 'vitest';
import { DAY, PHONE, setup } from './setup.ts';

const OVERLAP = 600_000;

/** A paired device and its first rotation. */
async function rotated() {
  const all = await setup();
  const first = await all.pair();
  const second = await all.sessions.refresh(first.refreshToken ?? '', PHONE);
  if (!second) throw new Error('the first refresh failed');
  return { ...all, first, second, use: (token = '', device = PHONE) => all.sessions.refresh(token, device) };
}

describe('refresh (01 §6.5)', () => {
  it('replaces the session and rotates the token', async () => {
    const { sessions, store, ended, first, second } = await rotated();
    expect(second.token).not.toBe(first.token);
    expect(second.refreshToken).not.toBe(first.refreshToken);
    expect(second.session).toMatchObject({ family: first.session.family, createdAt: first.session.createdAt });
    expect(second.session.ended).toBeUndefined();
    expect(ended).toEqual([[first.session.prefix, 'replaced']]);
    expect(sessions.authenticate(first.token)).toBeUndefined();
    expect(sessions.authenticate(second.token)).toBe(second.session);
    expect(sessions.list()).toEqual([second.session]);
    expect(await store.getKeys()).toHaveLength(1);
  });

  it('keeps the policy to the second, however late it comes', async () => {
    const { sessions, clock, pair } = await setup();
    const { session, refreshToken = '' } = await pair({}, { ttlSeconds: 10 * DAY, grants: { bridge: 3600 } });
    clock.advance(9 * DAY * 1000);
    const next = await sessions.refresh(refreshToken, PHONE);
    expect(next?.session.expiresAt).toBe(session.expiresAt);
    expect(next?.session.grants).toEqual(session.grants);
  });

  it('does not undo a reduction', async () => {
    const { sessions, pair, now } = await setup();
    const { session, refreshToken = '' } = await pair();
    await sessions.reduce(session, { ttlSeconds: 100, grants: { terminal: 5 } });
    const next = await sessions.refresh(refreshToken, PHONE);
    expect(next?.session.expiresAt).toBe(now() + 100);
    expect(next?.session.grants).toMatchObject({ terminal: now() + 5, chat: now() + 100 });
  });

  it('ends with its session', async () => {
    const { sessions, clock, pair } = await setup();
    const { refreshToken = '' } = await pair({}, { ttlSeconds: 60 });
    clock.advance(60_000);
    expect(await sessions.refresh(refreshToken, PHONE)).toBeUndefined();
  });

  it('ends 180 days after its creation, rotated or not', async () => {
    const { sessions, clock, pair } = await setup();
    const { session, refreshToken = '' } = await pair({}, { ttlSeconds: 0 });
    clock.advance(179 * DAY * 1000);
    const next = await sessions.refresh(refreshToken, PHONE);
    expect(next?.session.refresh?.expiresAt).toBe(session.createdAt + 180 * DAY);
    clock.advance(DAY * 1000);
    expect(await sessions.refresh(next?.refreshToken ?? '', PHONE)).toBeUndefined();
    expect(sessions.authenticate(next?.token ?? '')).toBeDefined();
  });

  it('refuses another device, and the rightful one is not affected', async () => {
    const { sessions, ended, pair } = await setup();
    const { token, refreshToken = '' } = await pair();
    expect(await sessions.refresh(refreshToken, { ...PHONE, id: 'device-2' })).toBeUndefined();
    expect(await sessions.refresh(refreshToken, { ...PHONE, id: '' })).toBeUndefined();
    expect(ended).toEqual([]);
    expect(sessions.authenticate(token)).toBeDefined();
    expect(await sessions.refresh(refreshToken, PHONE)).toBeDefined();
  });

  it('adopts the id of a device that had none', async () => {
    const { sessions, pair } = await setup();
    const { refreshToken = '' } = await pair({ id: 'none' });
    const next = await sessions.refresh(refreshToken, PHONE);
    expect(next?.session.device.id).toBe('device-1');
  });

  it('accepts no other token', async () => {
    const { first, use } = await rotated();
    for (const token of ['', 'x', first.token, `${first.refreshToken}A`]) expect(await use(token)).toBeUndefined();
  });

  it('serves two clients that present the same token at the same time, one after the other', async () => {
    const { sessions, pair } = await setup();
    const { refreshToken = '' } = await pair();
    const results = await Promise.all([sessions.refresh(refreshToken, PHONE), sessions.refresh(refreshToken, PHONE)]);
    // The second is a repetition within the overlap: it replaces the first one's session.
    expect(results[0]?.session.ended).toBe('replaced');
    expect(sessions.list()).toEqual([results[1]?.session]);
  });
});

describe('the replaced refresh token (01 §6.5)', () => {
  it('stays good for ten minutes', async () => {
    const { clock, first, use } = await rotated();
    clock.advance(OVERLAP - 1);
    expect(await use(first.refreshToken)).toBeDefined();
  });

  it('is dead after ten minutes; its successor is not', async () => {
    const { clock, ended, second, use } = await rotated();
    clock.advance(OVERLAP);
    expect(await use(second.refreshToken)).toBeDefined();
    expect(ended.at(-1)).toEqual([second.session.prefix, 'replaced']);
  });

  it('is dead once its successor is used', async () => {
    const { first, second, use } = await rotated();
    expect(await use(second.refreshToken)).toBeDefined();
    expect(await use(first.refreshToken)).toBeUndefined();
  });

  it('is dead once its successor is presented beside a session token', async () => {
    const { sessions, first, second, use } = await rotated();
    await sessions.resume(second.session, PHONE, second.refreshToken).saved;
    expect(await use(first.refreshToken)).toBeUndefined();
  });

  it('gets no new deadline by being used', async () => {
    const { clock, first, use } = await rotated();
    clock.advance(OVERLAP / 2);
    const third = await use(first.refreshToken);
    expect(third).toBeDefined();
    clock.advance(OVERLAP / 2);
    expect(await use(first.refreshToken)).toBeUndefined();
    expect(await use(third?.refreshToken), 'its family has ended').toBeUndefined();
  });

  it('that arrived late works too, until a later one is presented', async () => {
    const { first, second, use } = await rotated();
    const third = await use(first.refreshToken);
    const fourth = await use(second.refreshToken);
    expect(fourth).toBeDefined();
    const fifth = await use(third?.refreshToken);
    expect(fifth).toBeDefined();
    // The third retired the first and the second, not the fourth that came after it.
    expect(await use(fourth?.refreshToken)).toBeDefined();
    expect(await use(second.refreshToken)).toBeUndefined();
  });

  it('survives any number of lost answers, with a bounded number kept', async () => {
    const { sessions, first, use, restart } = await rotated();
    let last: string | undefined;
    for (let at = 0; at < 50; at++) last = (await use(first.refreshToken))?.refreshToken;
    expect(sessions.list()[0]?.refresh?.replaced).toHaveLength(8);
    const again = await restart();
    expect(await again.sessions.refresh(first.refreshToken ?? '', PHONE)).toBeDefined();
    expect(await again.sessions.refresh(last ?? '', PHONE)).toBeDefined();
    expect(await again.sessions.refresh(first.refreshToken ?? '', PHONE)).toBeUndefined();
  });

  it('stays dead once expired, also as the replaced token of a new credential', async () => {
    const { sessions, clock, pair } = await setup();
    const { session, refreshToken = '' } = await pair({}, { ttlSeconds: 0 });
    clock.advance(181 * DAY * 1_000);
    expect(await sessions.refresh(refreshToken, PHONE)).toBeUndefined();
    const issued = await sessions.resume(session, PHONE, refreshToken).saved;
    expect(issued).toBeDefined();
    const next = await sessions.refresh(issued ?? '', PHONE);
    expect(next).toBeDefined();
    expect(await sessions.refresh(refreshToken, PHONE)).toBeUndefined();
  });

  it('keeps its deadline across a restart', async () => {
    const { clock, first, restart } = await rotated();
    clock.advance(OVERLAP - 1);
    expect(await (await restart()).sessions.refresh(first.refreshToken ?? '', PHONE)).toBeDefined();
  });
});

describe('a dead refresh token that is shown again (01 §6.5)', () => {
  const warnings = (lines: string[]) => lines.filter((line) => line.includes('sign of theft'));

  it.each<[string, (all: Awaited<ReturnType<typeof rotated>>) => unknown]>([
    ['its successor was used', ({ second, use }) => use(second.refreshToken)],
    ['ten minutes have passed', ({ clock }) => clock.advance(OVERLAP)],
    [
      'it was replaced a hundred times',
      async ({ second, use }) => {
        let last = second.refreshToken;
        for (let count = 0; count < 100; count++) last = (await use(last))?.refreshToken;
      },
    ],
    [
      'the relay was started again since',
      async ({ second, use }) => use((await use(second.refreshToken))?.refreshToken),
    ],
  ])('ends the family: %s', async (_, kill) => {
    const all = await rotated();
    await kill(all);
    const { sessions, store, log, ended } = await all.restart();
    const living = sessions.list()[0];
    expect(living).toBeDefined();
    expect(await sessions.refresh(all.first.refreshToken ?? '', PHONE)).toBeUndefined();
    expect(sessions.list()).toEqual([]);
    expect(ended).toEqual([[living?.prefix, 'revoked']]);
    expect(warnings(log.lines)).toHaveLength(1);
    expect(await store.getKeys()).toEqual([]);
    // Nothing is left that a second showing could end.
    expect(await sessions.refresh(all.first.refreshToken ?? '', PHONE)).toBeUndefined();
    expect(ended).toHaveLength(1);
  });

  it('ends it for any device that shows it, and no other family', async () => {
    const { sessions, first, second, pair, use } = await rotated();
    const other = await pair({ id: 'device-2' });
    await use(second.refreshToken);
    expect(await use(first.refreshToken, { ...PHONE, id: 'thief' })).toBeUndefined();
    expect(sessions.list()).toEqual([other.session]);
  });

  it('does not end a family whose current token has only expired, nor for a token of no family', async () => {
    const { sessions, clock, log, pair } = await setup();
    const { session, refreshToken = '' } = await pair({}, { ttlSeconds: 0 });
    const forged = `${refreshToken.slice(0, 20)}${'A'.repeat(23)}`;
    expect(await sessions.refresh(forged, PHONE)).toBeUndefined();
    expect(await sessions.refresh(`${refreshToken}A`, PHONE)).toBeUndefined();
    clock.advance(181 * DAY * 1_000);
    expect(await sessions.refresh(refreshToken, PHONE)).toBeUndefined();
    expect(sessions.list()).toEqual([session]);
    expect(warnings(log.lines)).toEqual([]);
  });

  it('is known for its pairing as long as that lives, and tells nothing more to anybody', async () => {
    const { sessions, pair } = await setup();
    const { refreshToken = '' } = await pair();
    const other = await pair({ id: 'device-2' });
    expect(refreshToken).toMatch(/^[\w-]{43}$/);
    expect(other.refreshToken?.slice(0, 20)).not.toBe(refreshToken.slice(0, 20));
    const next = await sessions.refresh(refreshToken, PHONE);
    expect(next?.refreshToken?.slice(0, 21)).toBe(refreshToken.slice(0, 21));
    expect(next?.refreshToken?.slice(22)).not.toBe(refreshToken.slice(22));
  });
});

describe('a refresh and the key of the device (handlers/web/README.md)', () => {
  const KEY = 'k'.repeat(43);
  const OTHER = 'o'.repeat(43);

  it('binds a session that is bound to no key: a copy of its new credentials is worth nothing, also after a restart', async () => {
    const first = await setup();
    const { refreshToken = '' } = await first.pair();
    const { session, token, refreshToken: next = '' } = (await first.sessions.refresh(refreshToken, PHONE, KEY)) ?? {};
    expect(session?.keyThumbprint).toBe(KEY);
    for (const { sessions } of [first, await first.restart()]) {
      for (const proved of [undefined, OTHER]) {
        expect(sessions.authenticate(token ?? '', proved)).toBeUndefined();
        expect(await sessions.refresh(next, PHONE, proved)).toBeUndefined();
      }
      expect(sessions.authenticate(token ?? '', KEY)?.family).toBe(session?.family);
    }
    expect((await first.sessions.refresh(next, PHONE, KEY))?.session.keyThumbprint).toBe(KEY);
  });

  it('leaves one unbound that comes without a proof', async () => {
    const { sessions, pair } = await setup();
    const { refreshToken = '' } = await pair();
    const next = await sessions.refresh(refreshToken, PHONE);
    expect(next?.session.keyThumbprint).toBeUndefined();
    expect(sessions.authenticate(next?.token ?? '')).toBe(next?.session);
  });
});

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isDeviceId } from '../../../lib/sessions/device.ts';
import { hashesOf } from '../../../lib/sessions/refresh.ts';
import type { Refresh, Session } from '../../../lib/sessions/session.ts';
import { createSessionIndex, type SessionIndex, type StoredSessions } from '../../../lib/sessions/session-index.ts';
import { runs } from '../../support/runs.ts';
import { PHONE } from './setup.ts';

const HASHES = ['h0', 'h1', 'h2', 'h3', 'h4', 'h5'];
const DEVICES = ['phone', 'PHONE', 'desk', 'unknown', 'NONE', ''];
const STARTS = ['', 'a', 'ab', 'abc', 'abcd', 'abcde', 'abcd0', 'abcd0000', 'abxx', 'zzzz'];

const refreshOf = (hash: string, replaced: string[]): Refresh => ({
  hash,
  replaced: replaced.map((one) => ({ hash: one, until: 0 })),
  createdAt: 0,
  lastUsed: 0,
  expiresAt: 0,
});

const copies = (sessions: readonly Session[]) => sessions.map((session) => ({ ...session }));

/** Stored sessions, each copied whenever it is read. */
const storedOf = (sessions: readonly Session[]): StoredSessions => ({
  ofFamily: (family) => copies(sessions.filter((session) => session.family === family)),
  startingWith: (start) => copies(sessions.filter(({ prefix }) => prefix.startsWith(start))),
  // More than was asked for, as from SQL that cannot fold every letter.
  ofDevice: (id) => copies(sessions.filter(({ device }) => device.id.toLowerCase() === id || device.id === 'desk')),
  all: () => copies(sessions),
  endingBy: (at) => copies(sessions.filter(({ expiresAt }) => expiresAt !== null && expiresAt <= at)),
  nextEnd: (at) => {
    const ends = sessions.flatMap(({ expiresAt }) => (expiresAt !== null && expiresAt > at ? [expiresAt] : []));
    return ends.length > 0 ? Math.min(...ends) : null;
  },
  count: () => sessions.length,
});

/** A session with a unique token, prefix and family, like every session that the relay makes. */
const sessionOf = (id: number, device: string, expiresAt: number | null): Session => ({
  family: `family-${id}`,
  tokenHash: `token-${id}`,
  prefix: `${id % 3 === 0 ? 'abxx' : 'abcd'}${String(id).padStart(4, '0')}`,
  device: { ...PHONE, id: device },
  transportHint: 'ws',
  createdAt: 0,
  policy: {},
  grantedAt: 0,
  firstSeen: 0,
  lastSeen: 0,
  expiresAt,
  grants: {},
  refresh: null,
});

type Step = (index: SessionIndex, sessions: Session[], at: number) => void;

const refreshHashes = fc.uniqueArray(fc.constantFrom(...HASHES), { minLength: 1, maxLength: 3 });
/** A step on one of the indexed sessions. */
const onOne = (change: (index: SessionIndex, session: Session, sessions: Session[], at: number) => void) =>
  fc.nat().map(
    (pick): Step =>
      (index, sessions, at) => {
        const session = sessions[pick % Math.max(1, sessions.length)];
        if (session) change(index, session, sessions, at);
      },
  );

const add = fc.tuple(fc.constantFrom(...DEVICES), fc.option(fc.nat({ max: 40 }))).map(
  ([device, expiresAt]): Step =>
    (index, sessions, at) => {
      const session = sessionOf(at, device, expiresAt);
      session.lastSeen = at;
      sessions.push(session);
      index.add(session);
    },
);
const remove = onOne((index, session, sessions) => {
  sessions.splice(sessions.indexOf(session), 1);
  index.remove(session);
});
const seen = onOne((index, session, _sessions, at) => index.setSeen(session, at));
const device = fc
  .constantFrom(...DEVICES)
  .chain((id) => onOne((index, session) => index.setDevice(session, { ...session.device, id })));
const refresh = refreshHashes.chain(([hash = '', ...replaced]) =>
  onOne((index, session, sessions) => {
    // A token belongs to one session only.
    const taken = new Set(sessions.flatMap((other) => (other === session ? [] : hashesOf(other.refresh))));
    if ([hash, ...replaced].every((one) => !taken.has(one))) index.setRefresh(session, refreshOf(hash, replaced));
  }),
);

const byPrefix = (sessions: Iterable<Session>) => [...sessions].map(({ prefix }) => prefix).sort();

describe('the index of sessions (design 4)', () => {
  it('agrees with a search through all sessions, after any history', () => {
    const steps = fc.array(fc.oneof(add, add, remove, seen, device, refresh, refresh), { maxLength: 40 });
    fc.assert(
      fc.property(steps, (steps) => {
        const index = createSessionIndex();
        const sessions: Session[] = [];
        for (const [at, step] of steps.entries()) {
          step(index, sessions, at + 1);
          expect(index.size).toBe(sessions.length);
        }
        const bySeen = [...sessions].sort((a, b) => a.lastSeen - b.lastSeen);
        expect([...index.all()].map(({ family }) => family)).toEqual(bySeen.map(({ family }) => family));
        for (let id = 1; id <= steps.length; id++) {
          const here = sessions.find(({ family }) => family === `family-${id}`);
          expect(index.ofFamily(`family-${id}`)).toBe(here);
          const prefix = here?.prefix ?? '';
          expect(index.ofToken(`token-${id}`, prefix)).toBe(here);
          if (here) expect(index.ofPrefix(here.prefix)).toBe(here);
        }
        for (const hash of HASHES) {
          expect(index.ofRefresh(hash, undefined)).toBe(
            sessions.find((session) => hashesOf(session.refresh).includes(hash)),
          );
        }
        for (const id of DEVICES) {
          const same = (session: Session) => isDeviceId(id) && session.device.id.toLowerCase() === id.toLowerCase();
          expect(byPrefix(index.ofDevice({ ...PHONE, id }))).toEqual(byPrefix(sessions.filter(same)));
        }
        for (const start of STARTS) {
          const named = sessions.filter(({ prefix }) => prefix.startsWith(start));
          expect(byPrefix(index.startingWith(start))).toEqual(byPrefix(named));
        }
      }),
      { numRuns: runs(300) },
    );
  });

  it('agrees with a search through all of them when most are only stored, and each is one object', () => {
    const asked = fc.oneof(
      fc.record({ by: fc.constant('family' as const), id: fc.nat({ max: 12 }) }),
      fc.record({ by: fc.constantFrom('token' as const, 'prefix' as const), id: fc.nat({ max: 12 }) }),
      fc.record({ by: fc.constant('device' as const), id: fc.nat({ max: 5 }) }),
      fc.record({ by: fc.constantFrom('due' as const, 'ending' as const), id: fc.nat({ max: 60 }) }),
      fc.record({ by: fc.constantFrom('size' as const, 'remove' as const, 'add' as const), id: fc.nat({ max: 12 }) }),
      fc.record({ by: fc.constantFrom('refresh' as const, 'all' as const), id: fc.nat({ max: 5 }) }),
    );
    const initial = fc.array(fc.tuple(fc.constantFrom(...DEVICES), fc.option(fc.nat({ max: 60 }))), { maxLength: 10 });
    fc.assert(
      fc.property(initial, fc.array(asked, { maxLength: 25 }), (initial, steps) => {
        const stored = initial.map(([device, expiresAt], at) => ({
          ...sessionOf(at + 1, device, expiresAt),
          refresh: at < HASHES.length ? refreshOf(HASHES[at] as string, []) : null,
        }));
        const index = createSessionIndex(storedOf(stored));
        let living = [...stored];
        const seen = new Map<string, Session>();
        const same = (found: Iterable<Session | undefined>, expected: (session: Session) => boolean) => {
          const families = [...found].flatMap((session) => session ?? []);
          for (const session of families) {
            expect(seen.get(session.family) ?? session).toBe(session);
            seen.set(session.family, session);
          }
          expect(byPrefix(families)).toEqual(byPrefix(living.filter(expected)));
        };
        const isPast = ({ expiresAt }: Session, at: number) => expiresAt !== null && expiresAt <= at;
        for (const [at, { by, id }] of steps.entries()) {
          const one = sessionOf(id, 'x', null);
          if (by === 'family') same([index.ofFamily(one.family)], ({ family }) => family === one.family);
          else if (by === 'token')
            same([index.ofToken(one.tokenHash, one.prefix)], ({ prefix }) => prefix === one.prefix);
          else if (by === 'prefix') same([index.ofPrefix(one.prefix)], ({ prefix }) => prefix === one.prefix);
          else if (by === 'device') {
            const device = DEVICES[id] as string;
            const isOne = (session: Session) => session.device.id.toLowerCase() === device.toLowerCase();
            same(index.ofDevice({ id: device }), (session) => isDeviceId(device) && isOne(session));
          } else if (by === 'refresh') {
            const hash = HASHES[id] as string;
            const family = stored[id]?.family;
            same([index.ofRefresh(hash, family)], ({ refresh }) => refresh?.hash === hash);
          } else if (by === 'ending') same(index.endingBy(id), (session) => isPast(session, id));
          else if (by === 'all') same(index.all(), () => true);
          else if (by === 'size') expect(index.size).toBe(living.length);
          else if (by === 'add') {
            const added = sessionOf(100 + at, 'phone', id);
            index.add(added);
            living.push(added);
            expect(index.size).toBe(living.length);
          } else {
            const due = by === 'due' ? index.takeDue(id) : [index.ofFamily(one.family)];
            if (by === 'due') same(due, (session) => isPast(session, id));
            for (const session of due) {
              if (!session) continue;
              index.remove(session);
              living = living.filter(({ family }) => family !== session.family);
            }
          }
        }
        same(index.all(), () => true);
        expect(index.size).toBe(living.length);
      }),
      { numRuns: runs(300) },
    );
  });

  it('returns sessions to check only once one may have expired', () => {
    const index = createSessionIndex();
    const [first, second, endless] = [sessionOf(1, 'a', 10), sessionOf(2, 'b', 20), sessionOf(4, 'c', null)];
    for (const session of [first, second, endless]) index.add(session);
    expect(index.takeDue(9.9)).toEqual([]);
    expect(index.takeDue(10)).toEqual([first]);
    index.remove(first);
    expect(index.takeDue(19)).toEqual([]);
    second.expiresAt = 15;
    index.expiryChanged(second);
    expect(index.takeDue(14)).toEqual([]);
    expect(index.takeDue(15)).toEqual([second]);
    index.remove(second);
    expect(index.takeDue(10 ** 12)).toEqual([]);
  });

  it('keeps the entry of a session when another with the same token or prefix is removed', () => {
    const index = createSessionIndex();
    const [one, twin] = [sessionOf(1, 'a', null), { ...sessionOf(1, 'b', null), family: 'twin' }];
    index.add(one);
    index.add(twin);
    index.remove(one);
    expect(index.ofToken(twin.tokenHash, twin.prefix)).toBe(twin);
    expect(index.ofPrefix(twin.prefix)).toBe(twin);
    expect(index.ofFamily('twin')).toBe(twin);
  });
});

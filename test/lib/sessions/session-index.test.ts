import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isDeviceId } from '../../../lib/sessions/device.ts';
import { hashesOf } from '../../../lib/sessions/refresh.ts';
import type { Refresh, Session } from '../../../lib/sessions/session.ts';
import { createSessionIndex, type SessionIndex } from '../../../lib/sessions/session-index.ts';
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
          expect(index.ofToken(`token-${id}`)).toBe(here);
          if (here) expect(index.ofPrefix(here.prefix)).toBe(here);
        }
        for (const hash of HASHES) {
          expect(index.ofRefresh(hash)).toBe(sessions.find((session) => hashesOf(session.refresh).includes(hash)));
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

  it('returns sessions to check only once one may have expired', () => {
    const index = createSessionIndex();
    const [first, second, endless] = [sessionOf(1, 'a', 10), sessionOf(2, 'b', 20), sessionOf(4, 'c', null)];
    for (const session of [first, second, endless]) index.add(session);
    expect(index.takeDue(9.9)).toEqual([]);
    expect(index.takeDue(10)).toHaveLength(3);
    index.remove(first);
    for (const session of [second, endless]) index.expiryChanged(session);
    expect(index.takeDue(19)).toEqual([]);
    second.expiresAt = 15;
    index.expiryChanged(second);
    expect(index.takeDue(14)).toEqual([]);
    expect(index.takeDue(15)).toEqual([second, endless]);
    expect(index.takeDue(10 ** 12)).toEqual([]);
  });

  it('keeps the entry of a session when another with the same token or prefix is removed', () => {
    const index = createSessionIndex();
    const [one, twin] = [sessionOf(1, 'a', null), { ...sessionOf(1, 'b', null), family: 'twin' }];
    index.add(one);
    index.add(twin);
    index.remove(one);
    expect(index.ofToken(twin.tokenHash)).toBe(twin);
    expect(index.ofPrefix(twin.prefix)).toBe(twin);
    expect(index.ofFamily('twin')).toBe(twin);
  });
});

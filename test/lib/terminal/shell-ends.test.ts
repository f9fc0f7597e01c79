import { describe, expect, test } from 'vitest';
import type { ProcessOrigin } from '../../../lib/host/index.ts';
import type { Session as PairedSession } from '../../../lib/sessions/session.ts';
import type { Session } from '../../../lib/terminal/session.ts';
import { createShellEnds, type ShellEndsParts } from '../../../lib/terminal/shell-ends.ts';
import { PHONE, setup } from '../sessions/setup.ts';

/** Paired sessions, and programs that run until they are ended. */
async function stage(given?: Awaited<ReturnType<typeof setup>>) {
  const paired = given ?? (await setup());
  const { clock, log, sessions } = paired;
  const running = new Map<Session, PairedSession>();
  const ended: string[] = [];
  const endAll = async ({ marks }: ProcessOrigin) => {
    const own = [...running.keys()].filter(({ mark }) => marks.includes(mark));
    for (const session of own) running.delete(session);
    ended.push(...own.map(({ mark }) => mark));
    return { ended: own.length, left: 0 };
  };
  const host = { processes: { endAll } } as unknown as ShellEndsParts['host'];
  const shellEnds = createShellEnds({ host, running, sessions, clock, log, tmux: () => undefined });
  return {
    ...paired,
    shellEnds,
    ended,
    open: (session: PairedSession, mark: string) =>
      void running.set({ mark, pid: 1, tmuxName: undefined } as unknown as Session, session),
  };
}

describe('shells of a device whose terminal grant is reduced (contract 01 §6.4, 02 §1.5)', () => {
  test('end with the grant, and those of other devices do not', async () => {
    const { sessions, pair, clock, ended, open } = await stage();
    const { session } = await pair();
    const other = await pair({ id: 'other' });
    open(session, 'own');
    open(other.session, 'others');
    await sessions.reduce(session, { grants: { terminal: 60 } });
    await clock.advanceAsync(59_999);
    expect(ended).toEqual([]);
    await clock.advanceAsync(1);
    expect(ended).toEqual(['own']);
  });

  test('end with a session that is reduced', async () => {
    const { sessions, pair, clock, ended, open } = await stage();
    const { session } = await pair();
    open(session, 'own');
    await sessions.reduce(session, { ttlSeconds: 60 });
    await clock.advanceAsync(60_000);
    expect(ended).toEqual(['own']);
    expect(sessions.isAlive(session)).toBe(false);
  });

  test('end at once when the smallest reduction takes it away, and so does what is started in its last second', async () => {
    const { sessions, shellEnds, pair, clock, ended, open } = await stage();
    const { session } = await pair();
    open(session, 'one');
    open(session, 'two');
    await sessions.reduce(session, { grants: { terminal: 1 } });
    expect(await shellEnds.afterReduction(session)).toBe(2);
    open(session, 'late');
    await clock.advanceAsync(1_000);
    expect(ended).toEqual(['one', 'two', 'late']);
  });

  test('stay when another grant is reduced, and when the grant ends as it was given', async () => {
    const { sessions, shellEnds, pair, clock, ended, open } = await stage();
    const { session } = await pair({}, { grants: { terminal: 60 } });
    open(session, 'own');
    await sessions.reduce(session, { grants: { bridge: 1 } });
    expect(await shellEnds.afterReduction(session)).toBe(0);
    await clock.advanceAsync(120_000);
    expect(ended).toEqual([]);
  });

  test('end after a refresh too, and by the shorter of two reductions', async () => {
    const { sessions, pair, clock, ended, open } = await stage();
    const { session, refreshToken = '' } = await pair();
    await sessions.reduce(session, { grants: { terminal: 600 } });
    await sessions.reduce(session, { grants: { terminal: 60 } });
    const next = await sessions.refresh(refreshToken, PHONE);
    open(next?.session as PairedSession, 'own');
    await clock.advanceAsync(60_000);
    expect(ended).toEqual(['own']);
  });

  test.each([
    ['a grant', { grants: { terminal: 60 } }],
    ['a session', { ttlSeconds: 60 }],
  ])('end at the next start when %s runs out while no relay runs, and are looked for once', async (_, reduction) => {
    const before = await setup();
    const { session } = await before.pair();
    await before.sessions.reduce(session, reduction);
    before.clock.advance(120_000);
    const paired = await before.restart();
    const later = await stage(paired);
    await later.clock.advanceAsync(0);
    expect(later.log.lines.join('\n')).not.toContain('may go on');
    // The record says that nothing is left to end.
    const again = await before.restart();
    expect(again.sessions.list().filter(({ terminalReduced }) => terminalReduced)).toEqual([]);
    expect(again.sessions.takeExpiredWhileDown()).toEqual([]);
  });

  test('sets no timer for a device that is revoked', async () => {
    const { sessions, pair, clock, ended, open } = await stage();
    const { session } = await pair();
    await sessions.reduce(session, { grants: { terminal: 60 } });
    await sessions.revoke(session);
    open(session, 'kept');
    await clock.advanceAsync(120_000);
    expect(ended).toEqual([]);
  });
});

import { describe, expect, test } from 'vitest';
import type { ProcessOrigin } from '../../../lib/host/index.ts';
import type { Session as PairedSession } from '../../../lib/sessions/session.ts';
import type { Session } from '../../../lib/terminal/session.ts';
import { createShellEnds, NO_SHELLS, type ShellEndsDeps } from '../../../lib/terminal/shell-ends.ts';
import { PHONE, setup } from '../sessions/setup.ts';

/** Paired sessions, and programs that run until they are ended. */
async function stage(given?: Awaited<ReturnType<typeof setup>>) {
  const faults = { tmux: false, isHanging: false, left: 0 };
  const paired = given ?? (await setup());
  const { clock, log, sessions } = paired;
  const running = new Map<Session, PairedSession>();
  const ended: string[] = [];
  const asked: (readonly string[])[] = [];
  const endAll = async ({ marks }: ProcessOrigin) => {
    const own = [...running.keys()].filter(({ mark }) => marks.includes(mark));
    for (const session of own) running.delete(session);
    ended.push(...own.map(({ mark }) => mark));
    asked.push(marks);
    return { ended: own.length, left: faults.left };
  };
  const host = { processes: { endAll } } as unknown as ShellEndsDeps['host'];
  const tmux = async () => {
    if (faults.isHanging) await new Promise(() => {});
    if (faults.tmux) throw new Error('tmux list-sessions failed');
    return undefined;
  };
  const shellEnds = createShellEnds({ host, running, sessions, clock, log, tmux });
  return {
    ...paired,
    shellEnds,
    faults,
    asked,
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
    expect(await shellEnds.afterReduction(session)).toEqual({ count: 2, isLeft: false });
    open(session, 'late');
    await clock.advanceAsync(1_000);
    expect(ended).toEqual(['one', 'two', 'late']);
  });

  test('end in one attempt, which is counted, when the grant is removed', async () => {
    const { sessions, shellEnds, pair, faults, asked, open } = await stage();
    const { session } = await pair();
    open(session, 'own');
    faults.left = 1;
    const reducing = sessions.reduce(session, { without: ['terminal'] });
    const ended = shellEnds.afterReduction(session);
    await reducing;
    expect(await ended).toEqual({ count: 1, isLeft: true });
    expect(asked).toEqual([['own'], ['own']]);
  });

  test('stay when another grant is reduced, and when the grant ends as it was given', async () => {
    const { sessions, shellEnds, pair, clock, ended, open } = await stage();
    const { session } = await pair({}, { grants: { terminal: 60 } });
    open(session, 'own');
    await sessions.reduce(session, { grants: { bridge: 1 } });
    expect(await shellEnds.afterReduction(session)).toEqual(NO_SHELLS);
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

describe('shells that cannot be ended (contract 01 §6.7, 02 §1.5)', () => {
  test('are said to be left when tmux fails, bare ones end all the same, and tmux is asked again until it answers', async () => {
    const { sessions, shellEnds, pair, clock, log, ended, faults, open } = await stage();
    const { session } = await pair();
    open(session, 'bare');
    faults.tmux = true;
    const ending = shellEnds.end(session);
    await sessions.revoke(session);
    expect(await ending).toEqual({ count: 1, isLeft: true });
    expect(ended).toEqual(['bare']);
    const failures = () => log.lines.filter((line) => line.includes('may go on'));
    expect(failures()).toHaveLength(1);
    await clock.advanceAsync(600_000);
    expect(clock.pending).toBe(1);
    faults.tmux = false;
    await clock.advanceAsync(60_000);
    expect(clock.pending).toBe(0);
    expect(failures()).toHaveLength(1);
  });

  test('are tried again by what marks them, not by numbers that others may have by then', async () => {
    const { shellEnds, pair, clock, faults, asked, open } = await stage();
    const { session } = await pair();
    open(session, 'stubborn');
    faults.left = 1;
    expect(await shellEnds.end(session)).toEqual({ count: 1, isLeft: true });
    asked.length = 0;
    faults.left = 0;
    await clock.advanceAsync(1_000);
    expect(asked).toEqual([['stubborn'], ['stubborn']]);
    await clock.advanceAsync(600_000);
    expect(asked).toHaveLength(2);
  });

  test('are said to be left when nothing is known after five seconds', async () => {
    const { shellEnds, pair, clock, faults } = await stage();
    const { session } = await pair();
    faults.isHanging = true;
    const ending = shellEnds.end(session);
    await clock.advanceAsync(5_000);
    expect(await ending).toEqual({ count: 0, isLeft: true });
  });

  test('of a reduced grant are ended after a restart, too', async () => {
    const before = await stage();
    const { session } = await before.pair();
    before.faults.tmux = true;
    await before.sessions.reduce(session, { grants: { terminal: 1 } });
    await before.clock.advanceAsync(10_000);
    await before.shellEnds.stop();
    const paired = await before.restart();
    expect(paired.sessions.list()[0]?.terminalReduced).toBe(true);
    await stage(paired);
    await paired.clock.advanceAsync(0);
    expect(paired.sessions.list()[0]?.terminalReduced).toBeUndefined();
  });

  test('are left alone by a relay that stops', async () => {
    const { shellEnds, pair, clock, faults } = await stage();
    const { session } = await pair();
    faults.tmux = true;
    await shellEnds.end(session);
    await shellEnds.stop();
    expect(clock.pending).toBe(0);
  });
});

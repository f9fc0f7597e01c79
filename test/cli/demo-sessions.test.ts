import { describe, expect, it } from 'vitest';
import { createDemoSessions, DEMO_USER, SESSION_LIFETIME, TICKET_LIFETIME } from '../../cli/dashboard/demo-sessions.ts';
import { createTestClock } from '../support/clock.ts';

function start() {
  const clock = createTestClock();
  const sessions = createDemoSessions(clock);
  const signIn = () => (sessions.signIn(DEMO_USER, sessions.password) as { token: string }).token;
  return { clock, sessions, signIn };
}

describe('sign-in of the demo dashboard', () => {
  it('makes another password for each start', () => {
    const passwords = new Set(Array.from({ length: 20 }, () => createDemoSessions(createTestClock()).password));
    expect(passwords.size).toBe(20);
    for (const password of passwords) expect(password).toMatch(/^[A-Za-z0-9]{24}$/);
  });

  it('takes the one user with the whole password only', () => {
    const { sessions } = start();
    const { password } = sessions;
    for (const [user, given] of [
      [DEMO_USER, ''],
      [DEMO_USER, `${password} `],
      [DEMO_USER, password.slice(0, -1)],
      [DEMO_USER, undefined],
      [DEMO_USER, [password]],
      ['root', password],
      [undefined, password],
    ]) {
      expect(sessions.signIn(user, given)).toBe('rejected');
    }
    expect(sessions.signIn(DEMO_USER, password)).toEqual({ token: expect.stringMatching(/^[\w-]{43}$/) });
  });

  it('refuses everybody for a minute after ten wrong passwords', () => {
    const { clock, sessions } = start();
    for (let attempt = 0; attempt < 10; attempt++) expect(sessions.signIn(DEMO_USER, 'x')).toBe('rejected');
    expect(sessions.signIn(DEMO_USER, sessions.password)).toBe('limited');
    clock.advance(60_000);
    expect(sessions.signIn(DEMO_USER, sessions.password)).toHaveProperty('token');
  });

  it('ends a session by sign-out, by age and beyond 64', () => {
    const { clock, sessions, signIn } = start();
    const [first, second] = [signIn(), signIn()];
    sessions.signOut(first);
    expect([sessions.isSignedIn(first), sessions.isSignedIn(second)]).toEqual([false, true]);
    for (let count = 0; count < 64; count++) signIn();
    expect(sessions.isSignedIn(second)).toBe(false);
    const last = signIn();
    clock.advance(SESSION_LIFETIME - 1);
    expect(sessions.isSignedIn(last)).toBe(true);
    clock.advance(1);
    expect(sessions.isSignedIn(last)).toBe(false);
    expect(sessions.isSignedIn(undefined)).toBe(false);
  });

  it('takes a ticket once, for 30 s, while its session lives', () => {
    const { clock, sessions, signIn } = start();
    const token = signIn();
    const ticket = sessions.mintTicket(token);
    expect([sessions.consumeTicket(ticket), sessions.consumeTicket(ticket)]).toEqual([true, false]);
    const late = sessions.mintTicket(token);
    clock.advance(TICKET_LIFETIME);
    expect(sessions.consumeTicket(late)).toBe(false);
    const orphan = sessions.mintTicket(token);
    sessions.signOut(token);
    expect(sessions.consumeTicket(orphan)).toBe(false);
    expect([sessions.consumeTicket(null), sessions.consumeTicket('')]).toEqual([false, false]);
  });

  it('keeps the newest 256 tickets', () => {
    const { sessions, signIn } = start();
    const token = signIn();
    const tickets = Array.from({ length: 257 }, () => sessions.mintTicket(token));
    expect([sessions.consumeTicket(tickets[0] as string), sessions.consumeTicket(tickets[1] as string)]).toEqual([
      false,
      true,
    ]);
  });
});

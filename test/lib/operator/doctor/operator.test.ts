import { describe, expect, it } from 'vitest';
import type { ProbeResult } from '../../../../lib/host/probe.ts';
import { type OperatorFacts, operatorCheck, toolsCheck } from '../../../../lib/operator/doctor/operator.ts';

const FACTS: OperatorFacts = {
  requireKey: false,
  uids: [],
  hasKey: true,
  hasDesktopToken: false,
  own: 1000,
  listeners: [1000],
};

const answer = (status: number | null, error?: string): ProbeResult => ({
  ok: status === 200,
  exists: status !== null,
  status,
  method: 'GET',
  url: 'http://127.0.0.1:8767/relay/info',
  json: error === undefined ? undefined : { ok: false, error },
});

describe('relay-operator: which rule holds here (contract 01 §1.3 rule 6)', () => {
  it.each<[string, Partial<OperatorFacts>, ProbeResult, string, RegExp, RegExp?]>([
    ['the own user', {}, answer(200), 'ok', /^only user 1000 may operate the relay; any other needs the operator key$/],
    ['further users', { uids: [5, 6] }, answer(200), 'ok', /^only user 1000, 5, 6 may/],
    ['a relay of another user', { own: 0, listeners: [1000] }, answer(200), 'ok', /^only user 1000 may/],
    ['a relay that is not running', { listeners: [] }, answer(null), 'ok', /^only user 1000 may/],
    [
      'a system that does not tell',
      { listeners: 'untold' },
      answer(200),
      'warn',
      /does not tell .* any user of it can operate the relay/,
      /RELAY_REQUIRE_OPERATOR_KEY=1/,
    ],
    ['the key required there', { listeners: 'untold', requireKey: true }, answer(200), 'ok', /every caller needs/],
    ['the key required, and readable', { requireKey: true }, answer(200), 'ok', /every caller needs the operator key/],
    [
      'the key required by a variable that the relay has not read',
      { requireKey: true, hasKey: false },
      answer(200),
      'warn',
      /does not ask for it/,
      /Restart/,
    ],
    [
      'another user, who cannot read the key',
      { own: 1001, hasKey: false },
      answer(403, 'without X-Svc-Operator-Key only the user that runs the relay may call this'),
      'warn',
      /refuses this command: without X-Svc-Operator-Key only the user/,
      /Run this as user 1000, or name this user in RELAY_OPERATOR_UIDS/,
    ],
    [
      'a refusal where nothing is told',
      { listeners: 'untold', hasKey: false },
      answer(403),
      'warn',
      /HTTP 403/,
      /Run this as the user that runs the relay/,
    ],
  ])('%s', (_name, facts, info, status, summary, next) => {
    const check = operatorCheck({ ...FACTS, ...facts }, info);
    expect(check).toMatchObject({ id: 'relay-operator', status, summary: expect.stringMatching(summary) });
    if (next) expect(check.next).toMatch(next);
    else expect(check.next).toBeUndefined();
  });
});

describe('relay-host-tools: what tools of this machine send', () => {
  const sessions = answer(401, 'tools on this host send X-Svc-Operator: 1 instead');
  const desktop = answer(401, 'tools on this host send the token in DESKTOP_RELAY_TOKEN');
  const all = { info: answer(200), sessions, desktop };

  it('looks for both in the refusals of the relay', () => {
    expect(toolsCheck(FACTS, all).status).toBe('ok');
    expect(toolsCheck(FACTS, { ...all, sessions: answer(401) }).status).toBe('warn');
    expect(toolsCheck(FACTS, { ...all, desktop: answer(401) }).status).toBe('warn');
  });

  it('names the operator key where the relay requires it', () => {
    expect(toolsCheck(FACTS, all).summary).not.toContain('operator key');
    expect(toolsCheck({ ...FACTS, requireKey: true }, all).summary).toContain('X-Svc-Operator: 1 and the operator key');
  });

  it('looks for DESKTOP_RELAY_TOKEN in the environment', () => {
    expect(toolsCheck(FACTS, all).summary).toContain('DESKTOP_RELAY_TOKEN, which is not set here');
    expect(toolsCheck({ ...FACTS, hasDesktopToken: true }, all).summary).toContain('which is set here');
  });

  it('knows nothing while the relay does not answer, or refuses', () => {
    const none = { info: answer(null), sessions: answer(null), desktop: answer(null) };
    expect(toolsCheck(FACTS, none)).toMatchObject({
      status: 'warn',
      isUnknown: true,
      summary: expect.stringContaining('not known'),
    });
  });
});

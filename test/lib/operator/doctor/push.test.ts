import { expect, it } from 'vitest';
import type { ProbeResult } from '../../../../lib/host/probe.ts';
import { pushCheck } from '../../../../lib/operator/doctor/push.ts';

const NOW = 1_790_000_000_000;
const HOST = 'push.example';

const answer = (status: number | null, json?: unknown): ProbeResult => ({
  ...{ ok: status === 200, exists: status !== null, status, method: 'GET', url: 'http://r', json },
  ...(status === null && { error: 'connection refused' }),
});

const look = (facts: object) =>
  pushCheck(answer(200, { subscriptions: 2, contact: 'mailto:me@example.com', services: [], ...facts }), NOW);

const service = (result: string, status: number | null, error: string | null = null) => ({
  services: [{ host: HOST, at: NOW - 12 * 60_000, result, status, error }],
});

it('is fine without a subscription, and when every service took its last call', () => {
  expect(look({ subscriptions: 0, contact: null })).toMatchObject({ status: 'ok' });
  for (const taken of [service('sent', 201), service('gone', 410)]) {
    expect(look(taken)).toEqual({
      id: 'relay-push',
      status: 'ok',
      summary: '2 devices ask to be called to messages; push.example took the last call 12 min ago',
    });
  }
});

it('a service that took no call is a warning that says what to do', () => {
  const failures: [object, string, string][] = [
    [service('refused', 403), 'answered 403', 'off and on again'],
    [{ ...service('refused', 403), contact: null }, 'answered 403', 'RELAY_PUSH_CONTACT'],
    [service('later', 503), 'answered 503', 'by itself'],
    [service('later', null, 'ENOTFOUND'), 'gave no answer (ENOTFOUND)', 'curl -I https://push.example/'],
  ];
  for (const [facts, summary, next] of failures) {
    expect(look(facts)).toMatchObject({
      status: 'warn',
      summary: expect.stringContaining(`${HOST} ${summary} 12 min ago`),
      next: expect.stringContaining(next),
    });
  }
});

it('what is not known is not fine: no answer, no call yet, no address of the operator', () => {
  for (const none of [answer(null), answer(404, {}), answer(403, {}), answer(200, {}), answer(200, 'x')]) {
    expect(pushCheck(none, NOW)).toMatchObject({ status: 'warn', isUnknown: true });
  }
  expect(look({})).toMatchObject({ status: 'warn', isUnknown: true, next: expect.stringContaining('svc phone send') });
  expect(look({ contact: null, ...service('sent', 201) })).toMatchObject({
    status: 'warn',
    next: expect.stringContaining('RELAY_PUSH_CONTACT'),
  });
});

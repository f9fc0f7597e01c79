import { expect, it } from 'vitest';
import type { ProbeResult } from '../../../../lib/host/probe.ts';
import { mirrorChecks } from '../../../../lib/operator/doctor/mirror.ts';

const NOW = Date.UTC(2026, 10, 24, 14, 2);
const URL = 'https://relay.example';

const answer = (json: unknown, status = 200): ProbeResult => ({
  ...{ ok: status === 200, exists: true, status, method: 'GET', url: 'http://r', json },
});
const mirror = (facts: object) => ({
  ...{ ok: true, enabled: true, url: URL, link: 'up', since: NOW / 1000 - 3600, waiting: { out: 0, in: 0 } },
  ...facts,
});
const look = (facts: object) => mirrorChecks(answer(mirror(facts)), NOW);

it('says nothing without a mirror, or of a relay that does not say', () => {
  expect(look({ enabled: false })).toEqual([]);
  expect(mirrorChecks(answer(undefined, 404), NOW)).toEqual([]);
});

it('says that both sides are in step, and what waits', () => {
  expect(look({})).toEqual([
    { id: 'relay-mirror', status: 'ok', summary: 'linked with the edge https://relay.example, in step' },
  ]);
  expect(look({ waiting: { out: 1, in: 0 } })[0]?.summary).toMatch(/, 1 change waits$/);
  expect(look({ url: null })[0]?.summary).toBe('linked with home, in step');
});

it('warns of an upload that cannot be taken over', () => {
  expect(look({ uploads: { count: 1, bytes: 5, error: 'the disk says ENOSPC' } })).toEqual([
    {
      id: 'relay-mirror',
      status: 'warn',
      summary: 'an upload could not be taken over from the edge: the disk says ENOSPC',
      next: 'The edge keeps it. See how many wait with: svc relay mirror status',
    },
  ]);
  expect(look({ uploads: { count: 1, bytes: 5 } })[0]?.status).toBe('ok');
});

it('warns of a link that is down for five minutes, with since when and why', () => {
  const down = { link: 'down', waiting: { out: 3, in: 0 } };
  expect(look({ ...down, since: NOW / 1000 - 60 })[0]?.status).toBe('ok');
  expect(look({ ...down, error: 'connection refused' })).toEqual([
    {
      id: 'relay-mirror',
      status: 'warn',
      summary:
        'not linked with the edge https://relay.example since 2026-11-24 13:02 UTC, 3 changes wait (connection refused)',
      next: 'See the link with: svc relay mirror status',
    },
  ]);
  expect(look({ ...down, url: null })[0]).toMatchObject({
    status: 'warn',
    summary: 'home is off since 2026-11-24 13:02 UTC, 3 changes wait',
  });
});

it('says whether the mailbox is sealed, and which devices make it plain', () => {
  const mailbox = (facts: object) => look({ mailbox: { plain: [], plain_count: 0, ...facts } })[1];
  expect(mailbox({ sealed: true })).toMatchObject({ id: 'relay-mailbox', status: 'ok' });
  expect(mailbox({ sealed: false, reason: 'no_device' })).toBe(undefined);
  const plain = [
    { name: 'Pixel 9', reason: 'no_key' },
    { name: 'Tab', reason: 'no_home_key' },
  ];
  expect(mailbox({ sealed: false, plain, plain_count: 3 })).toMatchObject({
    status: 'warn',
    summary: "the mailbox at the edge is plain: Pixel 9 sends no key, Tab has yet to take home's key, and 1 more",
  });
});

import { describe, expect, it } from 'vitest';
import { mirrorText } from '../../cli/mirror.ts';
import { agentHome, fakeRelay, run } from '../support/cli.ts';

describe('svc relay mirror disable (contract 12 §1)', () => {
  it('says why home does not recall, and does not begin a recall that was refused', async () => {
    const edge = await fakeRelay(() => ({ body: { ok: true, messages: 1, waiting: { out: 0, in: 0 } } }));
    const url = `http://127.0.0.1:${edge.port}`;
    const home = await fakeRelay(({ method, body }) =>
      method === 'POST' && body?.recall === true
        ? { status: 409, body: { ok: false, error: 'there is no link to the edge' } }
        : { body: { ok: true, enabled: true, url, link: 'up' } },
    );
    const agent = agentHome();
    const env = { SVC_HOME: agent, HOME: agent, RELAY_PORT: String(home.port) };
    await run(['relay', 'operator-token', '--public-key'], { env });
    const { code, stderr } = await run(['relay', 'mirror', 'disable'], { env });
    expect(code).toBe(1);
    expect(stderr).toContain(
      `1 item waits at ${url} for this relay, and cannot be brought home now: there is no link to the edge (HTTP 409); nothing was changed`,
    );
    const asked = home.seen.filter(({ method }) => method !== 'GET');
    expect(asked.map(({ method, body }) => [method, body])).toEqual([
      ['POST', { recall: true }],
      ['POST', { recall: false }],
    ]);
  });
});

it('names no time for a link that has never been up', () => {
  const mirror = { enabled: true, link: 'down', since: null, waiting: { out: 0 } };
  expect(mirrorText(mirror, true)).toBe('home off');
  expect(mirrorText(mirror, false)).toBe('home: up · edge: not linked');
  expect(mirrorText({ ...mirror, since: Date.UTC(2026, 10, 24) / 1000 }, true)).toMatch(/^home off since \d\d:\d\d$/);
});

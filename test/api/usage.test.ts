import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { startFakeApi } from '../support/fake-api-server.ts';
import { bearer, describeMatrix, pair, type Target } from '../support/relay.ts';

const ON = { RELAY_PROVIDER_USAGE_ENABLED: 'yes' };

async function ask(target: Target, token: string, query = '') {
  const response = await target.fetch(`/usage/providers${query}`, { headers: bearer(token) });
  return { status: response.status, body: await response.json() };
}

describeMatrix('GET /usage/providers (contract 04 §9)', (start, runtime) => {
  if (runtime === 'edge') {
    it.each([{}, ON])('needs a host: 401 without a bearer, else 501, with %j', async (env) => {
      const target = await start({ env });
      const { token } = await pair(target);
      expect((await target.operator('/usage/providers')).status).toBe(401);
      expect(await ask(target, token)).toMatchObject({ status: 501, body: { error: expect.stringContaining('host') } });
    });
    return;
  }

  it('is off by default: 401 without a bearer, else 404', async () => {
    const target = await start();
    const { token } = await pair(target);
    expect((await target.operator('/usage/providers')).status).toBe(401);
    expect(await ask(target, token, '?profile=..')).toEqual({
      status: 404,
      body: { ok: false, error: 'provider usage is not enabled here' },
    });
  });

  it('refuses an unknown profile', async () => {
    const target = await start({ env: ON });
    const { token } = await pair(target);
    expect((await target.fetch('/usage/providers')).status).toBe(401);
    for (const profile of ['nobody', '..', 'a%2Fb', '%00']) {
      expect(await ask(target, token, `?profile=${profile}`)).toEqual({
        status: 400,
        body: { ok: false, error: 'invalid or unknown profile' },
      });
    }
  });

  it('calls providers with the credentials of the host and reveals none of them', async () => {
    const api = await startFakeApi();
    api.onAny((exchange) => exchange.answer(200, { usage: { weekly: { percent: 50 } } }));
    const target = await start({ env: { ...ON, RELAY_LOG_LEVEL: 'DEBUG' } });
    const { token } = await pair(target);
    await writeFile(join(target.agentHome, '.env'), `OPENCODE_GO_API_KEY=5ecret\nOPENCODE_GO_BASE_URL=${api.url}\n`);
    const { status, body } = await ask(target, token, '?profile=%20Default%20&session_id=s1');
    expect(status).toBe(200);
    expect(body).toMatchObject({ schema_version: 2, fetched_at: expect.stringMatching(/Z$/) });
    expect(body.providers.map(({ id, status }: Record<string, string>) => [id, status])).toEqual([
      ['openai-codex', 'not_configured'],
      ['nous', 'not_configured'],
      ['opencode-go', 'available'],
      ['supergrok', 'not_configured'],
    ]);
    const keys =
      'id display_name status source fetched_at plan renews_at action_url message windows details balances credentials ' +
      'active_credential_id active_credential_state active_observed_at';
    for (const provider of body.providers) expect(Object.keys(provider).join(' ')).toBe(keys);
    expect(body.providers[2].windows).toEqual([
      { id: 'weekly', label: 'Weekly', used_percent: 50, reset_at: null, detail: null },
    ]);
    expect(api.requests[0]?.headers.authorization).toBe('Bearer 5ecret');
    expect(JSON.stringify(body) + target.log.join()).not.toContain('5ecret');
  });
});

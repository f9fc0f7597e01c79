import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { readConfig } from '../../../../lib/config.ts';
import type { IdentityFacts } from '../../../../lib/host/identity.ts';
import { createIdentities } from '../../../../lib/host/node/identity.ts';
import { readSecureLink, type SecureLinkFacts, secureLinkChecks } from '../../../../lib/operator/doctor/secure-link.ts';
import { createTestHost } from '../../../support/host.ts';

const NOW = Date.UTC(2026, 10, 22);
const identities = createIdentities();

/** A healthy Secure Link, with some facts replaced. */
async function factsWith(more: Partial<SecureLinkFacts> = {}, link: object = {}): Promise<SecureLinkFacts> {
  const pem = await identities.generate('10.0.0.1', NOW);
  const facts = identities.read(pem) as IdentityFacts;
  const answer = (url: string, json: unknown) => ({
    ok: true,
    exists: true,
    status: 200,
    method: 'GET' as const,
    url,
    json,
  });
  const key = { isLoose: false, isOwn: true };
  const proxy = { url: 'https://10.0.0.1:9443', pin_sha256: facts.pin };
  const secure_link = {
    status: 'available',
    reach: { state: 'connected', broker_url: 'wss://reach.example' },
    ...link,
  };
  return {
    now: NOW,
    found: { kind: 'found', files: { cert: '/c.pem', key: '/k.pem' }, pem, facts, key },
    health: answer('/health', { secure_link, secure_proxy: { proxy } }) as SecureLinkFacts['health'],
    gate: answer('/api/health', { auth_required: true }) as SecureLinkFacts['health'],
    served: facts.pin,
    ...more,
  };
}

const statuses = (facts: SecureLinkFacts) =>
  Object.fromEntries(
    secureLinkChecks(facts, 'http://dashboard').map(({ id, status }) => [id.replace('secure-link-', ''), status]),
  );

it('the checks of a healthy Secure Link are ok (contract 08)', async () => {
  const checks = secureLinkChecks(await factsWith(), 'http://dashboard');
  expect(checks.filter(({ status }) => status !== 'ok')).toEqual([]);
  expect(checks.map(({ id }) => id.replace('secure-link-', ''))).toEqual([
    'identity',
    'listener',
    'pin',
    'dashboard',
    'reach',
  ]);
  expect(checks[0]?.summary).toContain('10.0.0.1, valid until 2036-11-19');
});

it('each check sees its own fault', async () => {
  const healthy = await factsWith();
  expect(statuses({ ...healthy, now: NOW + 3640 * 86_400_000 }).identity).toBe('warn');
  expect(statuses({ ...healthy, now: NOW + 3651 * 86_400_000 }).identity).toBe('error');
  expect(statuses(await factsWith({}, { status: 'unavailable', reason: 'x' })).listener).toBe('error');
  expect(statuses(await factsWith({}, { status: 'disabled' })).listener).toBe('warn');
  expect(statuses({ ...healthy, served: null }).pin).toBe('warn');
  expect(statuses({ ...healthy, served: 'sha256/other' }).pin).toBe('error');
  expect(statuses({ ...healthy, found: (await factsWith()).found }).pin).toBe('warn');
  expect(statuses({ ...healthy, gate: null }).dashboard).toBe('error');
  expect(statuses({ ...healthy, gate: { ...healthy.health } }).dashboard).toBe('warn');
  expect(statuses(await factsWith({}, { reach: { state: 'backoff', last_error: 'unauthorized' } })).reach).toBe('warn');
  expect(statuses(await factsWith({}, { reach: { state: 'disabled' } }))).not.toHaveProperty('reach');
});

it('a Secure Link that only the flags of the running relay enable is examined too', async () => {
  const agentHome = await mkdtemp(join(tmpdir(), 'svc-relay-test-'));
  onTestFinished(() => rm(agentHome, { recursive: true, force: true }));
  const host = createTestHost({ agentHome });
  const { health } = await factsWith();
  const of = (enabled: boolean, env: Record<string, string> = {}) =>
    readSecureLink({
      config: readConfig(env, { home: agentHome, agentHome }).config,
      host,
      now: NOW,
      health: Promise.resolve({ ...health, json: { secure_link: { enabled, status: 'available' } } } as typeof health),
      probe: () => Promise.resolve(health),
      timeout: 1000,
    });
  expect(await of(false)).toBeUndefined();
  expect(await of(true)).toMatchObject({ found: { kind: 'none' }, health: { ok: true } });
  expect(await of(false, { RELAY_SECURE_LINK_ENABLED: '1' })).toMatchObject({ health: { ok: true } });
});

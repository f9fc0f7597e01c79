import { describe, expect, it } from 'vitest';
import type { ProbeResult } from '../../../../lib/host/probe.ts';
import { type DoctorDeps, diagnose } from '../../../../lib/operator/doctor/doctor.ts';
import { groupChecks } from '../../../../lib/operator/doctor/groups.ts';
import { createTestClock } from '../../../support/clock.ts';
import { createTestHost } from '../../../support/host.ts';
import { temporaryDirectory } from '../../../support/temp.ts';

const API = 'http://api';
const DASHBOARD = 'http://dashboard';
const RELAY = 'http://127.0.0.1:8767';

type Answer = number | 'silent';

/** Findings that are not fine, with what they cover, where servers answer with these statuses by the start of a URL. */
async function findingsWith(answers: Record<string, Answer>) {
  const host = createTestHost({ agentHome: await temporaryDirectory(), env: {} });
  const probe: DoctorDeps['probe'] = async (method, url): Promise<ProbeResult> => {
    const [, answer = 200] = Object.entries(answers).find(([start]) => url.startsWith(start)) ?? [];
    if (answer === 'silent') {
      return { ok: false, exists: false, status: null, method, url, error: 'connection refused' };
    }
    const json = { version: '1.0.0', components: {}, devices: [], subscriptions: 0, services: [], contact: null };
    return { ok: answer < 400, exists: answer !== 404, status: answer, method, url, json };
  };
  const never = () => new Promise<never>(() => {});
  const diagnosis = await diagnose({
    version: '1.0.0',
    host,
    clock: createTestClock(),
    probe,
    modules: { relay: async () => {}, terminal: async () => {} },
    compat: { host, pluginDirectory: null, root: host.agentHome, load: never },
    service: { host, port: 8767, home: host.agentHome, unit: { node: '/n', script: '/s', agentHome: '/h' } },
    api: { url: API, source: null },
    dashboard: { url: DASHBOARD, source: null },
    relay: { port: 8767, tls: false },
    operator: { requireKey: true, uids: [], hasKey: true, hasDesktopToken: false },
    process: async () => null,
    timeout: 2000,
  });
  const findings = groupChecks(diagnosis).flatMap(({ checks }) => checks);
  const shown = findings.flatMap(({ id, covers = [] }) => [id, ...covers]).filter((id) => id !== 'agent');
  expect(shown.sort()).toEqual(diagnosis.checks.map(({ id }) => id).sort());
  const problems = findings.filter(({ id, status, isUnknown }) => (status !== 'ok' || isUnknown) && !OTHERS.has(id));
  return Object.fromEntries(problems.map(({ id, covers = [] }) => [id, covers]));
}

/** Findings about this machine, its installation and a gateway that has written no files. */
const OTHERS = new Set([
  ...['plugin-root', 'dashboard-plugin', 'relay-host-tools', 'relay-tls', 'relay-service', 'relay-tmux'],
  ...['relay-descriptors', 'relay-disk', 'gateway-heartbeat', 'gateway-prior-exit', 'legacy-bootstrap'],
]);

const PAGES = ['dashboard-manage-surface', 'dashboard-session-prune', 'dashboard-audio', 'dashboard-ws-ticket'];

describe('one cause is one finding', () => {
  it('a machine with everything has none', async () => {
    expect(await findingsWith({})).toEqual({});
  });

  it('a missing dashboard', async () => {
    expect(await findingsWith({ [DASHBOARD]: 'silent' })).toEqual({
      'dashboard-status': ['dashboard-component-health', ...PAGES],
    });
  });

  it('a missing API server, with what its gateway has not written', async () => {
    expect(await findingsWith({ [API]: 'silent' })).toEqual({
      'api-capabilities': ['api-toolsets', 'gateway-heartbeat', 'gateway-prior-exit'],
    });
  });

  it('a missing agent', async () => {
    const { agent, ...rest } = await findingsWith({ [API]: 'silent', [DASHBOARD]: 'silent' });
    expect(rest).toEqual({});
    expect(agent).toEqual([
      ...['api-capabilities', 'api-toolsets', 'dashboard-status', 'dashboard-component-health'],
      ...['gateway-heartbeat', 'gateway-prior-exit', ...PAGES],
    ]);
  });

  it('another server in place of the dashboard, and one that fails or wants a sign-in', async () => {
    const other = { [`${DASHBOARD}/v1/capabilities`]: 200, [DASHBOARD]: 404 } as const;
    expect(Object.keys(await findingsWith(other))).toEqual(['dashboard-manage-surface']);
    for (const status of [401, 503]) {
      const found = await findingsWith({ [`${DASHBOARD}/v1`]: 404, [`${DASHBOARD}/api/status`]: status });
      expect(found).toEqual({ 'dashboard-status': ['dashboard-component-health', 'dashboard-manage-surface'] });
    }
  });

  it('a route that alone is missing stays a finding of its own', async () => {
    expect(await findingsWith({ [`${DASHBOARD}/api/audio`]: 404, [`${API}/v1/toolsets`]: 404 })).toEqual({
      'api-toolsets': [],
      'dashboard-audio': [],
    });
  });

  it('a relay that does not run, or refuses this user', async () => {
    const silent = await findingsWith({ [RELAY]: 'silent' });
    expect(Object.keys(silent)).toEqual(['relay-loopback']);
    expect(silent['relay-loopback']).toEqual(expect.arrayContaining(['relay-devices', 'relay-push']));
    const refused = await findingsWith({ [RELAY]: 401 });
    expect(Object.keys(refused)).toEqual(['relay-operator']);
    expect(refused['relay-operator']).toContain('relay-loopback');
  });
});

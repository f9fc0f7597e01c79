import { mkdir, symlink, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { agentHome, fakeRelay, run } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { startWatch } from '../support/cpu.ts';
import { type Broken, fakeStack } from '../support/fake-stack.ts';
import { TIMED } from '../support/limits.ts';

// Transformed before the first check: that takes seconds on a busy machine, and every check has two.
await import('../../cli/runtime/node/relay.ts');

interface Report {
  checks: { id: string; status: string; summary: string }[];
  [name: string]: unknown;
}

/** A check may take long on a busy machine. */
const PATIENT = ['--timeout', '60'];
const OPERATOR_KEY = 'k'.repeat(43);

type Stack = Awaited<ReturnType<typeof fakeStack>>;

async function report(stack: Stack, ...words: string[]): Promise<{ code: number; report: Report }> {
  const { code, stdout } = await run(['relay', 'doctor', '--json', ...PATIENT, ...words], stack);
  return { code, report: JSON.parse(stdout) };
}

const ids = (checks: Report['checks'], status: string) => checks.filter((c) => c.status === status).map(({ id }) => id);

async function put(path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, text);
}

const ORDER = [
  'plugin-root',
  'dashboard-plugin',
  'plugin-name-unique',
  'api-capabilities',
  'api-toolsets',
  'dashboard-status',
  'dashboard-component-health',
  'gateway-heartbeat',
  'gateway-prior-exit',
  'dashboard-manage-surface',
  'dashboard-session-prune',
  'dashboard-audio',
  'dashboard-ws-ticket',
  'relay-import-chain',
  'relay-loopback',
  // Contract 01 §1.3 rule 6.
  'relay-operator',
  'relay-host-tools',
  // Issue 16.
  'relay-tls',
  'relay-address',
  'relay-devices',
  'relay-push',
  'relay-tmux',
  'relay-descriptors',
  'relay-node',
  'relay-disk',
  'relay-service',
  'legacy-bootstrap',
];

describe('doctor on a healthy stack (07 §5.2)', () => {
  test('every check is ok and in order: exit 0, even with --strict', async () => {
    const stack = await fakeStack();
    const { code, report: found } = await report(stack, '--strict');
    expect(found.checks.filter(({ status }) => status !== 'ok')).toEqual([]);
    expect(found.checks.map(({ id }) => id)).toEqual(ORDER);
    expect(code).toBe(0);
  });

  test('the JSON has the members of the contract, and a check has only three', async () => {
    const stack = await fakeStack();
    const { report: found } = await report(stack);
    expect(found).toEqual({
      schema_version: 1,
      frozen: null,
      plugin: {
        name: 'svc-relay',
        version: '1.0.0',
        layout: {
          plugin_dir: stack.directory,
          has_plugin_yaml: true,
          has_register_init: true,
          has_dashboard_manifest: true,
          looks_like_user_plugin: false,
          recommended_install_identifier: 'svc-relay',
        },
        plugins_dir: `${stack.home}/plugins`,
        duplicate_dirs: [],
      },
      standard: {
        api_url: stack.env.SVC_API_URL,
        dashboard_url: stack.env.SVC_DASHBOARD_URL?.replace(/\/$/, ''),
        api: {
          capabilities: {
            ok: true,
            exists: true,
            status: 200,
            method: 'GET',
            url: `${stack.env.SVC_API_URL}/v1/capabilities`,
            json: { object: 'capabilities' },
          },
          toolsets: expect.objectContaining({ ok: false, exists: true, status: 401 }),
        },
        dashboard: {
          status: expect.objectContaining({ ok: true, status: 200 }),
          component_health: {
            supported: true,
            overall: 'ok',
            components: [
              { name: 'gateway', status: 'ok', healthy: true },
              { name: 'cron', status: 'Ready', healthy: true },
            ],
          },
          audio_transcribe: expect.objectContaining({ method: 'HEAD', exists: true, status: 405 }),
          ws_ticket: expect.objectContaining({ method: 'POST', exists: true, status: 401 }),
          capabilities: expect.objectContaining({ exists: false, status: 404 }),
          sessions_prune: expect.objectContaining({ method: 'HEAD', exists: true, status: 405 }),
          manage_surface: { kind: 'dashboard', summary: expect.any(String), recommendation: null },
        },
      },
      relay: {
        port: Number(stack.env.RELAY_PORT),
        info: expect.objectContaining({ ok: true, json: { version: '1.0.0', health: 'ok' } }),
        import_chain: { ok: true, module: 'terminal', error: null },
      },
      gateway_heartbeat: { status: 'missing', supported: false },
      gateway_prior_exit: { prior_exit: 'unknown' },
      bootstrap: {
        package_importable: true,
        package_path: `${stack.directory}/dist/cli/compat/index.js`,
        hook_files: [],
        installed: false,
        mode: 'legacy-compatibility',
        recommendation: null,
      },
      lifecycle: { service: expect.objectContaining({ systemd: 'absent', installed: false }) },
      checks: expect.any(Array),
    });
    for (const check of found.checks) expect(Object.keys(check)).toEqual(['id', 'status', 'summary']);
  });

  test('read-only: no credentials, no bodies, never a POST that deletes', async () => {
    const stack = await fakeStack();
    await put(join(stack.home, '.env'), 'API_SERVER_KEY=sk-secret-1234567890\nDESKTOP_RELAY_TOKEN=secret-token\n');
    await put(join(stack.home, 'svc-relay/operator-key'), OPERATOR_KEY);
    const { stdout } = await run(['relay', 'doctor', '--json', ...PATIENT], stack);
    const seen = stack.seen();
    expect(seen.map(({ method, path }) => `${method} ${path}`).sort()).toEqual([
      'GET /api/status',
      'GET /desktop/health',
      'GET /health',
      'GET /push/status',
      'GET /relay/devices',
      'GET /relay/info',
      'GET /relay/mirror',
      'GET /sessions',
      'GET /v1/capabilities',
      'GET /v1/capabilities',
      'GET /v1/toolsets',
      'HEAD /api/audio/transcribe',
      'HEAD /api/sessions/prune',
      'POST /api/auth/ws-ticket',
    ]);
    for (const { headers, body } of seen) {
      expect(body).toBeUndefined();
      expect([headers.authorization, headers.cookie, headers['x-svc-operator']]).toEqual([
        undefined,
        undefined,
        undefined,
      ]);
    }
    expect(stdout + JSON.stringify(seen)).not.toMatch(/sk-secret|secret-token/);
    // Contract 01 §1.3 rule 6: every command sends the operator key to the relay, and to nobody else.
    const keyed = seen.filter(({ headers }) => headers['x-svc-operator-key'] === OPERATOR_KEY).map(({ path }) => path);
    expect(keyed.sort()).toEqual([
      '/desktop/health',
      '/health',
      '/push/status',
      '/relay/devices',
      '/relay/info',
      '/relay/mirror',
      '/sessions',
    ]);
    expect(stdout).not.toContain(OPERATOR_KEY);
  });

  test('the text is aligned, and coloured only on a terminal without NO_COLOR', async () => {
    const stack = await fakeStack();
    const plain = await run(['relay', 'doctor', ...PATIENT], stack);
    expect(plain).toMatchObject({ code: 0, stderr: '' });
    expect(plain.stdout).not.toContain('\u001b');
    expect(plain.stdout).toMatch(/^svc-relay 1\.0\.0\n {2}Installed in {2}\//);
    const rows = plain.stdout.split('\n').filter((row) => /\[(?:OK|--)\]/.test(row));
    expect(rows).toHaveLength(ORDER.length);
    for (const row of rows) expect(row).toMatch(/^ {5}\[(?:OK|--)\] [a-z-]+: \S/);
    // Nothing is known of a gateway that has written no file: that is not called fine.
    expect(plain.stdout).toMatch(/\[--\] gateway-heartbeat: [\s\S]*\[--\] gateway-prior-exit: /);
    expect(plain.stdout.trimEnd()).toMatch(/25 checks are fine, 2 not known\.$/);
    expect(plain.stdout).toMatch(
      /\nRelay\n +\[OK\] plugin-root[\s\S]*\nAgent\n +\[OK\] api-[\s\S]*\nDashboard\n +\[OK\] dashboard-status/,
    );

    const coloured = await run(['relay', 'doctor', ...PATIENT], { ...stack, tty: true });
    expect(coloured.stdout).toContain('\u001b[32m[OK]\u001b[39m plugin-root');
    const silent = await run(['relay', 'doctor', ...PATIENT], {
      ...stack,
      tty: true,
      env: { ...stack.env, NO_COLOR: '1' },
    });
    expect(silent.stdout).toBe(plain.stdout);
  });
});

const gone = { status: 404 };

/** The broken part, the check that must report it, its status, and words of the advice. */
const cases: [name: string, broken: Broken, id: string, status: string, fix: RegExp][] = [
  ['no plugin.yaml', { files: { 'plugin.yaml': '' } }, 'plugin-root', 'error', /Install svc-relay again/],
  ["another's plugin.yaml", { files: { 'plugin.yaml': 'name: x\n' } }, 'plugin-root', 'error', /Install svc-relay/],
  ['no entry', { files: { 'dist/cli/svc-relay.js': '' } }, 'plugin-root', 'error', /npm run build/],
  ['no manifest', { files: { 'dashboard/manifest.json': '' } }, 'dashboard-plugin', 'warn', /dashboard plugin/],
  ['no capabilities', { api: { 'GET /v1/capabilities': gone } }, 'api-capabilities', 'warn', /Update the agent/],
  [
    'a key is wanted',
    { api: { 'GET /v1/capabilities': { status: 401 } } },
    'api-capabilities',
    'warn',
    /requires a key/,
  ],
  ['failing API', { api: { 'GET /v1/capabilities': { status: 500 } } }, 'api-capabilities', 'warn', /own log/],
  ['no toolsets', { api: { 'GET /v1/toolsets': gone } }, 'api-toolsets', 'warn', /Update the agent/],
  [
    'a sign-in is wanted',
    { dashboard: { 'GET /api/status': { status: 401 } } },
    'dashboard-status',
    'warn',
    /requires a sign-in/,
  ],
  ['failing status', { dashboard: { 'GET /api/status': { status: 503 } } }, 'dashboard-status', 'warn', /own log/],
  [
    'an ill component',
    { dashboard: { 'GET /api/status': { body: { components: [{ name: 'cron', state: 'down' }] } } } },
    'dashboard-component-health',
    'warn',
    /Restart these components/,
  ],
  [
    'an ended sign-in',
    { dashboard: { 'GET /api/status': { body: { nous_session_valid: 'terminal' } } } },
    'dashboard-nous-session',
    'warn',
    /Sign in again/,
  ],
  [
    'an API server in its place',
    { dashboard: { 'GET /api/status': gone, 'GET /v1/capabilities': { body: {} } } },
    'dashboard-manage-surface',
    'warn',
    /--dashboard-url/,
  ],
  ['no pruning', { dashboard: { 'HEAD /api/sessions/prune': gone } }, 'dashboard-session-prune', 'warn', /Update/],
  ['no audio', { dashboard: { 'HEAD /api/audio/transcribe': gone } }, 'dashboard-audio', 'warn', /Update/],
  ['no tickets', { dashboard: { 'POST /api/auth/ws-ticket': gone } }, 'dashboard-ws-ticket', 'warn', /Update/],
  [
    'a relay that refuses this user',
    { relay: { 'GET /relay/info': { status: 403, body: { error: 'only the user that runs the relay' } } } },
    'relay-operator',
    'warn',
    /Run this as .* RELAY_OPERATOR_UIDS/,
  ],
  [
    'a relay that names no header for tools',
    { relay: { 'GET /sessions': { status: 401 } } },
    'relay-host-tools',
    'warn',
    /Restart the relay/,
  ],
  [
    'a relay that does not name DESKTOP_RELAY_TOKEN',
    { relay: { 'GET /desktop/health': { status: 401 } } },
    'relay-host-tools',
    'warn',
    /Restart the relay/,
  ],
  ['no relay there', { relay: { 'GET /relay/info': gone } }, 'relay-loopback', 'warn', /Something else may listen/],
];

describe('doctor names each broken part and the fix', () => {
  test.each(cases)('%s', async (_name, broken, id, status, fix) => {
    const stack = await fakeStack(broken);
    const { code, report: found } = await report(stack);
    expect(found.checks.find((check) => check.id === id)?.status).toBe(status);
    expect(code).toBe(status === 'error' ? 1 : 0);
    const strict = await report(stack, '--strict');
    expect(strict.code).toBe(1);
    // Contract 11 §1: what every document of a failure has.
    expect(strict.report).toMatchObject({ ok: false, error: expect.stringMatching(/^[\w-]+: ./) });
    expect(strict.report).toHaveProperty('next');

    const { stdout } = await run(['relay', 'doctor', ...PATIENT], stack);
    const rows = stdout.split('\n');
    const at = rows.findIndex((row) => row.includes(`[${status.toUpperCase()}] ${id}: `));
    expect(at).toBeGreaterThan(0);
    expect(rows[at + 1]).toMatch(/^ {10}Fix: \S/);
    expect(rows[at + 1]).toMatch(fix);
    expect(stdout.trimEnd()).toMatch(/(?:error|warning)s?(?:, \d+ not known)?\.$/);
  });

  test('services that are not running, and a relay that is not started', async () => {
    const port = await closedPort();
    const url = `http://127.0.0.1:${port}`;
    const stack = await fakeStack();
    const words = ['--api-url', url, '--dashboard-url', url, '--relay-port', String(port)];
    const { code, report: found } = await report(stack, ...words);
    expect(code).toBe(0);
    expect(ids(found.checks, 'warn')).toEqual([
      'api-capabilities',
      'api-toolsets',
      'dashboard-status',
      'dashboard-component-health',
      'dashboard-manage-surface',
      'dashboard-session-prune',
      'dashboard-audio',
      'dashboard-ws-ticket',
      'relay-loopback',
      // Nobody answers about these: not known is not fine.
      'relay-host-tools',
      'relay-address',
      'relay-devices',
      'relay-push',
    ]);
    expect(found).toMatchObject({ standard: { dashboard: { manage_surface: { kind: 'unreachable' } } } });
    expect(stack.seen()).toEqual([]);
    const { stdout } = await run(['relay', 'doctor', ...PATIENT, ...words], stack);
    expect(stdout).toContain('Fix: Start it with: svc relay start');
    // An agent that does not run is one line.
    expect(stdout.match(/ {10}Fix: /g)).toHaveLength(2);
    expect(stdout).toMatch(/\[WARN\] agent: it does not run: .*\n {10}Fix: Start the agent, or say where it is/);
    expect(stdout).not.toMatch(/\] (?:api-|dashboard-(?!plugin))/);
    // So is a relay that does not run, and nothing beside it is not known.
    expect(stdout).toMatch(/\n {10}Same cause: relay-host-tools, relay-address, relay-devices, relay-push\n/);
    expect(stdout).toMatch(/\n2 warnings\.\n$/);
  });

  test('wraps lines between words, on a terminal only', async () => {
    const port = await closedPort();
    const stack = await fakeStack();
    const words = ['relay', 'doctor', ...PATIENT, '--api-url', `http://127.0.0.1:${port}`];
    const wide = await run(words, stack);
    const narrow = await run(words, { ...stack, env: { ...stack.env, NO_COLOR: '1' }, tty: true, columns: 60 });
    const long = narrow.stdout.split('\n').filter((row) => row.length > 60 && /^ {10}\S+ /.test(row));
    expect(long).toEqual([]);
    expect(narrow.stdout).toMatch(/\n {10}Fix: Start the agent's API server, or say where it\n {10}is with /);
    const joined = (text: string) => text.replace(/\s+/g, ' ');
    expect(joined(narrow.stdout)).toBe(joined(wide.stdout));
    expect(wide.stdout).toContain("Fix: Start the agent's API server, or say where it is with --api-url");
  });

  test('the gateway heartbeat: stale, malformed, of another process; and its prior exit', async () => {
    const { env, ownPackage, home } = await fakeStack();
    const heartbeat = (pid: number) => JSON.stringify({ pid, updated_at: '2020-01-01T00:00:00Z' });
    const files: [string, string, string][] = [
      ['stale', heartbeat(7), '7'],
      ['malformed', '{', '7'],
      ['pid_mismatch', heartbeat(8), '7'],
    ];
    await put(
      `${home}/logs/gateway-exit-diag.log`,
      '{"tag":"gateway.previous_unclean_exit","suspected_oom":true}\n{"tag":"gateway.start"}\n',
    );
    for (const [status, beat, pid] of files) {
      await put(`${home}/state/gateway.heartbeat`, beat);
      await put(`${home}/gateway.pid`, pid);
      const { stdout } = await run(['relay', 'doctor', '--json', ...PATIENT], { env, ownPackage });
      const found: Report = JSON.parse(stdout);
      expect(found).toMatchObject({
        gateway_heartbeat: { status },
        gateway_prior_exit: { prior_exit: 'unclean', suspected_oom: true },
      });
      expect(ids(found.checks, 'warn')).toEqual(['gateway-heartbeat', 'gateway-prior-exit']);
    }
  });

  test('two plugins of one name, not counting a link to the same one', async () => {
    const stack = await fakeStack();
    const plugins = `${stack.home}/plugins`;
    await put(`${plugins}/a/plugin.yaml`, 'name: svc-relay\n');
    await put(`${plugins}/other/plugin.yaml`, 'name: other\n');
    await symlink(`${plugins}/a`, `${plugins}/linked`);
    expect(ids((await report(stack)).report.checks, 'warn')).toEqual([]);
    await put(`${plugins}/b/plugin.yaml`, 'name: svc-relay\n');
    const { report: found } = await report(stack);
    expect(ids(found.checks, 'warn')).toEqual(['plugin-name-unique']);
    expect(found.plugin).toMatchObject({ duplicate_dirs: [`${plugins}/a`, `${plugins}/b`] });
  });

  test('an installed compat hook', async () => {
    const stack = await fakeStack();
    expect((await run(['relay', 'compat', 'install'], stack)).code).toBe(0);
    const { report: found } = await report(stack);
    expect(ids(found.checks, 'warn')).toEqual(['legacy-bootstrap']);
    expect(found.bootstrap).toMatchObject({
      installed: true,
      recommendation: expect.stringContaining('compat remove'),
    });
  });
});

describe('doctor options and variables', () => {
  test('takes under 3 s however many services hang, and reports it', TIMED, async () => {
    const hanging = await fakeRelay(() => 'hang');
    const url = `http://127.0.0.1:${hanging.port}`;
    const stack = await fakeStack();
    const passed = startWatch();
    const words = ['--api-url', url, '--dashboard-url', url, '--relay-port', String(hanging.port), '--timeout', '1'];
    const found: Report = JSON.parse((await run(['relay', 'doctor', '--json', ...words], stack)).stdout);
    expect(passed()).toBeLessThan(3000);
    expect(ids(found.checks, 'warn')).toHaveLength(13);
    expect(found.checks.find(({ id }) => id === 'api-toolsets')?.summary).toMatch(/no whole answer within 1 s/);
    // 8, the two of `relay-host-tools`, devices, web push, mirror, and the health that tells of Secure Link.
    expect(hanging.seen).toHaveLength(14);
  });

  test('a flag overrides the variables, which override each other in order, and no secret in a URL is shown', async () => {
    const stack = await fakeStack();
    const url = stack.env.SVC_API_URL as string;
    const env = {
      ...stack.env,
      SVC_API_URL: ' ',
      RELAY_WEBAPI_URL: `${url.replace('//', '//user:hunter2@')}/?token=hunter2`,
      WEBAPI_URL: 'http://127.0.0.1:1',
      SVC_DASHBOARD_URL: 'user:hunter2',
    };
    const { stdout } = await run(['relay', 'doctor', '--json', ...PATIENT], { ...stack, env });
    expect(JSON.parse(stdout).standard).toMatchObject({ api_url: url, dashboard_url: '' });
    expect(stdout).not.toContain('hunter2');
    const text = await run(['relay', 'doctor', ...PATIENT], { ...stack, env });
    expect(text.stdout).toContain('Fix: Correct SVC_DASHBOARD_URL');
  });

  test('a server that does not identify as svc-relay is not reported as one', async () => {
    const stack = await fakeStack({ relay: { 'GET /relay/info': { body: {} } } });
    const { report: found } = await report(stack);
    expect(found.checks.find(({ id }) => id === 'relay-loopback')?.summary).toContain('does not say that it is');
  });

  test('an invalid RELAY_PORT falls back to the default (07 §5.2)', async () => {
    const { env, ownPackage } = await fakeStack();
    const { stdout, stderr } = await run(['relay', 'doctor', '--json', '--timeout', '0.2'], {
      ownPackage,
      env: { ...env, RELAY_PORT: 'abc' },
    });
    expect(JSON.parse(stdout).relay.port).toBe(8767);
    expect(stderr).toContain('warning: RELAY_PORT');
  });

  test.each([
    [['--timeout', '0'], '--timeout'],
    [['--timeout', 'x'], '--timeout'],
    [['--timeout', '61'], '--timeout'],
    [['--relay-port', '70000'], '--relay-port'],
    [['--api-url', 'localhost:8642'], '--api-url'],
    [['--dashboard-url', 'http://u:p@h'], '--dashboard-url'],
    [['--verbose'], 'unknown option'],
    [['now'], 'unexpected argument'],
  ])('wrongly asked: %j', async (words, message) => {
    const { code, stdout, stderr } = await run(['relay', 'doctor', ...words], { env: { SVC_HOME: agentHome() } });
    expect([code, stdout]).toEqual([2, '']);
    expect(stderr).toContain(message);
  });

  test('text of a service cannot send control sequences to the terminal', async () => {
    const components = [{ name: 'x\u001b[31m\nboo', status: 'down' }];
    const stack = await fakeStack({ dashboard: { 'GET /api/status': { body: { components } } } });
    const { stdout } = await run(['relay', 'doctor', ...PATIENT], stack);
    expect(stdout).not.toContain('\u001b');
    expect(stdout).toContain('[WARN] dashboard-component-health: x[31m boo is down');
  });
});

import { existsSync } from 'node:fs';
import { mkdir, readdir, readFile, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { parseTarGzip } from 'nanotar';
import { describe, expect, it } from 'vitest';
import { createRedact, readSecrets, settingsOf } from '../../cli/bugreport/secrets.ts';
import { readConfig } from '../../lib/config.ts';
import type { HostFiles } from '../../lib/host/index.ts';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { agentHome, fakeRelay, run } from '../support/cli.ts';

const pending = cleanups();

const partsOf = async (path: string) =>
  Object.fromEntries(
    (await parseTarGzip(await readFile(path))).map(({ name, text }) => [name.replace('svc-bugreport/', ''), text]),
  );

async function put(path: string, text: string): Promise<void> {
  await mkdir(dirname(path), { recursive: true });
  await writeFile(path, text, { mode: 0o600 });
}

it('svc bugreport holds none of the secrets of a home, wherever they turn up (11 §3)', async () => {
  const target = await startBuiltTarget();
  pending.push(() => target.stop());
  const home = target.relay.config.agentHome;
  const planted: string[] = [];
  /** A secret that nothing else looks like. */
  const marker = (form = 'plain') => {
    const text = `mark${planted.length}${'q'.repeat(form === 'short' ? 4 : 20)}${planted.length}Zz`;
    planted.push(text);
    return text;
  };
  const code = 'Q7R8S9';
  const token = '0a1b2c3d-1111-4222-8333-deadbeef0001';
  const base64url = 'Xy12_-Xy12_-Xy12_-Xy12_-Xy12_-Xy12_-Xy12_-A';
  const pem = 'MC4CAQAwBQYDK2VwBCIEIPlantedPlantedPlantedPlantedPlantedPlan';
  planted.push(code, base64url, pem);
  const env = {
    SVC_HOME: home,
    HOME: agentHome(),
    RELAY_PORT: String(target.port),
    RELAY_WEBAPI_URL: `http://user:${marker()}@127.0.0.1:1/${marker('short')}?token=${marker()}`,
    RELAY_UPDATE_FEED_URL: `https://${marker()}@feed.example/`,
    RELAY_PAIRING_CODE: code,
    RELAY_SECURE_LINK_BROKER_HOST_TOKEN: marker(),
    SVC_RELAY_DASHBOARD_PROXY_SECRET: marker(),
    API_SERVER_KEY: marker(),
    OPENAI_API_KEY: marker('short'),
    RELAY_TUI_COMMAND: `run --api-key ${marker()}`,
    SVC_LOCAL_STT_COMMAND: `stt ${marker()}`,
    RELAY_LOG_LEVEL: 'DEBUG',
  };
  await put(
    join(home, '.env'),
    `ANTHROPIC_TOKEN="${marker()}"\nGH_PASSWORD=${marker('short')}\nRELAY_READ_BUDGET_MB=64\n`,
  );
  await put(join(home, 'svc-relay-qr-secret'), marker());
  await put(join(home, 'svc-relay/operator-key'), base64url);
  await put(
    join(home, 'svc-relay/operator-key.pem'),
    `-----BEGIN PRIVATE KEY-----\n${pem}\n-----END PRIVATE KEY-----\n`,
  );
  await put(
    join(home, 'relay-secure-link/key.pem'),
    `-----BEGIN PRIVATE KEY-----\n${marker()}\n-----END PRIVATE KEY-----\n`,
  );
  await put(join(home, 'relay-secure-link/host-id'), marker());
  await put(
    join(home, 'svc-relay/mcp.json'),
    JSON.stringify({ version: 1, pairings: [{ name: 'mcp', token: marker() }] }),
  );
  await put(
    join(home, 'companion/settings.json'),
    JSON.stringify({ pairing: { session_token: marker(), refresh_token: marker() } }),
  );
  await put(join(home, 'auth.json'), JSON.stringify({ xai: { access_token: marker() } }));
  await put(join(home, 'config.yaml'), `gateway:\n  api_key: "${marker()}"\n`);
  // As if something had logged them.
  const { log } = target.relay;
  for (const secret of planted)
    log.info(`something said ${secret} and "${secret}" at https://x/?a=${encodeURIComponent(secret)}`);
  log.info(`session ${token} paired by svc-relay://pair?d=${planted[0]} with Authorization: Bearer ${marker()}`);
  log.info('a line of the log that is fine');

  const file = join(home, 'report.tar.gz');
  const result = await run(['bugreport', file], { env });
  expect([result.code, result.stderr]).toEqual([0, '']);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  const parts = await partsOf(file);
  expect(Object.keys(parts)).toEqual(['README.txt', 'doctor.json', 'versions.json', 'configuration.json', 'log.txt']);
  for (const name of Object.keys(parts)) expect(result.stdout).toContain(name);
  expect(result.stdout).toMatch(/\nNext: tar xzf .*report\.tar\.gz/);
  const all = Object.values(parts).join('\n') + result.stdout;
  planted.push(token);
  expect(planted.filter((secret) => all.includes(secret))).toEqual([]);
  // What is left is of use.
  expect(parts['log.txt']).toContain('a line of the log that is fine');
  expect(parts['log.txt']).toContain('session 0a1b2c3d-[hidden]');
  const { checks } = JSON.parse(parts['doctor.json'] ?? '');
  expect(checks.length).toBeGreaterThan(10);
  const { variables } = JSON.parse(parts['configuration.json'] ?? '');
  expect(variables).toEqual(
    expect.arrayContaining([
      { name: 'RELAY_LOG_LEVEL', value: 'DEBUG' },
      { name: 'RELAY_READ_BUDGET_MB', value: '64' },
      { name: 'RELAY_WEBAPI_URL', value: 'http://127.0.0.1:1' },
      { name: 'API_SERVER_KEY', value: '(set)' },
    ]),
  );
  expect(JSON.parse(parts['versions.json'] ?? '')).toMatchObject({
    svc_relay: { version: expect.any(String) },
    node: { version: process.version },
  });

  const again = await run(['bugreport', file, '--json'], { env });
  expect([again.code, JSON.parse(again.stdout)]).toEqual([
    1,
    expect.objectContaining({ ok: false, next: expect.stringContaining('--force') }),
  ]);
  const forced = JSON.parse((await run(['relay', 'bugreport', file, '--force', '--json'], { env })).stdout);
  expect(forced).toMatchObject({
    ok: true,
    file,
    files: expect.arrayContaining([expect.objectContaining({ name: 'log.txt' })]),
  });
});

it('knows the strings of a document that is cut off, and makes no report when reading one fails', async () => {
  const home = agentHome();
  const { config } = readConfig({}, { agentHome: home, home });
  const reading = (read: (path: string) => Promise<Uint8Array | null>) =>
    readSecrets(config, {}, { read } as unknown as HostFiles);
  const cut = Buffer.from('{"xai": {"access_token": "plain words", "refr');
  expect(await reading(async (path) => (path.endsWith('/auth.json') ? cut : null))).toContain('plain words');
  const failing = (code: string) => async () => {
    throw Object.assign(new Error(code), { code });
  };
  for (const code of ['EMFILE', 'EIO', 'ENOMEM']) await expect(reading(failing(code))).rejects.toThrow(code);
  expect(await reading(failing('EACCES'))).toEqual([]);
});

it('works without a relay and with a wrong variable, which it names', async () => {
  const home = agentHome('RELAY_PORT=none\n');
  await put(join(home, 'svc-relay/relay.log'), '2026-11-24 10:00:00 [INFO] relay: the last words\n');
  const file = join(home, 'r.tar.gz');
  const result = await run(['bugreport', file], { env: { SVC_HOME: home } });
  expect(result.code).toBe(0);
  const parts = await partsOf(file);
  expect(parts['log.txt']).toContain('the last words');
  expect(JSON.parse(parts['configuration.json'] ?? '')).toMatchObject({ error: expect.stringContaining('RELAY_PORT') });
  expect((await readdir(home)).filter((name) => name.endsWith('.tmp'))).toEqual([]);
  expect((await run(['bugreport', join(home, 'none', '\0')], { env: { SVC_HOME: home } })).code).toBe(1);
  expect(existsSync(join(home, 'none'))).toBe(false);
});

describe('what is hidden', () => {
  const redact = createRedact(['geheim1', 'geheim12'], '/home/me');

  it.each([
    ['geheim12 geheim1', '[hidden] [hidden]'],
    ['{"a":"geheim1"}', '{"a":"[hidden]"}'],
    ['at /home/me/.svc', 'at ~/.svc'],
    ['http://user:pw@host/x', 'http://[hidden]@host/x'],
    ['pairing code ABC123 used', 'pairing code [hidden] used'],
    ['sha SHA256 and READY', 'sha SHA256 and READY'],
    ['/app?code=abc&x=1', '/app?code=[hidden]&x=1'],
    ['svc-relay://pair?d=eyJ', 'svc-relay://[hidden]'],
    ['"password": "hunter2x"', '"password": [hidden]'],
    [`key ${'aB3-'.repeat(11)}`, 'key [hidden]'],
    [
      `/usr/lib/node_modules/svc-relay/dist/0123456789abcdef/svc.js`,
      '/usr/lib/node_modules/svc-relay/dist/0123456789abcdef/svc.js',
    ],
  ])('%s', (text, shown) => {
    expect(redact(text)).toBe(shown);
  });

  it('a secret that a cut would split, and long lines', () => {
    expect(redact(`${'x '.repeat(1998)}geheim12`)).not.toContain('gehe');
    expect(redact('y '.repeat(100_000)).length).toBeLessThan(5000);
  });

  it('values of variables, unless their kind says that they are none', () => {
    const env = {
      RELAY_PORT: '8767',
      RELAY_TERMINAL_TMUX: 'secret!',
      RELAY_HOST: '0.0.0.0',
      RELAY_PUSH_CONTACT: 'mailto:a@b.c',
    };
    expect(Object.fromEntries(settingsOf(env).map(({ name, value }) => [name, value]))).toEqual({
      RELAY_PORT: '8767',
      RELAY_TERMINAL_TMUX: '(set, and not valid)',
      RELAY_HOST: '0.0.0.0',
      RELAY_PUSH_CONTACT: '(set)',
    });
  });
});

it('svc bugreport takes log lines without a time, or with one that no date can hold', async () => {
  const lines = [
    { ts: 1e300, level: 'INFO', name: 'relay', text: 'late' },
    { level: 'INFO', name: 'relay', text: 'never' },
  ];
  const relay = await fakeRelay(() => ({ body: { lines } }));
  const path = join(agentHome(), 'report.tar.gz');
  const { code, stderr } = await run(['bugreport', path], {
    env: { SVC_HOME: agentHome(), RELAY_PORT: String(relay.port) },
  });
  expect([code, stderr]).toEqual([0, '']);
  const log = Object.entries(await partsOf(path)).find(([name]) => name.includes('log'))?.[1];
  expect(log).toBe('? [INFO] relay: late\n? [INFO] relay: never\n');
});

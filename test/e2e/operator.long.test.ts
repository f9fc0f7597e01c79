import { chmodSync, chownSync } from 'node:fs';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { canBeNobody, NOBODY } from '../support/other-user.ts';
import { ask, freePort, launch, offer, runSvc, startRelayProcess, temporaryHome } from '../support/process.ts';
import { randomCode } from '../support/relay.ts';
import { hasProgram } from '../support/terminal.ts';

const README = fileURLToPath(new URL('../../cli/README.md', import.meta.url));
const own = canBeNobody ? undefined : process.geteuid?.();

/** A home that belongs to the user that runs the relay. */
async function homeOf(uid: number): Promise<string> {
  const home = await temporaryHome();
  chownSync(home, uid, uid);
  return home;
}

describe.runIf(canBeNobody)('a relay that root does not run (contract 01 §1.3 rule 6)', () => {
  it('takes root for a stranger, unless it sends the key, as every command does', async () => {
    const home = await homeOf(NOBODY);
    const relay = await startRelayProcess({ home, uid: NOBODY });
    const mint = { method: 'POST', body: {} };
    expect((await relay.ask('/pairing/mint', mint)).status).toBe(403);
    await relay.child.prints(/WARNING.* refused an operator call from 127\.0\.0\.1, user 0 to \/pairing\/mint/);
    const key = await readFile(join(home, 'svc-relay/operator-key'), 'utf8');
    expect((await relay.ask('/pairing/mint', { ...mint, headers: { 'x-svc-operator-key': key } })).status).toBe(200);

    const env = { RELAY_PORT: String(relay.port) };
    const pair = ['pair', '--register-code', randomCode()];
    expect(await runSvc(pair, { home, env })).toMatchObject({ code: 0 });
    const stranger = await runSvc(pair, { env });
    expect(stranger.code).toBe(1);
    expect(stranger.stderr).toContain('only the user that runs the relay');
    expect(stranger.stderr).toContain('Run this as the user that runs the relay');
    expect(relay.output).not.toContain(key);

    const doctor = await runSvc(['relay', 'doctor', '--timeout', '20'], { env });
    expect(doctor.stdout).toContain('[WARN] relay-operator: the relay refuses this command');
    expect(doctor.stdout).toContain(`Fix: Run this as user ${NOBODY}, or name this user in RELAY_OPERATOR_UIDS`);
    const allowed = await runSvc(['relay', 'doctor', '--timeout', '20'], { home, env });
    expect(allowed.stdout).toContain(`[OK] relay-operator: only user ${NOBODY} may operate the relay`);
  });

  it('takes root for the operator when RELAY_OPERATOR_UIDS names it', async () => {
    const relay = await startRelayProcess({
      home: await homeOf(NOBODY),
      uid: NOBODY,
      env: { RELAY_OPERATOR_UIDS: '0' },
    });
    expect((await relay.ask('/pairing/mint', { method: 'POST', body: {} })).status).toBe(200);
  });
});

it('contract 01 §1.3: the commands work where the key is required of everybody, over http and TLS', async () => {
  const relay = await startRelayProcess({ env: { RELAY_REQUIRE_OPERATOR_KEY: '1' } });
  expect((await relay.ask('/pairing/mint', { method: 'POST', body: {} })).status).toBe(403);
  const setting = { home: relay.home, env: { RELAY_PORT: String(relay.port), RELAY_REQUIRE_OPERATOR_KEY: '1' } };
  for (const words of [
    ['pair', '--register-code', randomCode()],
    ['pair', '--token'],
    ['phone', 'list'],
    ['relay', 'insecure-api-key'],
  ]) {
    expect(await runSvc(words, setting), words.join(' ')).toMatchObject({ code: 0 });
  }
  const doctor = await runSvc(['relay', 'doctor', '--timeout', '20'], setting);
  expect(doctor.stdout).toContain('[OK] relay-operator: every caller needs the operator key');
  expect(doctor.stdout).toContain(
    '[OK] relay-host-tools: other tools of this machine are let in with X-Svc-Operator: 1',
  );
});

/** The lines that the README recommends, for a relay on this port. */
async function documented(language: string, port: number): Promise<string> {
  const block = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'ms').exec(await readFile(README, 'utf8'))?.[1];
  if (block?.includes('127.0.0.1:8767') !== true) throw new Error(`cli/README.md has no lines for ${language}`);
  return block.replaceAll('127.0.0.1:8767', `127.0.0.1:${port}`);
}

async function startProxy(
  program: string,
  args: string[],
  listen: number,
  uid = canBeNobody ? NOBODY : own,
): Promise<string> {
  const child = launch(program, args, { PATH: process.env.PATH ?? '', HOME: '/nonexistent' }, { uid });
  const url = `http://127.0.0.1:${listen}`;
  await expect
    .poll(
      async () => {
        if (!child.running()) throw new Error(`${program} ended\n${child.stdout}\n${child.stderr}`);
        return (await ask(`${url}/health`).catch(() => undefined))?.status;
      },
      { timeout: 30_000 },
    )
    .toBe(200);
  return url;
}

/** Starts nginx with this `location`, in front of a relay; as another user where it can. Returns its URL. */
async function startNginx(location: string, uid = canBeNobody ? NOBODY : own): Promise<string> {
  const directory = canBeNobody ? await homeOf(uid ?? NOBODY) : await temporaryHome();
  const listen = await freePort();
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((name) => `${name}_temp_path ${directory}/t;`);
  const config = `
    daemon off;
    master_process off;
    pid ${directory}/pid;
    error_log stderr;
    events {}
    http {
      access_log off;
      ${paths.join('\n')}
      server { listen 127.0.0.1:${listen}; ${location} }
    }`;
  await mkdir(join(directory, 't'));
  chmodSync(join(directory, 't'), 0o777);
  await writeFile(join(directory, 'nginx.conf'), config);
  return startProxy('nginx', ['-c', join(directory, 'nginx.conf'), '-e', 'stderr'], listen, uid);
}

async function startCaddy(site: string): Promise<string> {
  const directory = canBeNobody ? await homeOf(NOBODY) : await temporaryHome();
  const listen = await freePort();
  const config = `{\n admin off\n auto_https off\n storage file_system ${directory}\n}\n`;
  const address = `http://127.0.0.1:${listen}`;
  await writeFile(join(directory, 'Caddyfile'), config + site.replace('home.example.com', address));
  return startProxy('caddy', ['run', '--adapter', 'caddyfile', '--config', join(directory, 'Caddyfile')], listen);
}

/** Requests that the internet tries through a proxy. */
async function expectNoOperator(url: string, home: string): Promise<void> {
  const operator = { 'x-svc-operator': '1' };
  for (const headers of [{}, operator, { 'x-svc-operator-key': 'k'.repeat(43) }] as Record<string, string>[]) {
    for (const path of ['/pairing/mint', '/pairing/register', '/pairing/approve']) {
      const answer = await ask(url + path, { method: 'POST', body: { code: 'STOLEN', host: '192.0.2.1' }, headers });
      expect({ path, headers, status: answer.status }).toEqual({ path, headers, status: 403 });
    }
    expect((await ask(`${url}/relay/security`, { headers })).status).toBe(403);
    expect((await ask(`${url}/sessions`, { headers: { ...operator, ...headers } })).status).toBe(401);
  }
  const code = await ask(`${url}/pairing`, { method: 'POST', body: {} });
  expect(code.status).toBe(202);
  expect(code.json).not.toHaveProperty('code');
  // Even with the key in hand: what comes through a proxy has come from elsewhere.
  const key = await readFile(join(home, 'svc-relay/operator-key'), 'utf8');
  const stolen = await ask(`${url}/pairing/mint`, { method: 'POST', body: {}, headers: { 'x-svc-operator-key': key } });
  expect(stolen.status).toBe(403);
}

/** A phone that pairs through the proxy, and uses a socket and a route. */
async function expectToWork(url: string, relay: Awaited<ReturnType<typeof startRelayProcess>>): Promise<void> {
  const code = randomCode();
  expect((await relay.ask('/pairing/register', { method: 'POST', body: { code } })).status).toBe(200);
  const { frame, socket } = await offer(`${url.replace('http', 'ws')}/ws`, { pairing_code: code, device_id: 'phone' });
  expect(frame.type).toBe('auth.ok');
  const pong = new Promise<string>((resolve) => socket.once('message', (data) => resolve(String(data))));
  socket.send(JSON.stringify({ channel: 'system', type: 'ping', id: 'ping', payload: {} }));
  expect(await pong).toContain('"pong"');
  socket.terminate();
  const authorization = `Bearer ${frame.payload.session_token}`;
  const sessions = await ask(`${url}/sessions`, { headers: { authorization } });
  expect(sessions).toMatchObject({ status: 200, json: { sessions: [{ is_current: true }] } });
}

const isNginx = hasProgram('nginx');
const isCaddy = hasProgram('caddy');
if (!isNginx) process.stderr.write('SKIPPED: no nginx here, only requests made by hand stand for proxies\n');
if (!isCaddy) process.stderr.write('SKIPPED: no caddy here, its lines in the README are not tried\n');

const TRUST = { RELAY_TRUST_PROXY_HEADERS: '1' };

describe.runIf(isNginx)('behind nginx, run by another user (contract 01 §1.3)', () => {
  it('one proxy_pass line hands nobody the rights of the operator', async () => {
    const relay = await startRelayProcess();
    const url = await startNginx(`location / { proxy_pass http://127.0.0.1:${relay.port}; }`);
    await expectNoOperator(url, relay.home);
    expect((await ask(`${url}/health`)).json).toMatchObject({ status: 'ok' });
  });

  // Here nothing but the user at the other end tells the proxy from the operator.
  it.runIf(canBeNobody)('nor does one that speaks HTTP/1.1', async () => {
    const relay = await startRelayProcess();
    const url = await startNginx(
      `location / { proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://127.0.0.1:${relay.port}; }`,
    );
    expect((await ask(`${url}/pairing/mint`, { method: 'POST', body: {} })).status).toBe(403);
    expect((await ask(`${url}/pairing`, { method: 'POST', body: {} })).status).toBe(202);
    await relay.child.prints(/refused an operator call from 127\.0\.0\.1, user 65534 to \/pairing\/mint/);
  });

  it('the lines of the README neither, and devices work through them', async () => {
    const relay = await startRelayProcess({ env: TRUST });
    const url = await startNginx(await documented('nginx', relay.port));
    await expectToWork(url, relay);
    await expectNoOperator(url, relay.home);
  });

  it('the lines of the README let a client forge neither its address nor the absence of a proxy', async () => {
    const relay = await startRelayProcess({ env: TRUST });
    const url = await startNginx(await documented('nginx', relay.port));
    const headers = { 'x-forwarded-for': '203.0.113.9', 'x-forwarded-proto': '', connection: 'x-forwarded-for' };
    expect((await ask(`${url}/pairing`, { method: 'POST', body: {}, headers })).status).toBe(202);
    expect((await ask(`${url}/pairing/mint`, { method: 'POST', body: {}, headers })).status).toBe(403);
    await relay.child.prints(/refused an operator call from 127\.0\.0\.1.* to \/pairing\/mint/);
    expect(relay.output).not.toContain('203.0.113.9');
  });
});

// Nothing tells these requests from those of the operator.
describe.runIf(isNginx)("nginx as the relay's own user (contract 01 §1.3 rule 6; issue 23, 1.10)", () => {
  const location = (port: number) =>
    `location / { proxy_http_version 1.1; proxy_set_header Connection ""; proxy_pass http://127.0.0.1:${port}; }`;
  const register = (url: string) =>
    ask(`${url}/pairing/register`, { method: 'POST', body: { code: randomCode() } }).then(({ status }) => status);
  const setting = ({ home, port }: { home: string; port: number }) => ({ home, env: { RELAY_PORT: String(port) } });
  const user = process.geteuid?.();

  it('is named by the doctor with the variable to set, although it keeps no connection', async () => {
    const relay = await startRelayProcess();
    const url = await startNginx(location(relay.port), user);
    const before = await runSvc(['relay', 'doctor', '--timeout', '20'], setting(relay));
    expect(before.stdout).toContain('[OK] relay-operator: only user');
    expect(await register(url)).toBe(200);
    const { stdout } = await runSvc(['relay', 'doctor', '--timeout', '20'], setting(relay));
    expect(stdout).toMatch(
      /\[WARN\] relay-operator: nginx \(process \d+, listens on \d+\) calls the relay as the relay's own/,
    );
    expect(stdout).toContain('Fix: Set RELAY_REQUIRE_OPERATOR_KEY=1 and restart the relay.');
  });

  it('forwards nothing of the operator where the key is required, nor once a code names its address', async () => {
    const required = await startRelayProcess({ env: { RELAY_REQUIRE_OPERATOR_KEY: '1' } });
    expect(await register(await startNginx(location(required.port), user))).toBe(403);

    const relay = await startRelayProcess();
    const url = await startNginx(location(relay.port), user);
    expect(await register(url)).toBe(200);
    const published = ['pair', '--no-wait', '--public-url', url.replace('127.0.0.1', 'localhost')];
    expect(await runSvc(published, setting(relay))).toMatchObject({ code: 0 });
    expect(await register(url)).toBe(403);
    const { stdout } = await runSvc(['relay', 'doctor', '--timeout', '20'], setting(relay));
    expect(stdout).toContain('[OK] relay-operator: every caller needs the operator key: a URL');
    expect(stdout).toContain('are let in with X-Svc-Operator: 1 and the operator key');
    expect(await runSvc(['devices'], setting(relay))).toMatchObject({ code: 0 });
  });

  it('forwards them again where the owner says so, and the doctor goes on to warn', async () => {
    const relay = await startRelayProcess({ env: { RELAY_REQUIRE_OPERATOR_KEY: '0' } });
    const url = await startNginx(location(relay.port), user);
    const published = ['pair', '--no-wait', '--public-url', url.replace('127.0.0.1', 'localhost')];
    expect(await runSvc(published, setting(relay))).toMatchObject({ code: 0 });
    expect(await register(url)).toBe(200);
    const { stdout } = await runSvc(['relay', 'doctor', '--timeout', '20'], setting(relay));
    expect(stdout).toContain('[WARN] relay-operator: nginx');
  });
});

describe.runIf(isCaddy)('behind Caddy, run by another user (contract 01 §1.3)', () => {
  it('the lines of the README hand nobody the rights of the operator, and devices work through them', async () => {
    const relay = await startRelayProcess({ env: TRUST });
    const url = await startCaddy(await documented('caddy', relay.port));
    await expectToWork(url, relay);
    await expectNoOperator(url, relay.home);
  });
});

import { describe, expect, test } from 'vitest';
import { agentHome, fakeRelay, run } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';

const security = (enabled: boolean) => ({
  ok: true,
  scope: 'runtime',
  trust_proxy_headers: false,
  allow_insecure_api_bearer: enabled,
});

async function relayWith(enabled: boolean) {
  let state = enabled;
  const relay = await fakeRelay(({ method, body }) => {
    if (method === 'PATCH') state = body?.allow_insecure_api_bearer as boolean;
    return { body: security(state) };
  });
  return { ...relay, env: { SVC_HOME: agentHome(), RELAY_PORT: String(relay.port) } };
}

describe('insecure-api-key (01 §9.3)', () => {
  test.each([
    [[], 'GET', undefined, 'disabled'],
    [['status'], 'GET', undefined, 'disabled'],
    [['on'], 'PATCH', true, 'enabled'],
    [['ENABLE'], 'PATCH', true, 'enabled'],
    [['off'], 'PATCH', false, 'disabled'],
    [['disable'], 'PATCH', false, 'disabled'],
  ] as const)('%j', async (words, method, wanted, shown) => {
    const { env, seen, port } = await relayWith(false);
    const result = await run(['relay', 'insecure-api-key', ...words], { env });
    expect(result).toMatchObject({ code: 0, stderr: '' });
    expect(result.stdout).toMatch(
      new RegExp(`^Insecure API-key voice auth is ${shown} on 127\\.0\\.0\\.1:${port}.*\n$`),
    );
    expect(result.stdout.includes('insecure-api-key off')).toBe(shown === 'enabled');
    expect(seen).toMatchObject([{ method, path: '/relay/security' }]);
    expect(seen[0]?.body).toEqual(wanted === undefined ? undefined : { allow_insecure_api_bearer: wanted });
  });

  test('the alias, --port overriding the variable, and the standalone program', async () => {
    const { env, port } = await relayWith(true);
    const elsewhere = { ...env, RELAY_PORT: '1' };
    const words = ['insecure-api-bearer', '--port', String(port), '--host', 'localhost'];
    const { code, stdout } = await run(words, { env: elsewhere, program: 'svc-relay' });
    expect(code).toBe(0);
    expect(stdout).toContain(`is enabled on localhost:${port}; turn it off with: svc-relay insecure-api-key off`);
  });

  test('--json prints the answer with sorted keys and nothing else', async () => {
    const { env } = await relayWith(true);
    const { stdout, stderr } = await run(['relay', 'insecure-api-key', '--json'], { env });
    expect(stderr).toBe('');
    expect(JSON.parse(stdout)).toEqual(security(true));
    expect(Object.keys(JSON.parse(stdout))).toEqual(Object.keys(security(true)).sort());
  });

  test('an invalid state: exit 2, no call', async () => {
    const { env, seen } = await relayWith(false);
    const { code, stderr } = await run(['relay', 'insecure-api-key', 'maybe'], { env });
    expect([code, seen.length]).toEqual([2, 0]);
    expect(stderr).toContain("unknown action 'maybe'");
  });

  test('unreachable, refused, and no relay at all: exit 1', async () => {
    const down = await run(['relay', 'insecure-api-key', '--port', String(await closedPort())]);
    expect(down.code).toBe(1);
    expect(down.stderr).toMatch(/^error: no relay answers on 127\.0\.0\.1:\d+: .*connection refused/);

    const refusing = await fakeRelay(() => ({ status: 403, body: { ok: false, error: 'not from\u001b[31m here' } }));
    const refused = await run(['relay', 'insecure-api-key', '--port', String(refusing.port)]);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toMatch(/^error: .*not from.* here \(HTTP 403\)\n/);
    expect(refused.stderr).not.toContain('\u001b');

    const other = await fakeRelay(() => ({ body: '<html>' }));
    const wrong = await run(['relay', 'insecure-api-key', '--port', String(other.port)]);
    expect(wrong).toMatchObject({ code: 1, stdout: '' });
  });

  test('warns of an invalid RELAY_PORT and uses the default', async () => {
    const { env, port } = await relayWith(false);
    const bad = { ...env, RELAY_PORT: 'abc' };
    expect((await run(['relay', 'insecure-api-key'], { env: bad })).stderr).toContain('warning: RELAY_PORT');
    const flagged = await run(['relay', 'insecure-api-key', '--port', String(port)], { env: bad });
    expect(flagged).toMatchObject({ code: 0, stderr: '' });
  });

  test('a certificate in the variables, but a relay on plain http', async () => {
    const { env } = await relayWith(false);
    const withCertificate = { ...env, RELAY_SSL_CERT: 'cert.pem', RELAY_SSL_KEY: 'key.pem' };
    expect((await run(['relay', 'insecure-api-key'], { env: withCertificate })).code).toBe(0);
  });
});

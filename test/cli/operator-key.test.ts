import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { operatorHeaders } from '../../cli/operator-key.ts';
import { startBuiltTarget } from '../support/built-relay.ts';
import { agentHome, fakeRelay, run } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { canBeNobody, NOBODY, squatAsNobody } from '../support/other-user.ts';

const KEY = 'k'.repeat(43);

function homeWithKey(key = KEY): string {
  const home = agentHome();
  mkdirSync(join(home, 'svc-relay'));
  writeFileSync(join(home, 'svc-relay/operator-key'), key, { mode: 0o600 });
  return home;
}

const relay = () =>
  fakeRelay(({ path }) => {
    if (path === '/health') return { body: { status: 'ok', version: '1.0.0' } };
    return { body: { allow_insecure_api_bearer: false, messages: [], ok: true, code: 'ABC123' } };
  });

describe('every command sends the operator key (contract 01 §1.3 rule 6)', () => {
  test.each([
    [['pair', '--register-code', 'ABC123'], '/pairing/register'],
    [['phone', 'list'], '/phone/outbound'],
    [['phone', 'cancel', '--all'], '/phone/outbound'],
    [['relay', 'insecure-api-key'], '/relay/security'],
  ])('svc %j', async (words, path) => {
    const { port, seen } = await relay();
    const env = { SVC_HOME: homeWithKey(), RELAY_PORT: String(port) };
    await run(words, { env });
    const call = seen.find((one) => one.path.startsWith(path));
    expect(call?.headers['x-svc-operator-key']).toBe(KEY);
  });

  test('but not one that is missing or damaged, and not to another host', async () => {
    const { port, seen } = await relay();
    for (const home of [agentHome(), homeWithKey(''), homeWithKey('x\r\ny: z')]) {
      await run(['phone', 'list'], { env: { SVC_HOME: home, RELAY_PORT: String(port) } });
    }
    // An address that reaches this machine here, and another one elsewhere.
    const words = ['relay', 'insecure-api-key', '--host', '0.0.0.0'];
    await run(words, { env: { SVC_HOME: homeWithKey(), RELAY_PORT: String(port) } });
    expect(seen).toHaveLength(4);
    for (const { headers } of seen) expect(headers).not.toHaveProperty('x-svc-operator-key');
  });

  test('a refusal says what to do', async () => {
    const { port } = await fakeRelay(() => ({ status: 403, body: { error: 'the relay says why' } }));
    const { stderr } = await run(['relay', 'insecure-api-key'], {
      env: { SVC_HOME: agentHome(), RELAY_PORT: String(port) },
    });
    expect(stderr).toContain('the relay says why');
    expect(stderr).toContain('Run this as the user that runs the relay');
  });
});

test('a key that this user cannot read is not sent', async () => {
  const home = homeWithKey();
  chmodSync(join(home, 'svc-relay/operator-key'), 0);
  const expected = process.geteuid?.() === 0 ? { 'x-svc-operator-key': KEY } : {};
  expect(await operatorHeaders(home, (await relay()).port)).toEqual(expected);
  // Nor one that nobody listens for: who comes next is not known.
  expect(await operatorHeaders(homeWithKey(), await closedPort())).toEqual({});
});

describe.runIf(canBeNobody)('a program of another user on 127.0.0.1 (contract 01 §9.1a)', () => {
  const API_KEY = 'key-of-the-api-server';
  const MINTED = { status: 'ok', ok: true, qr_payload: '{}', pairing_url: 'svc-relay://pair?payload=e30' };

  test('does not get the operator key in the place of the relay', async () => {
    const { port } = await squatAsNobody('127.0.0.1');
    expect(await operatorHeaders(homeWithKey(), port)).toEqual({});
  });

  test('does not get the key of the API server in the place of the relay, and svc pair says whose it is', async () => {
    const { port, heard } = await squatAsNobody('127.0.0.1', 0, MINTED);
    const env = { SVC_HOME: homeWithKey(), RELAY_PORT: String(port), API_SERVER_KEY: API_KEY };
    const { stderr } = await run(['pair', '--no-qr'], { env });
    expect(stderr.replace(/\s+/g, ' ')).toContain(
      `what answers on 127.0.0.1:${port} belongs to user ${NOBODY}, so it does not get the key of the API server`,
    );
    // What the other process has heard arrives on a pipe.
    await expect.poll(heard).toContain('POST /pairing/mint');
    expect(heard()).not.toContain(API_KEY);
    const trusted = await run(['pair', '--no-qr'], { env: { ...env, RELAY_OPERATOR_UIDS: String(NOBODY) } });
    expect(trusted.stderr).not.toContain('belongs to');
    await expect.poll(heard).toContain(API_KEY);
  });

  test('does not get the token of an agent in the place of the relay: svc mcp list and svc mcp revoke', async () => {
    const { port, heard } = await squatAsNobody('127.0.0.1', 0, MINTED);
    const home = homeWithKey();
    const token = 'token-of-an-agent';
    const pairings = [{ name: 'mcp', token, created_at: 1 }];
    writeFileSync(join(home, 'svc-relay/mcp.json'), JSON.stringify({ version: 1, pairings }));
    const env = { SVC_HOME: home, RELAY_PORT: String(port) };
    const { stdout } = await run(['mcp', 'list', '--json'], { env });
    expect(JSON.parse(stdout).pairings).toMatchObject([{ name: 'mcp', state: 'unreachable' }]);
    expect((await run(['mcp', 'revoke', '--yes'], { env })).stderr).toContain(`is served by user ${NOBODY}`);
    await expect.poll(heard).toContain('GET /health');
    expect(heard()).not.toContain(token);
  });

  test('does not get the key of the API server in its place, and svc pair --check fails', async () => {
    const { port, heard } = await squatAsNobody('127.0.0.1');
    const target = await startBuiltTarget();
    onTestFinished(target.stop);
    const env = { SVC_HOME: homeWithKey(), RELAY_PORT: String(target.port), API_SERVER_KEY: API_KEY };
    const words = ['pair', '--check', '--json', '--host', '127.0.0.1', '--port', String(port)];
    const { stdout } = await run(words, { env, lanAddress: '127.0.0.1' });
    expect(JSON.parse(stdout).steps).toContainEqual(
      expect.objectContaining({
        id: 'api-key',
        status: 'failed',
        summary: `http://127.0.0.1:${port} is served by user ${NOBODY}, so the key is not sent there`,
      }),
    );
    expect(heard()).not.toContain(API_KEY);
  });
});

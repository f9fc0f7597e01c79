import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { operatorHeaders } from '../../cli/operator-key.ts';
import { agentHome, fakeRelay, run } from '../support/cli.ts';
import { closedPort } from '../support/closed-port.ts';
import { canBeNobody, NOBODY } from '../support/other-user.ts';

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

test.runIf(canBeNobody)('another user that has taken the port of the relay does not get the key', async () => {
  const script =
    "require('net').createServer().listen(0, '127.0.0.1', function () { console.log(this.address().port) })";
  const child = spawn(process.execPath, ['-e', script], { uid: NOBODY, gid: NOBODY, cwd: '/' });
  const closed = once(child, 'close');
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await closed;
  });
  const [printed] = await once(child.stdout, 'data');
  expect(await operatorHeaders(homeWithKey(), Number(String(printed)))).toEqual({});
});

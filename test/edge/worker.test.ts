import { generateKeyPair, SignJWT } from 'jose';
import { afterEach, describe, expect, it } from 'vitest';
import { OPERATOR_AUDIENCE } from '../../lib/access/operator-token.ts';
import { cleanups } from '../support/built-relay.ts';
import { startEdgeTarget } from '../support/edge.ts';
import { frame, OPCODE, openRaw, textFrame } from '../support/raw-socket.ts';
import { bearer, pair, post, type Target } from '../support/relay.ts';

const pending = cleanups();

describe('the edge', () => {
  const running: Target[] = [];
  afterEach(async () => {
    await Promise.all(running.splice(0).map((target) => target.stop()));
  });
  const start = async (options?: Parameters<typeof startEdgeTarget>[0]) => {
    const target = await startEdgeTarget(options);
    running.push(target);
    return target;
  };

  it('a refused body does not break the next request on the same connection', async () => {
    const target = await start();
    for (let round = 0; round < 10; round++) {
      // Not `target.fetch`, which uses a new connection each time.
      const refused = await fetch(`${target.url}/pairing/register`, { method: 'POST', body: '{"code":"ABC123"}' });
      expect([refused.status, (await refused.json()).ok]).toEqual([403, false]);
      const healthy = await fetch(`${target.url}/health`);
      expect([healthy.status, (await healthy.json()).status]).toEqual([200, 'ok']);
    }
  });

  it.each([
    ['reserved opcode', frame({ opcode: 3, payload: '{}' })],
    ['continuation of nothing', frame({ opcode: OPCODE.continuation, payload: 'x' })],
    ['length beyond 2^53', frame({ length: 2n ** 60n, lengthBits: 64 })],
  ])('a socket that sends a broken frame is forgotten: %s', async (_name, bytes) => {
    const target = await start();
    const { client, token } = await pair(target);
    pending.push(client.terminate);
    const clients = async () => (await (await target.fetch('/health')).json()).clients;
    const { port, hostname } = new URL(target.url);
    const raw = await openRaw(Number(port), { headers: { host: hostname } });
    pending.push(raw.destroy);
    raw.write(textFrame('system', 'auth', { session_token: token }));
    expect((await raw.envelope()).type).toBe('auth.ok');
    expect(await clients()).toBe(2);
    raw.write(bytes);
    await expect.poll(clients).toBe(1);
    client.send('system', 'ping', {}, 'after');
    expect((await client.next({ id: 'after' })).type).toBe('pong');
  });

  it('contract 01 §12: has no loopback: operator routes need an operator token', async () => {
    const target = await start();
    const { privateKey } = await generateKeyPair('EdDSA');
    const forged = await new SignJWT({})
      .setProtectedHeader({ alg: 'EdDSA' })
      .setAudience(OPERATOR_AUDIENCE)
      .setExpirationTime('5m')
      .sign(privateKey);
    const unsigned = `${btoa('{"alg":"none"}').replace(/=/g, '')}.${btoa(`{"aud":"${OPERATOR_AUDIENCE}","exp":9999999999}`).replace(/=/g, '')}.`;
    for (const headers of [{}, bearer(forged), bearer(unsigned), { 'x-svc-operator': '1' }] as Record<
      string,
      string
    >[]) {
      for (const path of ['/pairing/register', '/pairing/mint']) {
        expect((await target.fetch(path, { ...post({ code: 'ABC123' }), headers })).status).toBe(403);
      }
      const sessions = await target.fetch('/sessions', { headers: { ...headers, 'x-svc-operator': '1' } });
      expect(sessions.status).toBe(401);
    }
  });

  it('contract 01 §12: without a public key nobody is the operator', async () => {
    const target = await start({ env: { RELAY_OPERATOR_PUBLIC_KEY: '' } });
    expect((await target.operator('/pairing/register', post({ code: 'ABC123' }))).status).toBe(403);
  });

  it('contract 01 §12: keeps relays of different host names apart', async () => {
    const target = await start();
    const { token } = await pair(target);
    const other = target.url.replace('//', '//other.');
    expect((await fetch(`${other}/sessions`, { headers: bearer(token) })).status).toBe(401);
  });
});

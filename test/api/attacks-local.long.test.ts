import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type BuiltTarget, cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { attackOperatorRoutes, countRefusals, OPERATOR_ROUTES, operatorRequest } from '../support/operator-routes.ts';
import { canBeNobody, fireAsNobody, forwardAsNobody, NOBODY } from '../support/other-user.ts';
import { exchange, request } from '../support/raw-socket.ts';
import { pair, randomCode } from '../support/relay.ts';

const pending = cleanups();

async function startHost(env: Record<string, string> = {}): Promise<BuiltTarget> {
  const target = await startBuiltTarget({ env });
  pending.push(target.stop);
  return target;
}

const keyOf = ({ agentHome }: BuiltTarget) => readFile(join(agentHome, 'svc-relay/operator-key'), 'utf8');

async function expectOperator(target: BuiltTarget, port: number, headers: Record<string, string>): Promise<void> {
  for (const route of OPERATOR_ROUTES) {
    target.relay.limiter.clear();
    const { status } = await exchange(port, operatorRequest(route, headers), route.method);
    expect({ path: route.path, status }).toEqual({ path: route.path, status: route.operator });
  }
}

async function expectRefused(target: BuiltTarget, port: number, headers: Record<string, string>): Promise<void> {
  await attackOperatorRoutes(target, (route) => exchange(port, operatorRequest(route, headers), route.method));
}

const WRONG_KEYS = ['', 'x', 'A'.repeat(43), 'A'.repeat(8000)];

describe.runIf(canBeNobody)('another user of this host (contract 01 §1.3 rule 6)', () => {
  it('is a stranger on every operator route, and the log names it', async () => {
    const target = await startHost();
    await expectRefused(target, await forwardAsNobody(target.port), {});
    const refusals = target.log.filter((line) => line.includes('refused an operator call'));
    // Also those that are answered 401.
    expect(refusals).toHaveLength(OPERATOR_ROUTES.length - 1);
    for (const line of refusals) expect(line).toContain(`from 127.0.0.1, user ${NOBODY} to /`);
  });

  it('gets no credential into the log that it names in a path (contract 01 §10)', async () => {
    const target = await startHost();
    const port = await forwardAsNobody(target.port);
    const { client, token } = await pair(target);
    const encoded = Array.from(token, (character) => `%${character.charCodeAt(0).toString(16)}`).join('');
    for (const segment of [token, encoded, `${token.slice(0, 20)}%20`]) {
      for (const method of ['DELETE', 'PATCH']) {
        const asked = request(method, `/sessions/${segment}`, { 'x-svc-operator': '1', 'content-length': '0' });
        expect((await exchange(port, asked, method)).status).toBe(401);
      }
    }
    const refusals = target.log.filter((line) => line.includes('refused an operator call'));
    // One line for each method.
    expect(refusals).toHaveLength(2);
    expect(countRefusals(target)).toBe(6);
    for (const line of refusals) expect(line).toContain('to /sessions/{prefix}: ');
    client.terminate();
  });

  it('is told what is missing', async () => {
    const target = await startHost();
    const port = await forwardAsNobody(target.port);
    const mint = await exchange(port, request('POST', '/pairing/mint'));
    expect(JSON.parse(mint.body).error).toContain('X-Svc-Operator-Key');
    const list = await exchange(port, request('GET', '/sessions', { 'x-svc-operator': '1' }));
    expect(JSON.parse(list.body).error).toContain('X-Svc-Operator-Key');
    const plain = await exchange(port, request('GET', '/sessions'));
    expect(JSON.parse(plain.body).error).toBe('a valid session bearer is required');
  });

  it('is the operator with the operator key, and with no other', async () => {
    const target = await startHost();
    const port = await forwardAsNobody(target.port);
    await expectOperator(target, port, { 'x-svc-operator-key': await keyOf(target) });
    for (const key of WRONG_KEYS) {
      const { status } = await exchange(port, request('POST', '/pairing/mint', { 'x-svc-operator-key': key }));
      expect(status).toBe(403);
    }
    expect(target.log.join('\n')).not.toContain(await keyOf(target));
  });

  it('needs no key when RELAY_OPERATOR_UIDS names it', async () => {
    const target = await startHost({ RELAY_OPERATOR_UIDS: `7, ${NOBODY}` });
    await expectOperator(target, await forwardAsNobody(target.port), {});
  });

  it('may use what is open to everybody, and pair', async () => {
    const target = await startHost();
    const port = await forwardAsNobody(target.port);
    expect((await exchange(port, request('GET', '/health'))).status).toBe(200);
    const { client } = await pair({ ...target, wsUrl: `ws://127.0.0.1:${port}/ws` });
    client.terminate();
  });

  it('is judged once per connection, by its own end of it', async () => {
    const target = await startHost();
    const port = await forwardAsNobody(target.port);
    const mine = request('GET', '/relay/security');
    const both = await Promise.all([exchange(target.port, mine), exchange(port, mine), exchange(target.port, mine)]);
    expect(both.map(({ status }) => status)).toEqual([200, 403, 200]);
  });

  // The system reports a socket that nobody holds any more as that of root, as which this relay runs.
  it('gains nothing by hanging up before it is judged', async () => {
    const target = await startHost();
    const attempts = Array.from({ length: 5 }, randomCode);
    for (const code of attempts) {
      const body = JSON.stringify({ code });
      const head = { 'content-length': String(body.length) };
      fireAsNobody(target.port, request('POST', '/pairing/register', head, body));
    }
    await expect.poll(() => countRefusals(target)).toBe(attempts.length);
    for (const code of attempts) expect(await target.relay.codes.consume(code)).toBeUndefined();
  });
});

describe('RELAY_REQUIRE_OPERATOR_KEY=1 (contract 01 §1.3 rule 6)', () => {
  it('demands the key of every caller', async () => {
    const target = await startHost({ RELAY_REQUIRE_OPERATOR_KEY: '1' });
    const key = await keyOf(target);
    expect(key).toMatch(/^[\w-]{43}$/);
    await expectOperator(target, target.port, { 'x-svc-operator-key': key });
    for (const wrong of [undefined, ...WRONG_KEYS]) {
      const headers = wrong === undefined ? undefined : { 'x-svc-operator-key': wrong };
      for (const route of OPERATOR_ROUTES) {
        target.relay.limiter.clear();
        const { status } = await exchange(target.port, operatorRequest(route, headers), route.method);
        expect({ path: route.path, status }).toEqual({ path: route.path, status: route.stranger });
      }
    }
  });

  it('does not let the key make up for a proxy or a foreign page', async () => {
    const target = await startHost();
    const key = { 'x-svc-operator-key': await keyOf(target) };
    for (const [name, value] of [
      ['x-forwarded-for', '127.0.0.1'],
      ['origin', 'http://127.0.0.1:9999'],
      ['host', 'evil.example'],
    ] as const) {
      const { status } = await exchange(target.port, request('POST', '/pairing/mint', { ...key, [name]: value }));
      expect(status, name).toBe(403);
    }
  });
});

describe('the 401 of a call without a bearer', () => {
  const HINTS: [method: string, path: string, hint: RegExp][] = [
    ['GET', '/sessions', /tools on this host send X-Svc-Operator: 1/],
    ['DELETE', '/sessions/abcd1234', /X-Svc-Operator: 1/],
    ['GET', '/phone/outbound', /X-Svc-Operator: 1/],
    ['GET', '/desktop/health', /DESKTOP_RELAY_TOKEN/],
    ['GET', '/desktop/_ping', /DESKTOP_RELAY_TOKEN/],
    ['POST', '/desktop/desktop_terminal', /DESKTOP_RELAY_TOKEN/],
  ];

  it.each(HINTS)('of %s %s tells the operator what its tools send', async (method, path, hint) => {
    const target = await startHost();
    const answer = await exchange(target.port, request(method, path, { 'content-length': '0' }), method);
    expect(answer).toMatchObject({ status: 401, headers: { 'www-authenticate': 'Bearer' } });
    expect(JSON.parse(answer.body).error).toMatch(hint);
  });

  it.each(HINTS)('of %s %s tells others nothing', async (method, path) => {
    const target = await startHost();
    for (const headers of [
      { 'x-forwarded-for': '127.0.0.1' },
      { authorization: 'Bearer x' },
      { origin: 'http://127.0.0.1:9999' },
    ] as Record<string, string>[]) {
      const answer = await exchange(target.port, request(method, path, { 'content-length': '0', ...headers }), method);
      expect(answer.status).toBe(401);
      expect(JSON.parse(answer.body).error).toBe('a valid session bearer is required');
    }
  });
});

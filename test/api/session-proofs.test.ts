import { expect, it } from 'vitest';
import { WebSocket } from 'ws';
import { open } from '../../handlers/guards.ts';
import { routes } from '../../handlers/routes.ts';
import { sockets } from '../../handlers/sockets.ts';
import { clockedTargets } from '../support/built-relay.ts';
import { connect } from '../support/client.ts';
import { createProver, hashOf, nonceOf, type Prover } from '../support/prover.ts';
import { authenticate, bearer, describeMatrix, pair, randomCode, registerCode, type Target } from '../support/relay.ts';

const NEEDS = 'Authentication needs a proof of the key of this session (timeout)';

/** Pairs a page, whose session is bound from its first moment. */
async function pairBound(target: Target, prover: Prover, device: Record<string, unknown> = {}) {
  const code = randomCode();
  await registerCode(target, code);
  const client = await connect(target.wsUrl);
  const payload = { pairing_code: code, device_id: crypto.randomUUID(), client_surface: 'web', ...device };
  const ok = await prover.authenticate(client, payload);
  expect(ok).toMatchObject({ type: 'auth.ok', payload: { bound: true } });
  const token = String(ok.payload.session_token);
  return { client, token, refreshToken: String(ok.payload.refresh_token), prefix: token.slice(0, 8), ...payload };
}

/** `GET /sessions` with a proof that `change` has changed: status. */
async function list(target: Target, prover: Prover, token: string, change: object = {}): Promise<number> {
  const facts = { htm: 'GET', htu: '/sessions', token, nonce: await nonceOf(target), ...change };
  const headers = { ...(await prover.headers(facts)), ...bearer(token) };
  return (await target.fetch('/sessions', { headers })).status;
}

/** Status of the handshake of a voice socket: 404 when the caller is admitted, and the session unknown. */
function handshake(target: Target, path: string, protocols: string[]): Promise<number> {
  const socket = new WebSocket(target.wsUrl.replace(/\/ws$/, path), protocols, { perMessageDeflate: false });
  return new Promise((resolve, reject) => {
    socket.once('unexpected-response', (_request, { statusCode }) => resolve(statusCode ?? 0));
    socket.once('open', () => reject(new Error('opened')));
    socket.once('error', reject);
  });
}

describeMatrix('a session that is bound to a key (handlers/web/README.md; issue 23, 1.3)', (start, runtime) => {
  it('its bearer without a proof is 401 on every route', async () => {
    const target = await start();
    const { token } = await pairBound(target, await createProver());
    const statuses: Record<string, number> = {};
    for (const [method, path, guard] of routes) {
      const concrete = path
        .replace(/^\/\(\?<command>([^|]+)\|.*$/, '/$1')
        .replace(/\(\?!.*?\)\)?(?=:)|\(\?!.*\)(?=:)/, '')
        .replace(/:\w+/g, 'abcd');
      if (guard === open || /[(*]/.test(concrete)) continue;
      const name = method === 'ALL' ? 'GET' : method;
      const response = await target.fetch(concrete, { method: name, headers: bearer(token) });
      statuses[`${name} ${concrete}`] = response.status;
      if (response.status === 401) expect(response.headers.get('dpop-nonce'), concrete).toMatch(/^[\w-]{22}$/);
    }
    expect(Object.keys(statuses).length).toBeGreaterThan(60);
    expect(Object.entries(statuses).filter(([, status]) => status !== 401)).toEqual([]);
  });

  it('with a proof it is what it was, and each proof is good once', async () => {
    const target = await start();
    const prover = await createProver();
    const { token, prefix } = await pairBound(target, prover);
    const headers = await prover.headers({ htm: 'GET', htu: '/sessions', token, nonce: await nonceOf(target) });
    const response = await target.fetch('/sessions?x=1', { headers });
    expect(response.status).toBe(200);
    expect((await response.json()).sessions).toEqual([
      expect.objectContaining({ token_prefix: prefix, is_current: true, bound: true }),
    ]);
    const again = await target.fetch('/sessions', { headers });
    expect([again.status, again.headers.get('www-authenticate')]).toEqual([
      401,
      'Bearer, DPoP algs="ES256", error="use_dpop_nonce"',
    ]);
    // Of proofs that come at once, one is taken.
    const facts = { htm: 'GET', htu: '/sessions', token, nonce: await nonceOf(target) };
    const shared = await prover.headers(facts);
    const statuses = await Promise.all(
      Array.from({ length: 5 }, async () => (await target.fetch('/sessions', { headers: shared })).status),
    );
    expect(statuses.sort()).toEqual([200, 401, 401, 401, 401]);
  });

  it('refuses a proof of another key, method, path, token or nonce, and what is no proof', async () => {
    const target = await start();
    const [prover, thief] = [await createProver(), await createProver()];
    const { token } = await pairBound(target, prover);
    expect(await list(target, prover, token)).toBe(200);
    const changes: Record<string, object> = {
      method: { htm: 'POST' },
      path: { htu: '/sessions/nonce' },
      'whole address': { htu: `${target.url}/sessions` },
      token: { claims: { ath: hashOf('another') } },
      'no token': { claims: { ath: undefined } },
      'no nonce': { claims: { nonce: undefined } },
      'made-up nonce': { nonce: 'AAAAAAAAAAAAAAAAAAAAAA' },
      'no id': { claims: { jti: undefined } },
      'short id': { claims: { jti: 'x' } },
      'no time': { claims: { iat: undefined } },
      type: { header: { typ: 'JWT' } },
      'no algorithm': { header: { alg: 'none' } },
      hmac: { header: { alg: 'HS256' } },
      'other curve': { header: { jwk: { kty: 'EC', crv: 'P-384', x: 'x', y: 'y' } } },
      'no key': { header: { jwk: undefined } },
    };
    for (const [name, change] of Object.entries(changes)) {
      expect([name, await list(target, prover, token, change)]).toEqual([name, 401]);
    }
    expect(await list(target, thief, token)).toBe(401);
    for (const dpop of [
      '',
      'x',
      'a.b.c',
      '.'.repeat(5000),
      `${await prover.prove({ htm: 'GET', htu: '/', token })}x`,
    ]) {
      expect((await target.fetch('/sessions', { headers: { ...bearer(token), dpop } })).status).toBe(401);
    }
    // The key of the owner in the header, the signature of the thief.
    const nonce = await nonceOf(target);
    const [mine, stolen] = await Promise.all(
      [prover, thief].map((one) => one.prove({ htm: 'GET', htu: '/sessions', token, nonce })),
    );
    const forged = [...(mine as string).split('.').slice(0, 2), (stolen as string).split('.')[2]].join('.');
    expect((await target.fetch('/sessions', { headers: { ...bearer(token), dpop: forged } })).status).toBe(401);
    expect(await list(target, prover, token)).toBe(200);
  });

  it('no earlier proof is good after a restart, and the session is bound still', async () => {
    const target = await start();
    const prover = await createProver();
    const { token } = await pairBound(target, prover);
    const nonce = await nonceOf(target);
    await target.restart();
    expect(await list(target, prover, token, { nonce })).toBe(401);
    expect((await target.fetch('/sessions', { headers: bearer(token) })).status).toBe(401);
    expect(await list(target, prover, token)).toBe(200);
  });

  it('/ws: neither token nor refresh token without the key, nor with another one', async () => {
    const target = await start();
    const [prover, thief] = [await createProver(), await createProver()];
    const page = await pairBound(target, prover);
    // More often than wrong tokens are allowed: whoever has the token has not guessed it.
    for (let count = 0; count < 6; count++) {
      const { frame } = await authenticate(target, { session_token: page.token, refresh_token: page.refreshToken });
      expect(frame).toMatchObject({ type: 'auth.fail', payload: { reason: NEEDS } });
    }
    const copied = { refresh_token: page.refreshToken, device_id: page.device_id };
    expect((await authenticate(target, copied)).frame.payload).toEqual({ reason: NEEDS });
    for (const payload of [{ session_token: page.token }, copied]) {
      const frame = await thief.authenticate(await connect(target.wsUrl), payload);
      expect(frame).toMatchObject({ type: 'auth.fail', payload: { reason: 'Invalid session token' } });
    }

    const refreshed = await prover.authenticate(await connect(target.wsUrl), copied);
    expect(refreshed).toMatchObject({ type: 'auth.ok', payload: { bound: true } });
    const token = String(refreshed.payload.session_token);
    expect((await target.fetch('/sessions', { headers: bearer(token) })).status).toBe(401);
    expect(await list(target, prover, token)).toBe(200);
    expect((await authenticate(target, { session_token: token })).frame.payload).toEqual({ reason: NEEDS });
  });

  it('/ws: an old nonce is challenged once, and a proof opens one socket', async () => {
    const target = await start();
    const prover = await createProver();
    const { token } = await pairBound(target, prover);
    const prove = (nonce?: string) => prover.prove({ htm: 'GET', htu: '/ws', token, nonce });
    const client = await connect(target.wsUrl);
    client.send('system', 'auth', { session_token: token, proof: await prove() });
    const challenge = await client.next();
    expect(challenge).toMatchObject({ type: 'auth.challenge', payload: { nonce: await nonceOf(target) } });
    client.send('system', 'auth', { session_token: token, proof: await prove('old') });
    expect((await client.next()).payload).toEqual({ reason: 'Invalid session token' });
    expect((await client.closed()).code).toBe(1008);

    const proof = await prove(String(challenge.payload.nonce));
    const opened = await authenticate(target, { session_token: token, proof });
    expect(opened.frame).toMatchObject({ type: 'auth.ok', payload: { bound: true } });
    const { frame } = await authenticate(target, { session_token: token, proof });
    expect(frame, 'another proof is asked for').toMatchObject({ type: 'auth.challenge' });
    // Nor is it good for a request.
    expect((await target.fetch('/ws', { headers: { ...bearer(token), dpop: proof } })).status).toBe(426);
    opened.client.send('system', 'ping', { ts: 7 });
    expect((await opened.client.next({ type: 'pong' })).payload).toEqual({ ts: 7 });
  });

  it('a session from before is served without a proof, until its device comes with a key', async () => {
    const target = await start();
    const [prover, thief] = [await createProver(), await createProver()];
    const old = await pair(target);
    expect(old.ok.payload).not.toHaveProperty('bound');
    expect((await target.fetch('/sessions', { headers: { ...bearer(old.token), dpop: 'x' } })).status).toBe(200);
    // A proof that is not good binds nothing.
    const { frame } = await authenticate(target, { session_token: old.token, proof: 'x' });
    expect(frame.type).toBe('auth.fail');
    expect((await target.fetch('/sessions', { headers: bearer(old.token) })).status).toBe(200);

    const payload = { session_token: old.token, refresh_token: old.refreshToken };
    const ok = await prover.authenticate(await connect(target.wsUrl), payload);
    expect(ok).toMatchObject({ type: 'auth.ok', payload: { session_token: old.token, bound: true } });
    expect((await target.fetch('/sessions', { headers: bearer(old.token) })).status).toBe(401);
    expect(await list(target, prover, old.token)).toBe(200);
    expect((await thief.authenticate(await connect(target.wsUrl), payload)).type).toBe('auth.fail');
    // The socket that was open goes on.
    old.client.send('system', 'ping', { ts: 1 });
    expect((await old.client.next({ type: 'pong' })).payload).toEqual({ ts: 1 });
  });

  it('voice sockets take the proof beside the token, and no other', async () => {
    const target = await start();
    const prover = await createProver();
    const { token } = await pairBound(target, prover);
    for (const { path } of sockets.filter(({ path }) => path.startsWith('/voice/'))) {
      const at = path.replace(/\(\?!.*\)(?=:)/, '').replace(':id', 'abcd');
      const offer = ['svc.voice', `svc.bearer.${token}`];
      const proof = async (htu: string) =>
        `svc.proof.${await prover.prove({ htm: 'GET', htu, token, nonce: await nonceOf(target) })}`;
      const good = await proof(at);
      expect(await handshake(target, at, offer)).toBe(401);
      expect(await handshake(target, at, [...offer, await proof('/ws')])).toBe(401);
      expect(await handshake(target, at, [...offer, good, await proof(at)])).toBe(401);
      expect(await handshake(target, at, [...offer, good])).toBe(404);
      expect(await handshake(target, at, [...offer, good])).toBe(401);
    }
  });

  it('lets the session go from its key for a device that proves it, and for no other', async () => {
    const target = await start();
    const [prover, other] = [await createProver(), await createProver()];
    const page = await pairBound(target, prover);
    const second = await pairBound(target, other);
    const unbind = async (by: Prover, token: string, prefix: string) => {
      const facts = { htm: 'DELETE', htu: `/sessions/${prefix}/key`, token, nonce: await nonceOf(target) };
      return (await target.fetch(facts.htu, { method: 'DELETE', headers: await by.headers(facts) })).status;
    };
    expect(await unbind(other, page.token, page.prefix)).toBe(401);
    expect(await unbind(other, second.token, page.prefix)).toBe(403);
    expect((await target.fetch('/sessions', { headers: bearer(page.token) })).status).toBe(401);
    expect(await unbind(prover, page.token, page.prefix)).toBe(200);
    await target.restart();
    expect((await target.fetch('/sessions', { headers: bearer(page.token) })).status).toBe(200);
    const { frame } = await authenticate(target, { session_token: page.token });
    expect(frame).toMatchObject({ type: 'auth.ok' });
    if (runtime === 'node') expect(target.log.join('\n')).toMatch(/WARNING.* no longer bound to the key/);
  });
});

describeMatrix('proofs grow old (issue 23, 1.3)', () => {
  const start = clockedTargets();
  it('a nonce is good for five minutes at least, and for ten at most', async () => {
    const { clock, target } = await start();
    const prover = await createProver();
    const { token } = await pairBound(target, prover);
    const nonce = await nonceOf(target);
    clock.advance(290_000);
    expect(await list(target, prover, token, { nonce })).toBe(200);
    const late = await nonceOf(target);
    clock.advance(299_000);
    expect(await list(target, prover, token, { nonce: late })).toBe(200);
    clock.advance(12_000);
    for (const old of [nonce, late]) expect(await list(target, prover, token, { nonce: old })).toBe(401);
    expect(await list(target, prover, token)).toBe(200);
  });
}, ['node']);

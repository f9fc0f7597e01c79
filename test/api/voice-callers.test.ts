import { once } from 'node:events';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import type { RelayRequest } from '../../handlers/request.ts';
import { profileOf, readVoiceBody } from '../../handlers/voice/request.ts';
import { sha256 } from '../../lib/kit/sha256.ts';
import { cleanups, startBuiltTarget } from '../support/built-relay.ts';
import { privateAuthority } from '../support/certificate.ts';
import { startEdgeTarget } from '../support/edge.ts';
import { type FakeApi, startFakeApi } from '../support/fake-api-server.ts';
import {
  bearer,
  describeAtEdge,
  describeOnNode,
  itOnNode,
  pair,
  post,
  runtimes,
  startNodeTarget,
  type Target,
} from '../support/relay.ts';
import { giveUpGrant } from '../support/scripted.ts';
import { testRows } from '../support/socket-rows.ts';
import { temporaryDirectory } from '../support/temp.ts';

const KEY = 'sk-test-api-key';
const FORWARDED = { 'x-forwarded-for': '192.0.2.7' };
const INSECURE = { RELAY_ALLOW_INSECURE_API_BEARER: '1' };
const pending = cleanups();

const starters = {
  node: (env: Record<string, string>) => startBuiltTarget({ rows: testRows, env }),
  edge: (env: Record<string, string>) => startEdgeTarget({ env }),
};

/** A relay and its API server, which accepts `KEY` at `/api/v1/models`. */
async function start(runtime: 'node' | 'edge', env: Record<string, string> = {}) {
  const api = await startFakeApi();
  api.onAny(({ headers, answer }) => answer(headers.authorization === `Bearer ${KEY}` ? 200 : 401, { data: [] }));
  const target: Target = await starters[runtime]({ RELAY_WEBAPI_URL: `${api.url}/api//`, ...env });
  pending.push(() => target.stop());
  return { api, target };
}

interface Refused {
  status: number;
  text: string;
  headers: Record<string, unknown>;
}

interface Opened {
  status: 101;
  protocol: string;
  principal: Promise<{ kind: string; key: string }>;
  closed: Promise<[code: number, reason: string]>;
}

/** Connects to a socket behind the guard `voice('voice:tts')`. */
async function connect(
  target: Target,
  headers: Record<string, string>,
  protocols: string[] = [],
): Promise<Refused | Opened> {
  const options = { perMessageDeflate: false, headers };
  const socket = new WebSocket(target.wsUrl.replace(/\/ws$/, '/voice/test'), protocols, options);
  pending.push(() => socket.terminate());
  socket.on('error', () => {});
  return new Promise((resolve) => {
    const principal = new Promise<{ kind: string; key: string }>((heard) =>
      socket.once('message', (data) => heard(JSON.parse(String(data)))),
    );
    const closed = new Promise<[number, string]>((heard) =>
      socket.once('close', (code, reason) => heard([code, String(reason)])),
    );
    socket.once('open', () => {
      // The local edge runtime keeps the connection of a client that has never sent anything for 12 s after the close.
      socket.send('hello');
      resolve({ status: 101, protocol: socket.protocol, principal, closed });
    });
    socket.once('unexpected-response', async (_request, response) => {
      let text = '';
      for await (const chunk of response) text += chunk;
      resolve({ status: response.statusCode ?? 0, text, headers: response.headers });
    });
  });
}

const withKey = (target: Target, headers: Record<string, string> = {}, key = KEY) =>
  connect(target, { ...bearer(key), ...headers });

/** The bearers that the API server was asked about. */
const probed = ({ requests }: FakeApi) => requests.map(({ headers }) => headers.authorization?.replace('Bearer ', ''));
const probesOf = (api: FakeApi, key = KEY) => probed(api).filter((token) => token === key).length;

async function opened(answer: Promise<Refused | Opened>): Promise<Opened> {
  const result = await answer;
  if ('principal' in result) return result;
  throw new Error(`refused with ${result.status}: ${result.text}`);
}

const allowInsecure = (target: Target, value: boolean) =>
  target.operator('/relay/security', { ...post({ allow_insecure_api_bearer: value }), method: 'PATCH' });

describe.each(runtimes())('callers of voice (contract 05 §2) [%s]', (runtime) => {
  it('1: no bearer is 401, in one line of text that names the header', async () => {
    const { api, target } = await start(runtime, INSECURE);
    for (const authorization of [undefined, 'Basic eDp5', 'Bearer', 'Bearer  ']) {
      const refused = await connect(target, authorization === undefined ? {} : { authorization });
      expect(refused).toMatchObject({
        status: 401,
        text: expect.stringMatching(/^[^\n]*Authorization: Bearer[^\n]*$/),
        headers: { 'content-type': expect.stringMatching(/^text\/plain/), 'cache-control': 'no-store' },
      });
    }
    expect(api.requests).toHaveLength(0);
  });

  it('2: a session with the grant passes as its device', async () => {
    const { api, target } = await start(runtime);
    const { token } = await pair(target, { device: { device_id: 'the-device' } });
    const { principal } = await opened(connect(target, bearer(token)));
    expect(await principal).toEqual({ kind: 'session', key: 'the-device' });
    expect(api.requests).toHaveLength(0);
  });

  it('2: a session without the grant is 403 with its name, and is never probed', async () => {
    const { api, target } = await start(runtime, INSECURE);
    const { token } = await pair(target, { policy: { without: ['voice:tts'] } });
    const refused = await connect(target, bearer(token));
    expect(refused).toMatchObject({ status: 403, text: 'session lacks active voice:tts grant' });
    expect(api.requests).toHaveLength(0);
  });

  it('2: a page offers its session token as a subprotocol, which is never echoed', async () => {
    const { api, target } = await start(runtime, INSECURE);
    const { token } = await pair(target, { device: { device_id: 'the-page' } });
    const offer = (...tokens: string[]) =>
      connect(target, {}, ['svc.voice', ...tokens.map((one) => `svc.bearer.${one}`)]);
    const { protocol, principal } = await opened(offer(token));
    expect([protocol, await principal]).toEqual(['svc.voice', { kind: 'session', key: 'the-page' }]);
    // Clients that send the header select nothing.
    expect((await opened(connect(target, bearer(token)))).protocol).toBe('');
    for (const tokens of [[], [token, token.toUpperCase()], [crypto.randomUUID()], [KEY]]) {
      expect(await offer(...tokens)).toMatchObject({ status: 401 });
    }
    // The header decides alone.
    expect(await connect(target, { authorization: 'Basic eDp5' }, ['svc.voice', `svc.bearer.${token}`])).toMatchObject({
      status: 401,
    });
    expect(api.requests).toHaveLength(0);
  });

  it('2: what the relay has issued itself never reaches the API server', async () => {
    const { api, target } = await start(runtime, INSECURE);
    api.onAny(({ answer }) => answer(200, {}));
    const dead = await pair(target);
    await target.fetch(`/sessions/${dead.prefix}`, { method: 'DELETE', headers: bearer(dead.token) });
    const { refreshToken } = await pair(target);
    for (const token of [dead.token, crypto.randomUUID(), crypto.randomUUID().toUpperCase(), refreshToken]) {
      expect(await connect(target, bearer(token))).toMatchObject({
        status: 401,
        text: 'invalid or expired bearer token',
      });
    }
    expect(api.requests).toHaveLength(0);
  });

  it("2: the host's own API key may have the form of a session token", async () => {
    const key = crypto.randomUUID();
    const { api, target } = await start(runtime, { ...INSECURE, API_SERVER_KEY: key });
    api.onAny(({ headers, answer }) => answer(headers.authorization === `Bearer ${key}` ? 200 : 401, {}));
    await opened(withKey(target, {}, key));
    expect(probesOf(api, key)).toBe(1);
  });

  it('4, 5: a valid API key is asked for once a minute, at the path of the API server', async () => {
    const { api, target } = await start(runtime, INSECURE);
    const { principal } = await opened(withKey(target));
    expect(await principal).toEqual({ kind: 'api', key: sha256(KEY) });
    await opened(withKey(target));
    expect(probesOf(api)).toBe(1);
    expect(api.requests[0]).toMatchObject({ method: 'GET', path: '/api/v1/models' });
  });

  it('4, 5: every other answer is 401 and not remembered; a redirect is not followed', async () => {
    const { api, target } = await start(runtime, INSECURE);
    for (const status of [401, 403, 404, 500, 302, 'cut'] as const) {
      api.onAny(({ answer, cut }) => (status === 'cut' ? cut() : answer(status, {}, { location: '/elsewhere' })));
      expect(await withKey(target)).toMatchObject({ status: 401, text: 'invalid or expired bearer token' });
    }
    expect(api.requests.map(({ path }) => path)).toEqual(Array(6).fill('/api/v1/models'));
    api.onAny(({ headers, answer }) => answer(headers.authorization === `Bearer ${KEY}` ? 204 : 401, ''));
    await opened(withKey(target));
  });

  it('an unreachable API server is 401', async () => {
    const { target } = await start(runtime, { ...INSECURE, RELAY_WEBAPI_URL: 'http://127.0.0.1:1' });
    expect(await withKey(target)).toMatchObject({ status: 401 });
  });

  it('probes of one token at the same time are one', async () => {
    const { api, target } = await start(runtime, INSECURE);
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    api.onAny(async ({ headers, answer }) => {
      await held;
      answer(headers.authorization === `Bearer ${KEY}` ? 200 : 401, {});
    });
    const calls = Array.from({ length: 6 }, () => withKey(target, FORWARDED));
    await api.request(0);
    release();
    for (const call of calls) await opened(call);
    expect(probesOf(api)).toBe(1);
  });

  it('3: over plain http an API key is 403 and not probed, unless the operator allows it', async () => {
    const { api, target } = await start(runtime);
    const refused = { status: 403, text: expect.stringContaining('HTTPS') };
    expect(await withKey(target, FORWARDED)).toMatchObject(refused);
    expect(api.requests).toHaveLength(0);
    await allowInsecure(target, true);
    await opened(withKey(target, FORWARDED));
    await allowInsecure(target, false);
    expect(await withKey(target, FORWARDED)).toMatchObject(refused);
    // The transport of a session is not judged.
    const { token } = await pair(target);
    await opened(connect(target, { ...bearer(token), ...FORWARDED }));
  });

  it('3: switched off at runtime, plain http is refused although the deployment allows it', async () => {
    const { target } = await start(runtime, INSECURE);
    await opened(withKey(target, FORWARDED));
    await allowInsecure(target, false);
    expect(await withKey(target, FORWARDED)).toMatchObject({ status: 403 });
  });

  it('an API server that accepts any key admits nobody from elsewhere', async () => {
    const { api, target } = await start(runtime, INSECURE);
    api.onAny(({ answer }) => answer(200, {}));
    for (const key of [KEY, 'anything']) {
      expect(await withKey(target, FORWARDED, key)).toMatchObject({
        status: 403,
        text: expect.stringContaining('accepts any key'),
      });
    }
    // Two keys, and one that the relay made up; it is asked for once a minute too.
    expect(new Set(probed(api)).size).toBe(3);
    expect(api.requests).toHaveLength(3);
  });

  it('an API server that does not say whether it accepts any key admits nobody from elsewhere', async () => {
    const { api, target } = await start(runtime, INSECURE);
    api.onAny(({ headers, answer, cut }) => (headers.authorization === `Bearer ${KEY}` ? answer(200, {}) : cut()));
    expect(await withKey(target, FORWARDED)).toMatchObject({ status: 401 });
  });

  it('after 30 failures within a minute a caller is told to wait, and nobody is asked', async () => {
    const { api, target } = await start(runtime, INSECURE);
    const { token } = await pair(target);
    await opened(withKey(target));
    const before = api.requests.length;
    const wrong = await Promise.all(Array.from({ length: 40 }, (_, at) => withKey(target, {}, `wrong-${at}`)));
    expect(wrong.filter(({ status }) => status === 401)).toHaveLength(30);
    const limited = wrong.filter(({ status }) => status === 429) as Refused[];
    expect(limited).toHaveLength(10);
    for (const { headers, text } of limited) {
      expect(Number(headers['retry-after'])).toBeGreaterThan(0);
      expect(Number(headers['retry-after'])).toBeLessThanOrEqual(60);
      expect(text).toMatch(/^[^\n]+$/);
    }
    expect(api.requests).toHaveLength(before + 30);
    // What needs no probe is not limited.
    await opened(withKey(target));
    await opened(connect(target, bearer(token)));
    expect(await connect(target, bearer(crypto.randomUUID()))).toMatchObject({ status: 401 });
  });

  it('a token is never logged or returned, only the start of its hash', async () => {
    const { target } = await start(runtime, INSECURE);
    const wrong = 'sk-wrong-token';
    const { prefix, token } = await pair(target);
    await target.fetch(`/sessions/${prefix}`, { method: 'DELETE', headers: bearer(token) });
    const refusals = [await withKey(target, {}, wrong), await withKey(target, {}, token), await withKey(target)];
    await expect.poll(() => target.log.join('\n')).toContain(`token_id=${sha256(wrong).slice(0, 16)}`);
    await expect.poll(() => target.log.join('\n')).toContain(`token_id=${sha256(token).slice(0, 16)}`);
    const shown = [...target.log, ...refusals.map((refusal) => JSON.stringify(refusal))].join('\n');
    for (const secret of [wrong, token, KEY]) expect(shown).not.toContain(secret);
  });

  it('an API key opens nothing outside voice', async () => {
    const { api, target } = await start(runtime, INSECURE);
    await opened(withKey(target));
    const before = api.requests.length;
    for (const path of ['/sessions', '/phone/outbound', '/context/injected', '/notifications/recent']) {
      expect((await target.fetch(path, { headers: bearer(KEY) })).status).toBe(401);
    }
    expect(api.requests).toHaveLength(before);
  });

  it('a socket ends with its session', async () => {
    const { target } = await start(runtime);
    const { token, prefix } = await pair(target);
    const { closed } = await opened(connect(target, bearer(token)));
    await target.fetch(`/sessions/${prefix}`, { method: 'DELETE', headers: bearer(token) });
    expect(await closed).toEqual([4001, 'session revoked']);
  });

  it('a socket ends with its own grant and with no other', async () => {
    const { target } = await start(runtime);
    const paired = await pair(target);
    const { closed } = await opened(connect(target, bearer(paired.token)));
    await giveUpGrant(target, paired, 'voice:stt');
    const still = await opened(connect(target, bearer(paired.token)));
    await still.principal;
    await giveUpGrant(target, paired, 'voice:tts');
    expect(await closed).toEqual([4001, 'voice:tts grant ended']);
    expect(await still.closed).toEqual([4001, 'voice:tts grant ended']);
    expect((await target.fetch('/context/injected', { headers: bearer(paired.token) })).status).not.toBe(401);
  });

  it('a grant that ends after some seconds ends the socket then', async () => {
    const { target } = await start(runtime);
    const { token } = await pair(target, { policy: { grants: { 'voice:tts': 4 } } });
    const { closed } = await opened(connect(target, bearer(token)));
    expect(await closed).toEqual([4001, 'voice:tts grant ended']);
    expect(await connect(target, bearer(token))).toMatchObject({ status: 403 });
  });

  it('§3: errors are text, but JSON on the three routes that say so, after authentication', async () => {
    const { target } = await start(runtime);
    const { token } = await pair(target);
    const speak = (body: string, headers = bearer(token)) =>
      target.fetch('/voice/synthesize', { method: 'POST', body, headers });
    const stranger = await speak('{}', {} as never);
    expect([stranger.status, stranger.headers.get('content-type')]).toEqual([401, 'text/plain; charset=utf-8']);
    for (const [body, status, error] of [
      ['{', 400, 'invalid JSON body'],
      ['', 400, 'invalid JSON body'],
      ['[]', 400, 'JSON body must be an object'],
      ['null', 400, 'JSON body must be an object'],
      [`{"text":"${'x'.repeat(2 * 1024 * 1024)}"}`, 413, 'body is larger than 2097152 bytes'],
    ] as const) {
      const refused = await speak(body);
      expect([refused.status, await refused.json()]).toEqual([status, { success: false, error }]);
    }
    const wrong = await target.fetch('/voice/synthesize', { headers: bearer(token) });
    expect([wrong.status, wrong.headers.get('allow'), await wrong.text()]).toEqual([405, 'POST', 'method not allowed']);
  });

  it('errors of voice are one line of text, those of other paths JSON (contract 00)', async () => {
    const { target } = await start(runtime);
    const unknown = await target.fetch('/voice/no/such/path');
    expect([unknown.status, await unknown.text()]).toEqual([404, 'not found']);
    expect(unknown.headers.get('content-type')).toMatch(/^text\/plain/);
    const other = await target.fetch('/voices');
    expect([other.status, await other.json()]).toEqual([404, { ok: false, error: 'not found' }]);
  });
});

describeOnNode('callers of voice on a host (contract 05 §2)', () => {
  const startHost = (env?: Record<string, string>) => start('node', env);

  it('3: a strictly local caller needs no TLS, and may use an API server that accepts any key', async () => {
    const { api, target } = await startHost();
    await opened(withKey(target));
    expect(probed(api)).toEqual([KEY]);
    api.onAny(({ answer }) => answer(200, {}));
    await opened(withKey(target, {}, 'anything'));
    expect(await withKey(target, FORWARDED, 'anything')).toMatchObject({ status: 403 });
  });

  it.each([
    ['https', 101],
    ['HTTPS, https', 101],
    ['http', 403],
    ['http, https', 403],
    ['https, http', 403],
    ['https,', 403],
    ['', 403],
  ])('3: X-Forwarded-Proto %j of a trusted proxy: %i', async (protocol, status) => {
    const { api, target } = await startHost({ RELAY_TRUST_PROXY_HEADERS: '1' });
    expect((await withKey(target, { 'x-forwarded-proto': protocol })).status).toBe(status);
    expect(probesOf(api)).toBe(status === 101 ? 1 : 0);
  });

  it('3: X-Forwarded-Proto of a proxy that is not trusted counts for nothing', async () => {
    const { api, target } = await startHost();
    expect(await withKey(target, { 'x-forwarded-proto': 'https' })).toMatchObject({ status: 403 });
    expect(api.requests).toHaveLength(0);
  });

  it('failures are counted per caller behind a trusted proxy', async () => {
    const { target } = await startHost({ RELAY_TRUST_PROXY_HEADERS: '1' });
    const from = (address: string) => ({ 'x-forwarded-for': address, 'x-forwarded-proto': 'https' });
    // An `Origin` of its own is no way round.
    for (let at = 0; at < 30; at++) {
      await withKey(target, { ...from('192.0.2.1'), origin: `https://${at}.example` }, `wrong-${at}`);
    }
    expect(await withKey(target, from('192.0.2.1'), 'one-more')).toMatchObject({ status: 429 });
    expect(await withKey(target, from('192.0.2.2'), 'one-more')).toMatchObject({ status: 401 });
  });

  it("the host's own API key is also the one of the agent's files", async () => {
    const { api, target } = await startHost();
    const key = crypto.randomUUID();
    api.onAny(({ headers, answer }) => answer(headers.authorization === `Bearer ${key}` ? 200 : 401, {}));
    await mkdir(target.agentHome, { recursive: true });
    await writeFile(join(target.agentHome, '.env'), `API_SERVER_KEY=${key}\n`);
    await opened(withKey(target, {}, key));
    expect(await withKey(target, {}, crypto.randomUUID())).toMatchObject({ status: 401 });
    expect(probed(api)).toEqual([key]);
  });
});

itOnNode('§1: an API server with a certificate of a private authority is asked', async (context) => {
  const directory = await temporaryDirectory();
  const { ca, cert, key } = await privateAuthority(context, directory);
  const server = createServer({ cert: await readFile(cert), key: await readFile(key) }, ({ headers }, response) =>
    response.writeHead(headers.authorization === `Bearer ${KEY}` ? 200 : 401).end(),
  ).listen(0, 'localhost');
  await once(server, 'listening');
  pending.push(() => server.close());
  const RELAY_WEBAPI_URL = `https://localhost:${(server.address() as AddressInfo).port}`;
  for (const [env, status] of [
    [{}, 401],
    [{ NODE_EXTRA_CA_CERTS: ca }, 400],
    [{ SVC_CA_BUNDLE: ca }, 400],
  ] as const) {
    const target = await startNodeTarget({ env: { RELAY_WEBAPI_URL, ...env } });
    pending.push(() => target.stop());
    const response = await target.fetch('/voice/synthesize', { method: 'POST', headers: bearer(KEY) });
    expect([env, response.status]).toEqual([env, status]);
  }
});

describeOnNode('the parts that requests of voice have in common (contract 05 §3)', () => {
  const request = (url: string, body: string) =>
    Object.assign(new Request(`http://relay/${url}`, { method: 'POST', body }), {
      peer: {},
      params: {},
      query: Object.fromEntries(new URL(`http://relay/${url}`).searchParams),
    }) as unknown as RelayRequest;

  it.each([
    ['', {}],
    ['null', {}],
    [' null ', {}],
    ['{"a":1}', { a: 1 }],
  ])('an optional body %j is %j', async (body, expected) => {
    expect(await readVoiceBody(request('', body), { optional: true })).toEqual(expected);
  });

  it.each(['[]', '1', '"null"', '{', ' '])('an optional body %j is refused', async (body) => {
    await expect(readVoiceBody(request('', body), { optional: true })).rejects.toMatchObject({ kind: 'invalid' });
  });

  it.each([
    ['', {}, null],
    ['?profile=', {}, null],
    ['?profile=%20', { profile: ' ' }, null],
    ['?profile=work', { profile: 'home' }, 'work'],
    ['?profile=', { profile: ' home ' }, 'home'],
    ['?profile=a%2Fb', {}, 'a/b'],
    ['', { profile: 7 }, null],
  ])('the profile of %j with %j is %j', (url, body, expected) => {
    expect(profileOf(request(url, '{}'), body)).toBe(expected);
  });
});

describeAtEdge('callers of voice at the edge (contract 05 §2)', () => {
  it('an operator token does not reach the API server', async () => {
    const { api, target } = await start('edge', INSECURE);
    let token = '';
    const { fetch } = globalThis;
    globalThis.fetch = (input, init) => {
      token = new Headers(init?.headers).get('authorization')?.replace('Bearer ', '') ?? token;
      return fetch(input, init);
    };
    pending.push(() => {
      globalThis.fetch = fetch;
    });
    await target.operator('/relay/security');
    expect(token).toMatch(/^ey/);
    expect(await withKey(target, {}, token)).toMatchObject({ status: 401 });
    expect(api.requests).toHaveLength(0);
  });
});

import { H3, HTTPError } from 'h3';
import { describe, expect, it } from 'vitest';
import { type BrokerHttpOptions, createBrokerHttp } from '../../../../lib/reach/broker/http.ts';

const COUNTS = { hosts_online: 2, active_streams: 3 };
const UPGRADE = { headers: { upgrade: 'WebSocket' } };

async function ask(path: string, init: RequestInit = {}, options: Partial<BrokerHttpOptions> = {}) {
  const app = createBrokerHttp({ counts: () => COUNTS, ...options });
  expect(app).toBeInstanceOf(H3);
  const response = await app.fetch(new Request(`https://broker.example${path}`, init));
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text === '' ? null : JSON.parse(text) };
}

describe('the HTTP face of a broker (contract 08 §7.2)', () => {
  it('answers health with its sums, and keeps it out of caches', async () => {
    const { status, headers, body } = await ask('/health?once');
    expect([status, body]).toEqual([200, { ok: true, service: 'svc_reach', protocol_version: 1, ...COUNTS }]);
    expect(Object.fromEntries(headers)).toMatchObject({
      'content-type': 'application/json',
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
    });
    expect((await ask('/health', { method: 'HEAD' })).status).toBe(200);
  });

  it.each([
    ['GET', '/', {}, 404, 'not found'],
    ['POST', '/health', {}, 404, 'not found'],
    ['GET', '/healthy', {}, 404, 'not found'],
    ['GET', '/health/', {}, 404, 'not found'],
    ['GET', '/%68ealth', {}, 404, 'not found'],
    ['GET', '/v1/connect/', UPGRADE, 404, 'not found'],
    ['GET', '/v1/connect', {}, 426, 'this is a WebSocket'],
    ['POST', '/v1/connect', UPGRADE, 426, 'this is a WebSocket'],
    ['GET', '/v1/connect?', {}, 400, 'neither a query nor an Authorization header is accepted'],
    ['GET', '/v1/connect?token=x', UPGRADE, 400, 'neither a query nor an Authorization header is accepted'],
    [
      'GET',
      '/v1/connect',
      { headers: { ...UPGRADE.headers, authorization: '' } },
      400,
      'neither a query nor an Authorization header is accepted',
    ],
  ])('%s %s %j: %i', async (method, path, init, status, error) => {
    const answer = await ask(path, { ...init, method }, { connect: () => new Response('connected') });
    expect([answer.status, answer.body]).toEqual([status, { ok: false, error }]);
    expect(answer.headers.get('upgrade')).toBe(status === 426 ? 'websocket' : null);
  });

  it('hands an upgrade over where upgrades are requests', async () => {
    const connect = () => Response.json('connected', { status: 202 });
    expect(await ask('/v1/connect', UPGRADE, { connect })).toMatchObject({ status: 202, body: 'connected' });
    expect((await ask('/v1/connect', UPGRADE)).status).toBe(426);
  });

  it('says that it does not know its sums, that it was asked too often, and nothing of its own errors', async () => {
    expect(await ask('/health', {}, { counts: () => null })).toMatchObject({
      status: 503,
      body: { ok: false, error: 'the counter does not answer' },
    });
    const busy = () => Promise.reject(new HTTPError({ status: 429, message: 'too many attempts' }));
    expect(await ask('/health', {}, { counts: busy })).toMatchObject({
      status: 429,
      body: { ok: false, error: 'too many attempts' },
    });
    const broken = () => Promise.reject(new Error('a path of this host'));
    expect(await ask('/health', {}, { counts: broken })).toMatchObject({
      status: 500,
      body: { ok: false, error: 'internal error' },
    });
  });
});

import { readFile, stat } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createMarker } from '../../cli/dashboard/marker.ts';
import { operator } from '../../handlers/guards.ts';
import { routes } from '../../handlers/routes.ts';
import type { Peer } from '../../lib/access/peer.ts';
import { createIngressMarker, markerHeaders, markerSecret, openIngressMarker } from '../../lib/dashboard/marker.ts';
import { createFiles } from '../../lib/host/node/files.ts';
import { base64url } from '../../lib/kit/bytes.ts';
import { createLog } from '../../lib/log.ts';
import type { BuiltTarget } from '../support/built-relay.ts';
import { connect } from '../support/client.ts';
import { asObject, fill, marked, SHARED, send, start } from '../support/ingress-marker.ts';
import { canBeNobody, forwardAsNobody, NOBODY } from '../support/other-user.ts';
import { bearer, pair, randomCode, registerCode } from '../support/relay.ts';

describe('a marked request is never local (contract 07 §4.3)', () => {
  it('is refused on every operator route of the table, by every method, even with the operator key', async () => {
    const target = await start();
    const key = await readFile(join(target.agentHome, 'svc-relay/operator-key'), 'utf8');
    const headers = { ...(await marked()), 'x-svc-operator': '1', 'x-svc-operator-key': key };
    const operatorRoutes = routes.filter(([, , guard]) => guard === operator);
    expect(operatorRoutes.length).toBeGreaterThan(10);
    for (const [method, path] of operatorRoutes) {
      const filled = fill(path);
      const { status, body } = await send(target, method, filled, headers);
      expect({ path, status }).toEqual({ path, status: 403 });
      expect(JSON.parse(body)).toMatchObject({ ok: false });
      // The path may be written in another way.
      expect((await send(target, method, `/x/..${filled}`, headers)).status).toBe(403);
    }
  });

  it('gets the health that a remote caller gets', async () => {
    const target = await start();
    const { body } = await send(target, 'GET', '/health', await marked());
    expect(JSON.parse(body)).toMatchObject({ status: 'ok' });
  });

  it('passes with the bearer of a paired device', async () => {
    const target = await start();
    const { token, client } = await pair(target);
    const headers = { ...(await marked()), ...bearer(token) };
    expect((await send(target, 'GET', '/sessions', headers)).status).toBe(200);
    expect((await send(target, 'GET', '/relay/info', headers)).status).toBe(200);
    expect((await send(target, 'POST', '/pairing/mint', headers, '{}')).status).toBe(403);
    client.terminate();
  });

  it('is known by the signing secret when none is configured', async () => {
    const target = await start({});
    const minted = await target.operator('/pairing/mint', { method: 'POST', body: '{"host":"192.0.2.1"}' });
    expect(minted.status).toBe(200);
    const key = await readFile(join(target.agentHome, 'svc-relay-qr-secret'));
    const secret = await markerSecret({ configured: undefined, signingSecret: async () => new Uint8Array(key) });
    const headers = asObject(markerHeaders(secret as string, '192.0.2.7', true));
    expect((await send(target, 'GET', '/relay/security', headers)).status).toBe(403);
    expect((await send(target, 'GET', '/relay/security', {})).status).toBe(200);
  });
});

describe('the marker of a relay without a configured secret (contract 01 §9.1a)', () => {
  /** The headers that an ingress with the same home sends, and what they are made of. */
  async function ofIngress({ agentHome }: BuiltTarget) {
    const marker = createMarker({
      configured: undefined,
      files: createFiles(),
      agentHome,
      log: createLog('ERROR', () => {}),
    });
    const req = { socket: { remoteAddress: '192.0.2.7' } } as IncomingMessage;
    return asObject((await marker.headersFor(req)) as string[]);
  }
  const refusals = ({ log }: BuiltTarget) => log.filter((line) => line.includes('refused an operator call'));

  it('is that of the ingress on the same home, for its process user', async () => {
    const target = await start({});
    const headers = await ofIngress(target);
    expect((await send(target, 'GET', '/relay/security', headers)).status).toBe(403);
    expect(refusals(target)).toEqual([expect.stringContaining('from 192.0.2.7 to')]);
    const { mode } = await stat(join(target.agentHome, 'svc-relay/dashboard-marker'));
    expect(mode & 0o777).toBe(0o600);
  });

  it('is another at each start, and an earlier one shows no client, but is never local', async () => {
    const target = await start({});
    const before = await ofIngress(target);
    const { host, config, log } = target.relay as Required<typeof target.relay>;
    const deps = {
      files: host.files,
      agentHome: host.agentHome,
      users: host.users,
      operatorUids: config.operatorUids,
      log,
    };
    const source = { configured: undefined, signingSecret: async () => null };
    const marker = await openIngressMarker(source, deps);
    const after = await ofIngress(target);
    expect(after['x-svc-dashboard-proxy-secret']).not.toBe(before['x-svc-dashboard-proxy-secret']);
    // Without ends, the account is taken for one of those that are trusted.
    const peer: Peer = { address: '127.0.0.1', tls: false, via: 'direct' };
    expect(await marker.peerOf(peer, new Headers(after))).toMatchObject({ via: 'ingress', address: '192.0.2.7' });
    expect(await marker.peerOf(peer, new Headers(before))).toEqual({
      ...peer,
      via: 'ingress',
      transportHint: 'unknown',
    });
    // The relay that runs learns of the one that has started beside it.
    expect((await send(target, 'GET', '/relay/security', after)).status).toBe(403);
    expect(refusals(target)).toEqual([expect.stringContaining('from 127.0.0.1 to')]);
    // A file that cannot be read is no reason to take anybody for local.
    const failing = { ...host.files, readText: () => Promise.reject(new Error('EMFILE')) };
    const blind = createIngressMarker(source, { ...deps, files: failing, start: 'A'.repeat(43) });
    expect(await blind.peerOf(peer, new Headers(after))).toEqual({ ...peer, via: 'ingress', transportHint: 'unknown' });
  });

  it.skipIf(!canBeNobody)('is worth nothing from another user', async () => {
    const target = await start({});
    const headers = await ofIngress(target);
    const port = await forwardAsNobody(target.port);
    expect((await send({ ...target, port }, 'GET', '/relay/security', headers)).status).toBe(403);
    expect(refusals(target)).toEqual([expect.stringContaining(`from 127.0.0.1, user ${NOBODY} to`)]);
    const configured = await start();
    const shared = await forwardAsNobody(configured.port);
    await send({ ...configured, port: shared }, 'GET', '/relay/security', await marked());
    expect(refusals(configured)).toEqual([expect.stringContaining('from 127.0.0.1 to')]);
  });
});

describe('without a valid secret the marker means nothing (contract 07 §4.3)', () => {
  it('sets neither the address nor the transport of a socket', async () => {
    const target = await start();
    const code = randomCode();
    await registerCode(target, code);
    const client = await connect(target.wsUrl, { headers: await marked('192.0.2.7', true, 'another secret') });
    client.send('system', 'auth', { pairing_code: code, device_id: 'a', device_name: 'Phone' });
    expect((await client.next({ type: 'auth.ok' })).payload.transport_hint).toBe('ws');
    expect(target.log.some((line) => line.includes('192.0.2.7'))).toBe(false);
    client.terminate();
  });
});

describe('sockets through the ingress (contract 07 §4.3)', () => {
  it.each([
    ['wss', 'wss'],
    ['ws', 'ws'],
    ['gopher', 'unknown'],
  ])('announced as %s have the transport hint %s', async (proto, hint) => {
    const target = await start();
    const code = randomCode();
    await registerCode(target, code);
    const client = await connect(target.wsUrl, { headers: { ...(await marked()), 'x-svc-proxy-proto': proto } });
    client.send('system', 'auth', { pairing_code: code, device_id: 'a', device_name: 'Phone' });
    expect((await client.next({ type: 'auth.ok' })).payload.transport_hint).toBe(hint);
    expect(target.log.some((line) => line.includes('(192.0.2.7)'))).toBe(true);
    client.terminate();
  });

  it('are limited by the client, whatever it says of proxies, and lock out nobody else', async () => {
    const target = await start({ ...SHARED, RELAY_TRUST_PROXY_HEADERS: '1' });
    const attempt = async (headers: Record<string, string>): Promise<string> => {
      const client = await connect(target.wsUrl, { headers }).catch((error) => error);
      if (client instanceof Error) return String((client as Error & { status?: number }).status);
      client.send('system', 'auth', { session_token: 'wrong' });
      const { type } = await client.next({ channel: 'system' });
      await client.closed();
      return type;
    };
    for (let count = 0; count < 5; count++) {
      expect(await attempt({ ...(await marked()), 'x-forwarded-for': `198.51.100.${count}` })).toBe('auth.fail');
    }
    expect(await attempt(await marked())).toBe('429');
    expect(await attempt(await marked('192.0.2.8'))).toBe('auth.fail');
    expect(await attempt({})).toBe('auth.fail');
  });
});

it('the marker secret of a request never reaches the log', async () => {
  const target = await start();
  const headers = await marked();
  await send(target, 'GET', '/relay/security', headers);
  await send(target, 'GET', '/nothing', { ...headers, 'x-svc-dashboard-proxy-secret': base64url(new Uint8Array(32)) });
  const text = target.log.join('\n');
  expect(text).toContain('refused an operator call from 192.0.2.7 to /relay/security');
  expect(text).not.toContain(headers['x-svc-dashboard-proxy-secret'] as string);
});

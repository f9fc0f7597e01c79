import { describe, expect, it } from 'vitest';
import { crossOrigin, foreignPage } from '../../../handlers/cors.ts';
import type { RelayRequest } from '../../../handlers/request.ts';
import { pageResponse } from '../../../handlers/web/serve.ts';
import { pageOf } from '../../../lib/access/page.ts';
import type { Relay } from '../../../lib/relay.ts';
import type { Device } from '../../../lib/sessions/session.ts';
import { authenticate } from '../../../lib/socket/auth.ts';
import { createPages } from '../../../lib/web/pages.ts';
import { World } from './world.ts';

const HOME = 'http://home.example:8765';
const page = (id: string, origin: string): Device => ({
  name: id,
  id,
  model: '',
  platform: 'web',
  surface: 'web',
  formFactor: 'desktop',
  origin,
});

/** A page that is paired at home, and its credentials for the edge. */
async function paired(world: World, origin = HOME) {
  const { session } = await world.home.sessions.create({
    device: page('browser', origin),
    policy: {},
    transportHint: 'ws',
  });
  await world.settle();
  const given = world.home.mirror.mailbox(session)?.mailbox;
  if (!given) throw new Error('there are no credentials for the edge');
  return given;
}

const ask = (world: World, method: string, path: string, headers: Record<string, string>, session?: unknown) => {
  const request = Object.assign(new Request(`https://edge.example${path}`, { method, headers }), { session });
  return { request: request as unknown as RelayRequest, relay: { edgeMirror: world.edge.mirror } as unknown as Relay };
};

describe('pages of home at the edge (contract 12 §3)', () => {
  it('reads whose page calls', () => {
    const of = (origin: string) => pageOf(new Headers({ origin, host: 'edge.example' }));
    expect(pageOf(new Headers({ host: 'edge.example' }))).toBeUndefined();
    expect(of('https://edge.example')).toEqual({ origin: 'https://edge.example', isOwn: true });
    expect(of(HOME)).toEqual({ origin: HOME, isOwn: false });
    for (const strange of ['null', 'file://', 'https:', `https://${'a'.repeat(400)}.example`]) {
      expect(of(strange)).toEqual({ origin: 'null', isOwn: false });
    }
  });

  it('answers CORS for the paired origin alone, and for that only with the session that was paired in it', async () => {
    const world = await World.open();
    const { session_token: token } = await paired(world);
    const session = world.edge.sessions.authenticate(token);
    const cors = (method: string, path: string, origin: string, headers = {}, own?: unknown) => {
      const { request, relay } = ask(world, method, path, { origin, host: 'edge.example', ...headers }, own);
      return crossOrigin(request, relay);
    };
    const asks = { 'access-control-request-method': 'POST' };
    const preflight = cors('OPTIONS', '/push/subscribe', HOME, asks)?.preflight;
    expect(preflight?.status).toBe(204);
    expect(Object.fromEntries(preflight?.headers ?? [])).toMatchObject({
      'access-control-allow-origin': HOME,
      vary: 'Origin',
    });
    expect(preflight?.headers.has('access-control-allow-credentials')).toBe(false);
    expect(cors('GET', '/phone/history', HOME, {}, session)?.allow(new Response()).headers.get('vary')).toBe('Origin');
    // A session that another page was paired in, or no page at all.
    const other = { device: { origin: 'http://other.example' } };
    expect([...(cors('GET', '/phone/history', HOME, {}, other)?.allow(new Response()).headers ?? [])]).toEqual([]);
    for (const foreign of ['https://evil.example', 'http://home.example', 'null', `${HOME}.evil.example`]) {
      expect(cors('OPTIONS', '/push/subscribe', foreign, asks)).toBeUndefined();
      expect(cors('GET', '/phone/history', foreign)).toBeUndefined();
    }
    // The operator's routes answer no other page.
    expect(cors('GET', '/relay/info', HOME)).toBeUndefined();
    expect(cors('POST', '/pairing/register', HOME)).toBeUndefined();
  });

  it('lets a socket of the paired page in with its own session, after a restart too, and of no other page', async () => {
    const world = await World.open();
    const mine = await paired(world);
    const { session: another } = await world.home.sessions.create({
      device: page('tablet', 'http://other.example'),
      policy: {},
      transportHint: 'ws',
    });
    await world.settle();
    const theirs = world.home.mirror.mailbox(another)?.mailbox;
    await world.crashEdge();
    await world.settle();
    const upgrade = (origin: string) => {
      const { request, relay } = ask(world, 'GET', '/ws', { origin, host: 'edge.example' });
      return foreignPage(request, relay)?.status;
    };
    expect([upgrade(HOME), upgrade('https://edge.example')]).toEqual([undefined, undefined]);
    expect([upgrade('https://evil.example'), upgrade('null')]).toEqual([403, 403]);

    const { sessions } = world.edge;
    const limiter = { fail: () => false, succeed: () => {}, codesFor: () => true };
    const enter = async (origin: string | undefined, credentials: { sessionToken?: string; refreshToken?: string }) => {
      const parts = { sessions, limiter, log: world.log } as unknown as Parameters<typeof authenticate>[0];
      const device = { name: 'browser', id: 'browser', model: '', platform: '', surface: 'web', formFactor: 'desktop' };
      const request = { ...credentials, device, typedStream: false } as Parameters<typeof authenticate>[1];
      const own = origin === undefined ? undefined : pageOf(new Headers({ origin, host: 'edge.example' }));
      const peer = { key: 'a', transportHint: 'wss' as const, page: own };
      return (await authenticate(parts, request, peer))?.session.device.origin;
    };
    const sessionToken = mine.session_token;
    expect(await enter('http://other.example', { sessionToken })).toBeUndefined();
    expect(await enter('http://other.example', { refreshToken: mine.refresh_token })).toBeUndefined();
    expect(await enter(HOME, { sessionToken: theirs?.session_token })).toBeUndefined();
    // The edge's own page and a program are let in, and change nothing in where home's page is.
    expect(await enter('https://edge.example', { sessionToken })).toBe(HOME);
    expect(await enter(undefined, { sessionToken })).toBe(HOME);
    expect(await enter(HOME, { sessionToken })).toBe(HOME);

    await world.edge.mirror.unpin();
    expect(world.edge.mirror.isPage(HOME)).toBe(false);
  });

  it("lets home's page connect to the mailbox by its policy, and without a mirror to nothing else", async () => {
    const pages = createPages(async () => [
      { path: 'app/', type: 'text/html', hash: 'h', immutable: false, gzip: '', brotli: '' } as never,
    ]);
    const connects = async (mailbox?: string) => {
      const request = new Request('http://home.example/app/', { headers: { 'if-none-match': '"h"' } });
      const response = await pageResponse(request, { pages, config: { serviceWorker: true }, accepted: null, mailbox });
      expect(response?.status).toBe(304);
      return /connect-src [^;]*/.exec(response?.headers.get('content-security-policy') ?? '')?.[0];
    };
    expect(await connects()).toBe("connect-src 'self'");
    expect(await connects('wss://edge.example/ws')).toBe("connect-src 'self' wss://edge.example https://edge.example");
  });
});

import { describe, expect, it } from 'vitest';
import { crossOrigin, foreignPage } from '../../../handlers/cors.ts';
import type { RelayRequest } from '../../../handlers/request.ts';
import { pageResponse } from '../../../handlers/web/serve.ts';
import { pageOf } from '../../../lib/access/page.ts';
import { pageOrigins, readPageOrigins } from '../../../lib/mirror/home-pages.ts';
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
    const connects = async (...others: string[]) => {
      const request = new Request('http://home.example/app/', { headers: { 'if-none-match': '"h"' } });
      const response = await pageResponse(request, { pages, config: { serviceWorker: true }, accepted: null, others });
      expect(response?.status).toBe(304);
      return /connect-src [^;]*/.exec(response?.headers.get('content-security-policy') ?? '')?.[0];
    };
    expect(await connects()).toBe("connect-src 'self'");
    expect(await connects('https://edge.example')).toBe("connect-src 'self' wss://edge.example https://edge.example");
  });
});

const EDGE = 'https://edge.example';

describe("the edge's page at home (contract 12 §3)", () => {
  it('names home in the policy of the edge by what home gives, and by nothing of its home network', async () => {
    const world = await World.open();
    await world.settle();
    expect(world.edge.mirror.homePages()).toEqual([]);
    world.routes = [
      ...world.routes,
      { role: 'tailscale', relay: { url: 'wss://machine.tail1.ts.net:8443/ws' } },
      { role: 'public', relay: { url: 'ws://home.example:8765/ws' } },
      { role: 'lan', relay: { url: 'wss://192.168.1.2:8767/ws' } },
      { role: 'plugin_proxy', proxy: { url: 'https://pinned.example' }, relay: { url: 'wss://pinned.example/ws' } },
    ];
    world.home.mirror.routesChanged();
    await world.settle();
    const named = ['https://machine.tail1.ts.net:8443', 'http://home.example:8765'];
    expect(world.edge.mirror.homePages()).toEqual(named);
    await world.crashEdge();
    await world.settle();
    expect(world.edge.mirror.homePages()).toEqual(named);
    await world.edge.mirror.unpin();
    expect(world.edge.mirror.homePages()).toEqual([]);
  });

  it('takes nothing into a policy that is no origin', () => {
    const hostile = [
      'https://*',
      '*',
      'https:',
      "https://a.example; script-src 'unsafe-inline'",
      'https://a.example;x.example',
      'https://a.example,b.example',
      'https://a.example/path',
      'https://a.example ',
      'https://user@a.example',
      'javascript://a.example',
      "https://'none'.example",
      'https://A.example',
      7,
    ];
    for (const origin of hostile) {
      expect(readPageOrigins({ origins: ['https://b.example', origin] }), String(origin)).toBeNull();
      expect(pageOrigins([{ role: 'public', relay: { url: `${origin}/ws`.replace('http', 'ws') } }]).join()).toMatch(
        /^(?:https:\/\/a\.example)?$/,
      );
    }
    expect(readPageOrigins({})).toBeNull();
    expect(readPageOrigins({ origins: Array(9).fill('https://a.example') })).toBeNull();
    expect(readPageOrigins({ origins: ['http://[::1]:8765', 'https://a.example'] })).toHaveLength(2);
  });

  it('answers CORS for the edge alone, with a bearer or where anybody may call, and only for a session of that page', async () => {
    const world = await World.open();
    const cors = (method: string, path: string, origin: string, headers = {}, session?: unknown) => {
      const all = { origin, host: 'home.example', ...headers };
      const request = Object.assign(new Request(`https://home.example${path}`, { method, headers: all }), { session });
      return crossOrigin(request as unknown as RelayRequest, { homeMirror: world.home.mirror } as unknown as Relay);
    };
    const bearer = { authorization: 'Bearer x' };
    const readable = (...call: Parameters<typeof cors>) => {
      const answer = cors(...call)?.allow(new Response());
      return answer?.headers.get('access-control-allow-origin') ?? null;
    };
    const own = { device: page('browser', EDGE) };
    expect(cors('OPTIONS', '/media/upload', EDGE, { 'access-control-request-method': 'POST' })?.preflight?.status).toBe(
      204,
    );
    expect(readable('GET', '/relay/info', EDGE, bearer, own)).toBe(EDGE);
    expect(readable('GET', '/health', EDGE)).toBe(EDGE);
    expect(readable('GET', '/sessions/nonce', EDGE)).toBe(EDGE);
    // In a browser on the machine of home, the caller could be taken for its operator.
    for (const path of ['/sessions', '/relay/info', '/phone/history', '/health/x']) {
      expect(readable('GET', path, EDGE), path).toBeNull();
    }
    expect(readable('GET', '/sessions', EDGE, bearer, { device: page('browser', HOME) })).toBeNull();
    expect(
      readable('GET', '/sessions', EDGE, bearer, { device: { ...page('browser', EDGE), origin: undefined } }),
    ).toBeNull();
    for (const foreign of ['https://evil.example', 'http://edge.example', 'null', `${EDGE}.evil.example`]) {
      expect(readable('GET', '/sessions', foreign, bearer, own)).toBeNull();
      expect(cors('OPTIONS', '/sessions', foreign, { 'access-control-request-method': 'GET' })).toBeUndefined();
    }
    await world.home.mirror.disable();
    expect(readable('GET', '/sessions', EDGE, bearer, own)).toBeNull();
  });

  it("lets a session of the edge's page in from there, and of another page from nowhere else", async () => {
    const world = await World.open();
    const { sessions, mirror } = world.home;
    const limiter = { fail: () => false, succeed: () => {}, codesFor: () => true };
    const enter = async (origin: string | undefined, sessionToken: string) => {
      const parts = { sessions, limiter, log: world.log, edgePage: mirror.edgePage } as never;
      const device = { ...page('browser', HOME), origin: undefined };
      const request = { sessionToken, device, typedStream: false } as never;
      const own = origin === undefined ? undefined : pageOf(new Headers({ origin, host: 'home.example' }));
      const admitted = await authenticate(parts, request, { key: 'a', transportHint: 'wss', page: own });
      return admitted?.session.device.origin;
    };
    const tokenOf = async (id: string, origin: string) =>
      (await sessions.create({ device: page(id, origin), policy: {}, transportHint: 'ws' })).token;
    const [ofEdge, ofHome] = [await tokenOf('a', EDGE), await tokenOf('b', HOME)];
    expect(await enter(EDGE, ofEdge)).toBe(EDGE);
    expect(await enter(undefined, ofEdge)).toBe(EDGE);
    expect(await enter('https://evil.example', ofEdge)).toBeUndefined();
    expect(await enter(EDGE, ofHome)).toBeUndefined();
    // A proxy may have changed the name under which home's own page calls.
    expect(await enter('https://proxy.example', ofHome)).toBe(HOME);
  });
});

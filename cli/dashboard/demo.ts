import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import {
  assertBodySize,
  deleteCookie,
  type EventHandler,
  getCookie,
  type H3Event,
  type HTTPEvent,
  type HTTPResponse,
  readBody,
  redirect,
  setCookie,
} from 'h3';
import { toNodeHandler } from 'h3/node';
import { WebSocketServer } from 'ws';
import { describeError } from '../../lib/errors.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { asObject, type JsonObject } from '../../lib/kit/json.ts';
import type { Log } from '../../lib/log.ts';
import { refuse, refuseUpgradeWith } from './answers.ts';
import { createDemoSessions, DEMO_USER, SESSION_LIFETIME, TICKET_LIFETIME } from './demo-sessions.ts';
import type { DashboardHost, DashboardPlugin } from './plugin.ts';
import { createRouteApp, json, type Route, refusal, reply } from './route-app.ts';

const COOKIE = 'svc_demo_session';
const MAX_FORM = 4096;
const MAX_MESSAGE = 64 * 1024;

export interface DemoOptions {
  port: number;
  version: string;
  /** Files of the tab: `manifest.json`, `tab.js`, `tab.css`. */
  assets: string;
  createPlugin(host: DashboardHost): DashboardPlugin;
  log: Log;
}

const CONTENT_POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
  "form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/**
 * A dashboard to try the plugin without the agent platform: one user with a random password, cookie sessions, single-use
 * tickets, and the plugin with its tab. Listens on 127.0.0.1 only, and answers to no other name than that and localhost,
 * so that no foreign page reaches it by a name of its own.
 */
export async function startDemo({ port, version, assets, createPlugin, log }: DemoOptions) {
  const sessions = createDemoSessions(systemClock);
  let isEnabled = true;
  const sockets = new WebSocketServer({ noServer: true, maxPayload: MAX_MESSAGE });

  const isSignedIn = (event: HTTPEvent) => sessions.isSignedIn(getCookie(event, COOKIE));
  const ticketOf = (req: IncomingMessage) => urlOf(req).searchParams.get('ticket');

  const plugin = createPlugin({
    async authenticate({ headers: { cookie = '' } }) {
      const req = new Request('http://demo/', { headers: { cookie } });
      return isSignedIn({ req }) ? { principal: DEMO_USER } : null;
    },
    checkHostOrigin: (req) => isOwnHost(req) && isOwnOrigin(req),
    consumeWsTicket: async (req) => (sessions.consumeTicket(ticketOf(req)) ? {} : null),
    isPluginEnabled: () => isEnabled,
  });

  /** THE table of the demo's own routes, one for each path: method, path, guard and answer. */
  const routes: readonly DemoRoute[] = [
    ['GET', '/', 'open', (event) => pageFor(event, isSignedIn(event) ? homePage(isEnabled) : signInPage())],
    ['GET', '/relay', 'open', (event) => (isSignedIn(event) ? pageFor(event, tabPage()) : redirect('/', 303))],
    ['GET', '/demo.js', 'open', (event) => text('text/javascript', mountScript(prefixOf(event)))],
    ['GET', '/api/health', 'open', () => json({ status: 'ok', auth_required: true })],
    ['GET', '/api/status', 'open', () => json(statusOf(version))],
    ['GET', '/dashboard/manifest.json', 'user', () => asset('manifest.json', 'application/json')],
    ['GET', '/dashboard/tab.js', 'user', () => asset('tab.js', 'text/javascript')],
    ['GET', '/dashboard/tab.css', 'open', () => asset('tab.css', 'text/css')],
    ['POST', '/auth/login', 'open', signIn],
    ['POST', '/auth/logout', 'user', signOut],
    ['POST', '/api/ws', 'user', mintTicket],
    ['POST', '/api/auth/ws-ticket', 'user', mintTicket],
    ['POST', '/demo/plugin', 'user', switchPlugin],
  ];

  const app = createRouteApp(
    routes.map(
      ([method, path, access, answer]): Route => [
        method,
        path,
        (event) => {
          if (access === 'user' && !isSignedIn(event)) throw refusal(401, 'sign in first');
          return answer(event);
        },
      ],
    ),
    log,
  );
  const answer = toNodeHandler(app);

  async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) res.setHeader(name, value);
    if (!isOwnHost(req)) return refuse(res, 421, 'this demo answers to 127.0.0.1 and localhost only');
    if (!isOwnOrigin(req)) return refuse(res, 403, 'requests of other pages are refused');
    if (await plugin.handle(req, res)) return;
    res.setHeader('cache-control', 'no-store');
    await answer(req, res);
  }

  async function signIn(event: H3Event): Promise<HTTPResponse> {
    const { username, password } = await readForm(event);
    const result = sessions.signIn(username, password);
    if (result === 'limited') throw refusal(429, 'too many attempts', { 'retry-after': '60' });
    if (result === 'rejected') throw refusal(401, 'wrong user name or password');
    // Not `Secure`: the demo is plain http on loopback.
    setCookie(event, COOKIE, result.token, { ...COOKIE_SCOPE, maxAge: SESSION_LIFETIME / 1000 });
    return redirect('/', 303);
  }

  function signOut(event: H3Event): HTTPResponse {
    sessions.signOut(getCookie(event, COOKIE));
    deleteCookie(event, COOKIE, COOKIE_SCOPE);
    return redirect('/', 303);
  }

  function mintTicket(event: H3Event): HTTPResponse {
    const ticket = sessions.mintTicket(getCookie(event, COOKIE) ?? '');
    return json({ ticket, expires_in: TICKET_LIFETIME / 1000 });
  }

  /** Switches the plugin on or off, as a dashboard's settings do: its sockets close within two seconds. */
  async function switchPlugin(event: H3Event): Promise<HTTPResponse> {
    const { enabled } = await readForm(event);
    isEnabled = enabled === 'true';
    return redirect('/', 303);
  }

  async function asset(name: string, type: string): Promise<HTTPResponse> {
    const bytes = await readFile(`${assets}/${name}`).catch(() => null);
    if (!bytes) throw refusal(404, `dashboard/${name} is missing; build it with: npm run build`);
    return text(type, bytes);
  }

  /** The dashboard's own socket, for a ticket. */
  async function upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): Promise<void> {
    if (await plugin.upgrade(req, socket, head)) return;
    if (urlOf(req).pathname !== '/api/ws') return refuseUpgradeWith(socket, 404, 'not found');
    if (!isOwnHost(req) || !isOwnOrigin(req)) return refuseUpgradeWith(socket, 403, 'this page may not connect');
    if (!sessions.consumeTicket(ticketOf(req))) return refuseUpgradeWith(socket, 403, 'a fresh ticket is required');
    sockets.handleUpgrade(req, socket, head, (client) => {
      client.on('error', () => {});
      client.send(JSON.stringify({ type: 'ready', user: DEMO_USER, demo: true }));
    });
  }

  const server = createServer((req, res) => {
    handle(req, res).catch((error: unknown) => {
      log.error(`${req.method} request failed: ${describeError(error)}`);
      if (res.headersSent) res.destroy();
      else refuse(res, 500, 'internal error');
    });
  });
  server.on('upgrade', (req, socket, head) => {
    socket.on('error', () => {});
    upgrade(req, socket, head).catch((error: unknown) => {
      log.error(`upgrade failed: ${describeError(error)}`);
      socket.destroy();
    });
  });
  server.listen(port, '127.0.0.1');
  await once(server, 'listening').catch(async (error: unknown) => {
    await plugin.close();
    throw error;
  });

  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    password: sessions.password,
    /** Ends everything: sockets with 1001, then the listener. */
    async close(): Promise<void> {
      for (const client of sockets.clients) client.close(1001, 'the demo stops');
      await plugin.close();
      server.close();
      server.closeAllConnections();
    },
  };
}

type DemoRoute = readonly [method: 'GET' | 'POST', path: string, access: 'open' | 'user', answer: EventHandler];

const COOKIE_SCOPE = { httpOnly: true, sameSite: 'strict', path: '/' } as const;

const SECURITY_HEADERS = {
  'content-security-policy': CONTENT_POLICY,
  // Not `no-referrer`, with which browsers send forms with `Origin: null`.
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
};

/** The target of a request. A whole URL, or `*`, becomes a path that no route has. */
const urlOf = ({ url = '' }: { url?: string } = {}): URL => new URL(`http://demo${url.replace(/^(?!\/)/, '/')}`);

const isOwnHost = (req: IncomingMessage): boolean =>
  ['127.0.0.1', 'localhost'].some((name) => req.headers.host?.toLowerCase() === `${name}:${req.socket.localPort}`);

/**
 * The origin under which a browser sees the demo: its own, or that of the proxy before it. No page can set these headers
 * on a request to a foreign origin.
 */
const originOf = ({ headers }: IncomingMessage): string => {
  const { 'x-forwarded-host': host, 'x-forwarded-proto': proto } = headers;
  return host === undefined ? `http://${headers.host}` : `${proto}://${host}`;
};

/** Path below which a proxy shows the demo, such as `/dashboard`; empty without one. */
const prefixOf = ({ req }: H3Event): string => {
  const prefix = req.headers.get('x-forwarded-prefix') ?? '';
  return /^(?:\/[\w-]{1,64}){1,4}$/.test(prefix) ? prefix : '';
};

const isOwnOrigin = (req: IncomingMessage): boolean => {
  const { headers } = req;
  const site = headers['sec-fetch-site'];
  const isOwn = headers.origin === undefined || headers.origin === originOf(req);
  // A link from elsewhere may open a page, and shows no more than the sign-in to a cookie that is `SameSite=Strict`.
  return isOwn && (site === undefined || site !== 'cross-site' || headers['sec-fetch-mode'] === 'navigate');
};

/** The fields of a form or of a JSON object. */
async function readForm(event: H3Event): Promise<JsonObject> {
  assertBodySize(event, MAX_FORM);
  const type = event.req.headers.get('content-type')?.includes('json') ? 'json' : 'urlencoded';
  return asObject(await readBody(event, { type })) ?? {};
}

/** As a dashboard tells clients how to sign in: this one knows no native flow. */
const statusOf = (version: string) => ({
  status: 'ok',
  name: 'svc-relay dashboard demo',
  demo: true,
  version,
  auth_required: true,
  auth_flows: ['password'],
});

const text = (type: string, body: string | Uint8Array<ArrayBuffer>): HTTPResponse =>
  reply(`${type}; charset=utf-8`, body);

/** A page, with its links below the proxy's prefix. */
const pageFor = (event: H3Event, main: string): HTTPResponse =>
  text('text/html', page(main).replace(/(href|action|src)="\//g, `$1="${prefixOf(event)}/`));

// The pages hold nothing that a user has given, so there is nothing to escape.
const page = (main: string): string => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="color-scheme" content="light dark">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Dashboard demo of svc-relay</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/dashboard/tab.css">
<header><strong>Dashboard demo of svc-relay</strong> <span>for trying the plugin; not the agent's dashboard</span></header>
<main>${main}</main>
</html>
`;

const signInPage = (): string => `
<h1>Sign in</h1>
<form method="post" action="/auth/login">
<label>User name <input name="username" value="${DEMO_USER}" autocomplete="username" required></label>
<label>Password <input name="password" type="password" autocomplete="current-password" required autofocus></label>
<button>Sign in</button>
</form>
<p>The password is in the terminal that runs <code>svc relay dashboard-demo</code>.</p>`;

const homePage = (isEnabled: boolean): string => `
<h1>Signed in</h1>
<p><a href="/relay">Relay tab</a></p>
<form method="post" action="/demo/plugin">
<input type="hidden" name="enabled" value="${!isEnabled}">
<button>${isEnabled ? 'Disable' : 'Enable'} the plugin</button>
</form>
<form method="post" action="/auth/logout"><button>Sign out</button></form>`;

const tabPage = (): string => `
<p><a href="/">Home</a></p>
<h1>Relay tab</h1>
<div id="relay"></div>
<script type="module" src="/demo.js"></script>`;

const mountScript = (prefix: string): string => `import { mount } from '${prefix}/dashboard/tab.js';
mount(document.getElementById('relay'), { api: '${prefix}/api/plugins/svc-relay' });
`;

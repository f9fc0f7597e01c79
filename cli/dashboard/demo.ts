import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { deleteCookie, getCookie, H3Event, setCookie } from 'h3';
import { WebSocketServer } from 'ws';
import { describeError } from '../../lib/errors.ts';
import { systemClock } from '../../lib/kit/clock.ts';
import { parseObject } from '../../lib/kit/json.ts';
import type { Log } from '../../lib/log.ts';
import { refuseUpgradeWith, sendJson } from './answers.ts';
import { createDemoSessions, DEMO_USER, SESSION_LIFETIME, TICKET_LIFETIME } from './demo-sessions.ts';
import type { DashboardHost, DashboardPlugin } from './plugin.ts';

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

  const tokenOf = (req: IncomingMessage) => getCookie({ req: { headers: headersOf(req) } as Request }, COOKIE);
  const isSignedIn = (req: IncomingMessage) => sessions.isSignedIn(tokenOf(req));
  const ticketOf = (req: IncomingMessage) => urlOf(req).searchParams.get('ticket');

  const plugin = createPlugin({
    authenticate: async (req) => (isSignedIn(req) ? { principal: DEMO_USER } : null),
    checkHostOrigin: (req) => isOwnHost(req) && isOwnOrigin(req),
    consumeWsTicket: async (req) => (sessions.consumeTicket(ticketOf(req)) ? {} : null),
    isPluginEnabled: () => isEnabled,
  });

  /** THE table of the demo's own routes: method, path, guard and handler. */
  const routes: readonly (readonly [method: string, path: string, access: 'open' | 'user', answer: Answer])[] = [
    ['GET', '/', 'open', (req, res) => sendPage(res, isSignedIn(req) ? homePage(isEnabled) : signInPage())],
    ['GET', '/relay', 'user', (_req, res) => sendPage(res, tabPage())],
    ['GET', '/demo.js', 'open', (_req, res) => sendText(res, 'text/javascript', mountScript(prefixOf(res.req)))],
    ['GET', '/api/health', 'open', (_req, res) => sendJson(res, 200, { status: 'ok', auth_required: true })],
    ['GET', '/api/status', 'open', (_req, res) => sendJson(res, 200, statusOf(version))],
    ['GET', '/dashboard/manifest.json', 'user', (_req, res) => sendAsset(res, 'manifest.json', 'application/json')],
    ['GET', '/dashboard/tab.js', 'user', (_req, res) => sendAsset(res, 'tab.js', 'text/javascript')],
    ['GET', '/dashboard/tab.css', 'open', (_req, res) => sendAsset(res, 'tab.css', 'text/css')],
    ['POST', '/auth/login', 'open', signIn],
    ['POST', '/auth/logout', 'user', signOut],
    ['POST', '/api/ws', 'user', mintTicket],
    ['POST', '/api/auth/ws-ticket', 'user', mintTicket],
    ['POST', '/demo/plugin', 'user', switchPlugin],
  ];

  async function handle(req: IncomingMessage, res: ServerResponse): Promise<void> {
    for (const [name, value] of Object.entries(SECURITY_HEADERS)) res.setHeader(name, value);
    if (!isOwnHost(req)) return sendJson(res, 421, { detail: 'this demo answers to 127.0.0.1 and localhost only' });
    if (!isOwnOrigin(req)) return sendJson(res, 403, { detail: 'requests of other pages are refused' });
    if (await plugin.handle(req, res)) return;
    const { pathname } = urlOf(req);
    const method = req.method === 'HEAD' ? 'GET' : req.method;
    const matching = routes.filter(([, path]) => path === pathname);
    const route = matching.find(([allowed]) => allowed === method);
    if (!route) {
      const allow = [...new Set(matching.map(([allowed]) => allowed))].join(', ');
      return matching.length > 0
        ? sendJson(res, 405, { detail: 'method not allowed' }, ['allow', allow])
        : sendJson(res, 404, { detail: 'not found' });
    }
    const [, , access, answer] = route;
    if (access === 'user' && !isSignedIn(req)) {
      if (method === 'GET' && pathname === '/relay') return redirect(res, '/');
      return sendJson(res, 401, { detail: 'sign in first' });
    }
    await answer(req, res);
  }

  async function signIn(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const form = await readForm(req);
    if (!form) return refuseForm(res);
    const result = sessions.signIn(form.get('username'), form.get('password'));
    if (result === 'limited') return sendJson(res, 429, { detail: 'too many attempts' }, ['retry-after', '60']);
    if (result === 'rejected') return sendJson(res, 401, { detail: 'wrong user name or password' });
    const event = new H3Event(new Request('http://demo/'));
    // Not `Secure`: the demo is plain http on loopback.
    setCookie(event, COOKIE, result.token, { ...COOKIE_SCOPE, maxAge: SESSION_LIFETIME / 1000 });
    redirect(res, '/', event.res.headers.getSetCookie());
  }

  function signOut(req: IncomingMessage, res: ServerResponse): void {
    sessions.signOut(tokenOf(req));
    const event = new H3Event(new Request('http://demo/'));
    deleteCookie(event, COOKIE, COOKIE_SCOPE);
    redirect(res, '/', event.res.headers.getSetCookie());
  }

  function mintTicket(req: IncomingMessage, res: ServerResponse): void {
    const ticket = sessions.mintTicket(tokenOf(req) ?? '');
    sendJson(res, 200, { ticket, expires_in: TICKET_LIFETIME / 1000 });
  }

  /** Switches the plugin on or off, as a dashboard's settings do: its sockets close within two seconds. */
  async function switchPlugin(req: IncomingMessage, res: ServerResponse): Promise<void> {
    const form = await readForm(req);
    if (!form) return refuseForm(res);
    isEnabled = form.get('enabled') === 'true';
    redirect(res, '/');
  }

  async function sendAsset(res: ServerResponse, name: string, type: string): Promise<void> {
    const bytes = await readFile(`${assets}/${name}`).catch(() => null);
    if (bytes) return sendText(res, type, bytes);
    sendJson(res, 404, { detail: `dashboard/${name} is missing; build it with: npm run build` });
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
      // A client that leaves while it sends a form is no error.
      if (res.destroyed) return;
      log.error(`${req.method} request failed: ${describeError(error)}`);
      if (res.headersSent) res.destroy();
      else sendJson(res, 500, { detail: 'internal error' });
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

type Answer = (req: IncomingMessage, res: ServerResponse) => void | Promise<void>;

const COOKIE_SCOPE = { httpOnly: true, sameSite: 'strict', path: '/' } as const;

const SECURITY_HEADERS = {
  'content-security-policy': CONTENT_POLICY,
  // Not `no-referrer`, with which browsers send forms with `Origin: null`.
  'referrer-policy': 'same-origin',
  'x-content-type-options': 'nosniff',
};

const urlOf = (req: IncomingMessage): URL => {
  const target = `http://demo${req.url ?? '/'}`;
  return new URL(URL.canParse(target) ? target : 'http://demo/');
};

const headersOf = (req: IncomingMessage): Headers => new Headers({ cookie: req.headers.cookie ?? '' });

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
const prefixOf = ({ headers }: IncomingMessage): string => {
  const prefix = headers['x-forwarded-prefix'];
  return typeof prefix === 'string' && /^(?:\/[\w-]{1,64}){1,4}$/.test(prefix) ? prefix : '';
};

const isOwnOrigin = (req: IncomingMessage): boolean => {
  const { headers } = req;
  const site = headers['sec-fetch-site'];
  const isOwn = headers.origin === undefined || headers.origin === originOf(req);
  // A link from elsewhere may open a page, and shows no more than the sign-in to a cookie that is `SameSite=Strict`.
  return isOwn && (site === undefined || site !== 'cross-site' || headers['sec-fetch-mode'] === 'navigate');
};

/** The fields of a form or of a JSON object; null when it is too large. */
async function readForm(req: IncomingMessage): Promise<Map<string, unknown> | null> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of req as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > MAX_FORM) return null;
    chunks.push(chunk);
  }
  const text = Buffer.concat(chunks).toString('utf8');
  const isJson = req.headers['content-type']?.includes('json');
  return new Map<string, unknown>(isJson ? Object.entries(parseObject(text) ?? {}) : new URLSearchParams(text));
}

const refuseForm = (res: ServerResponse): void =>
  sendJson(res, 413, { detail: 'the form is too large' }, ['connection', 'close']);

/** As a dashboard tells clients how to sign in: this one knows no native flow. */
const statusOf = (version: string) => ({
  status: 'ok',
  name: 'svc-relay dashboard demo',
  demo: true,
  version,
  auth_required: true,
  auth_flows: ['password'],
});

function redirect(res: ServerResponse, location: string, cookies: string[] = []): void {
  res.writeHead(303, { location, 'cache-control': 'no-store', ...(cookies.length > 0 && { 'set-cookie': cookies }) });
  res.end();
}

function sendText(res: ServerResponse, type: string, body: string | Buffer): void {
  const bytes = Buffer.from(body);
  res.writeHead(200, {
    'content-type': `${type}; charset=utf-8`,
    'content-length': bytes.length,
    'cache-control': 'no-store',
  });
  res.end(res.req.method === 'HEAD' ? undefined : bytes);
}

/** Sends a page, with its links below the proxy's prefix. */
const sendPage = (res: ServerResponse, main: string): void =>
  sendText(res, 'text/html', page(main).replace(/(href|action|src)="\//g, `$1="${prefixOf(res.req)}/`));

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

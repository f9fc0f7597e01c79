import { isLocalCaller, namesLoopbackAddress } from '../../lib/access/loopback.ts';
import { isSecureTransport } from '../../lib/access/peer.ts';
import type { Config } from '../../lib/config.ts';
import { isHost, isLoopbackName, splitUrl } from '../../lib/kit/addresses.ts';
import { acceptedEncoding, type Encoding, type Page, type Pages } from '../../lib/web/pages.ts';
import { isKnown } from '../../lib/web/ranges.ts';
import { WebResponse } from '../../lib/web/response.ts';
import { errorFor } from '../errors.ts';
import { type Handler, pathOf, type RelayRequest } from '../request.ts';

/** Content security policy of both pages (contract 09 §5). xterm inserts style elements, which only the app has. */
const policy = (styleElements: string, others: readonly string[] = []): string =>
  [
    "default-src 'none'",
    "script-src 'self'",
    ["connect-src 'self'", ...others.flatMap((origin) => [origin.replace(/^http/, 'ws'), origin])].join(' '),
    "img-src 'self' blob: data:",
    "media-src 'self' blob:",
    "manifest-src 'self'",
    "worker-src 'self'",
    "style-src 'self'",
    `style-src-elem ${styleElements}`,
    "style-src-attr 'none'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
    "require-trusted-types-for 'script'",
    'trusted-types svc',
  ].join('; ');

const appPolicy = (others?: readonly string[]): string => policy("'self' 'unsafe-inline'", others);

const COMMON = {
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
};
/** Browsers ignore it over plain http, and report that as an error of the page. */
const OPENER = { 'cross-origin-opener-policy': 'same-origin' };

/** The headers of everything below each page. */
const HEADERS: Readonly<Record<string, Record<string, string>>> = {
  app: {
    ...COMMON,
    'content-security-policy': appPolicy(),
    'permissions-policy':
      'camera=(self), microphone=(self), clipboard-read=(self), clipboard-write=(self), publickey-credentials-create=(self), publickey-credentials-get=(self), display-capture=(), geolocation=(), payment=(), usb=()',
  },
  console: {
    ...COMMON,
    'content-security-policy': policy("'self'"),
    'permissions-policy':
      'clipboard-write=(self), camera=(), microphone=(), display-capture=(), geolocation=(), payment=(), usb=()',
  },
};

const IMMUTABLE = 'public, max-age=31536000, immutable';

export interface PageDeps {
  pages: Pages;
  config: Pick<Config, 'serviceWorker'>;
  /** The client's `Accept-Encoding`, if a platform has replaced the header. */
  accepted?: string | null;
  /** True without a secure context: plain http under a name that is not this machine's own. */
  isPlain?: boolean;
  /** Origins to which the app may connect too: the other side of a mirror (contract 12 §3). */
  others?: readonly string[];
}

/** The service worker of the app, and the one that removes it if it is turned off. */
const WORKER = 'app/sw.js';
const NO_WORKER = 'app/sw-off.js';

/** The answer to a `GET` below a page; undefined for a path without a file. */
export async function pageResponse(
  request: Request,
  { pages, config, accepted = request.headers.get('accept-encoding'), isPlain = false, others = [] }: PageDeps,
): Promise<Response | undefined> {
  const [path = ''] = pathOf(request.url).slice(1).split(/[?#]/, 1);
  const known = HEADERS[path.split('/', 1)[0] ?? ''];
  if (!known) return undefined;
  const headers = others.length === 0 ? known : { ...known, 'content-security-policy': appPolicy(others) };
  // Without the slash, the relative addresses in the document would miss the page.
  if (!path.includes('/')) return redirect(`${path}/`);
  const page = await pages.find(path === WORKER && !config.serviceWorker ? NO_WORKER : path);
  return page && fileResponse(request, page, acceptedEncoding(accepted), { ...headers, ...(!isPlain && OPENER) });
}

async function fileResponse(
  request: Request,
  page: Page,
  encoding: Encoding,
  headers: Record<string, string>,
): Promise<Response> {
  const etag = `"${page.hash}${encoding === 'identity' ? '' : `-${encoding}`}"`;
  const all: Record<string, string> = {
    ...headers,
    'cache-control': page.immutable ? IMMUTABLE : 'no-cache',
    vary: 'Accept-Encoding',
    etag,
  };
  if (isKnown(request.headers, etag)) return new WebResponse(null, { status: 304, headers: all });
  all['content-type'] = page.type;
  if (encoding !== 'identity') all['content-encoding'] = encoding;
  return new WebResponse(await page.content(encoding), { headers: all, encodeBody: 'manual' });
}

const redirect = (location: string, status = 302): Response =>
  new WebResponse(null, {
    status,
    headers: { ...COMMON, location, 'cache-control': 'no-cache', 'content-length': '0' },
  });

/** True if a plain `GET /` comes from a browser that wants a page (contract 09 §1). */
export const wantsPage = (request: Request): boolean => /\btext\/html\b/i.test(request.headers.get('accept') ?? '');

export const toApp = (): Response => redirect('app/');

/** The manifest's share target, which other apps post to. */
export const SHARE_PATH = '/app/share';

/**
 * `POST /app/share`: the form was meant for the app's service worker, which was not running. The form is not read; the page
 * reports that.
 */
export const shareMissed = (): Response => redirect('./#/shared?lost=1', 303);

const notFound = (request: RelayRequest): Response => errorFor(request, 404, 'not found');

/**
 * `GET /app/…`: the page for phones. Never served under the address of the console, so that a vulnerability in it does not
 * expose the operator.
 */
export const serveApp: Handler = async (request, relay) => {
  const host = request.headers.get('host');
  if (host !== null && request.peer.via === 'direct' && namesLoopbackAddress(host)) {
    const { protocol } = new URL(`${request.peer.tls ? 'https' : 'http'}://${host}`);
    const port = /:(\d+)$/.exec(host)?.[1];
    return redirect(`${protocol}//localhost${port ? `:${port}` : ''}${pathOf(request.url)}`);
  }
  const edge = relay.homeMirror?.edgePage();
  const deps = { ...relay, isPlain: isPlain(request), others: edge === undefined ? [] : [edge] };
  return (await pageResponse(request, deps)) ?? notFound(request);
};

/** True if the browser used plain http under a name that is not this machine's own. */
function isPlain({ headers, peer }: RelayRequest): boolean {
  // A proxy here may announce https to a relay that does not trust it otherwise.
  if (peer.via !== 'direct' || isSecureTransport(peer, headers, true)) return false;
  return !isLoopbackName(splitUrl(`http://${headers.get('host') ?? ''}`)?.host ?? '');
}

/** `GET /console/…`: the operator's page, for browsers on this host only. */
export const serveConsole: Handler = async (request, relay) => {
  const isOperators = isLocalCaller(request) && namesLoopbackAddress(request.headers.get('host'));
  if (!isOperators) return refusedConsole(request, relay.listener.port);
  return (await pageResponse(request, relay)) ?? notFound(request);
};

/** Tells people on other machines how to reach the console. Without style, since its policy allows only files. */
function refusedConsole({ headers, peer }: RelayRequest, port: number): Response {
  const name = (headers.get('host') ?? '').replace(/:\d+$/, '');
  const target = isHost(name.replace(/^\[|\]$/g, '')) && name !== 'localhost' ? name : 'the-relay-host';
  const address = `${peer.tls ? 'https' : 'http'}://127.0.0.1:${port}/console/`;
  const page = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>svc console</title>
<main>
<h1>The console is for the relay's own machine</h1>
<p>On that machine, open <code>${address}</code>.</p>
<p>From another machine, run this first and leave it open, then open the same address there:</p>
<p><code>ssh -L ${port}:127.0.0.1:${port} ${target}</code></p>
</main>
</html>
`;
  return new WebResponse(page, {
    status: 403,
    headers: { ...HEADERS.console, 'content-type': 'text/html; charset=utf-8', 'cache-control': 'no-store' },
  });
}

import type { Caller } from './caller.ts';
import type { WindowClient, WorkerScope } from './scope.ts';

/**
 * Asks a page for a bearer other than `used`. The page answers through the port that comes with it, with whether there is
 * one.
 */
export interface RenewBearer {
  name: 'renew-bearer';
  used: string;
}

/**
 * Asks the worker to fetch a file that the page then navigates to, in order to save it. The worker answers through the port
 * that comes with it, with the relay's status, 0 for none.
 */
export interface SaveMedia {
  name: 'save-media';
  /** `media/<token>` or `media/by-path?path=…`. */
  route: string;
}

/**
 * Elements that may get a file. It is never served as a document or a frame, since a page of the agent's would run in this
 * origin.
 */
const DESTINATIONS: ReadonlySet<string> = new Set(['audio', 'image', 'video']);
const PASSED_ON = ['range', 'if-range'];
/** Milliseconds for a page to get another bearer, and to navigate to the file that it saves. */
const RENEW_TIMEOUT = 15_000;
const SAVE_TIMEOUT = 15_000;

/**
 * Fetches the relay's media for elements of the page, which cannot send a bearer: `media/<token>` and `media/by-path?path=…`
 * below the app are the relay's routes of that name (contract 04 §3.6, §3.7). Ranges are passed on, bodies are streamed,
 * nothing is stored. `app` is the address of the page.
 */
export function serveMedia(scope: WorkerScope, app: string, caller: Caller): void {
  /** Files that pages are about to save. Two tabs may save the same one. */
  const saves = new Set<{ address: string; take(): Response }>();

  /** For a page of this app only, which is asked for another bearer if the relay does not accept the stored one. */
  async function fetchFor(page: WindowClient | undefined, route: string, init: RequestInit): Promise<Response> {
    if (page?.url.split(/[?#]/)[0] !== app) return Response.error();
    const { response, token } = await caller.fetch(route, init);
    if (response.status !== 401 || token === null || !(await renewed(page, token))) return response;
    await response.body?.cancel();
    return (await caller.fetch(route, init)).response;
  }

  scope.addEventListener('fetch', (event) => {
    const { method, url, destination, mode, headers, signal } = event.request;
    if (method !== 'GET' || !url.startsWith(`${app}media/`)) return;
    const ready = mode === 'navigate' ? [...saves].find(({ address }) => address === url) : undefined;
    if (ready) event.respondWith(Promise.resolve(ready.take()));
    if (!DESTINATIONS.has(destination)) return;
    const own = PASSED_ON.flatMap((name) => (headers.has(name) ? [[name, headers.get(name) as string] as const] : []));
    const init = { headers: Object.fromEntries(own), signal };
    event.respondWith(
      scope.clients
        .get(event.clientId)
        .then((page) => fetchFor(page, url.slice(app.length), init))
        .then(asOwn),
    );
  });

  scope.addEventListener('message', (event) => {
    const { data, source, ports } = event;
    const [port] = ports;
    if (data?.name === 'save-media' && port) event.waitUntil(save(source, (data as SaveMedia).route, port));
  });

  /** Fetches a file, and holds it until the page requests it. */
  async function save(page: WindowClient, route: string, port: MessagePort): Promise<void> {
    const address = `${app}${route}`;
    const abort = new AbortController();
    const response = await fetchFor(page, route, { signal: abort.signal }).catch(() => Response.error());
    if (!response.ok || !address.startsWith(`${app}media/`)) {
      abort.abort();
      return port.postMessage(response.status);
    }
    await new Promise<void>((resolve) => {
      const end = () => {
        clearTimeout(timer);
        saves.delete(ready);
        resolve();
      };
      const timer = setTimeout(() => {
        abort.abort();
        end();
      }, SAVE_TIMEOUT);
      const ready = {
        address,
        take() {
          end();
          return attachment(response);
        },
      };
      saves.add(ready);
      port.postMessage(response.status);
    });
  }
}

/** Without the address of a home of another origin, whose pictures and sound the policy of the page does not allow. */
const asOwn = (response: Response): Response =>
  response.type === 'cors' ? new Response(response.body, response) : response;

/** A file of any type, in a form that the browser saves. */
function attachment({ body, headers }: Response): Response {
  const disposition = headers.get('content-disposition') ?? '';
  const length = headers.get('content-length');
  return new Response(body, {
    headers: {
      'content-type': 'application/octet-stream',
      'content-disposition': `attachment${disposition.replace(/^[^;]*/, '')}`,
      'content-security-policy': "default-src 'none'; sandbox",
      'cache-control': 'no-store',
      'x-content-type-options': 'nosniff',
      ...(length !== null && { 'content-length': length }),
    },
  });
}

/** Only a page may renew the pairing, since two concurrent renewals would lose it. */
function renewed(page: WindowClient, used: string): Promise<boolean> {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    const end = (isRenewed: boolean) => {
      clearTimeout(timer);
      port1.close();
      resolve(isRenewed);
    };
    const timer = setTimeout(() => end(false), RENEW_TIMEOUT);
    port1.onmessage = ({ data }) => end(data === true);
    page.postMessage({ name: 'renew-bearer', used } satisfies RenewBearer, [port2]);
  });
}

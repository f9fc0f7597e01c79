import { errorFor } from '../../../handlers/errors.ts';
import { createPathCheck } from '../../../handlers/routes.ts';
import { type SocketRow, sockets } from '../../../handlers/sockets.ts';
import { pageResponse, SHARE_PATH, shareMissed, toApp, wantsPage } from '../../../handlers/web/serve.ts';
import { type Config, variables } from '../../../lib/config.ts';
import { describeError } from '../../../lib/errors.ts';
import { isLoopbackName } from '../../../lib/kit/addresses.ts';
import { type Clock, systemClock } from '../../../lib/kit/clock.ts';
import { errorResponse } from '../../../lib/web/json.ts';
import { createPages, type LoadPages } from '../../../lib/web/pages.ts';
import { CLAIM_PATH, TENANTS_PATH, type TenantEnv, tenantCall, tenantObjectOf } from './tenants.ts';

export type EntryEnv = TenantEnv;

/** Determines which relay of a deployment answers (contract 01 §12). */
export type Naming = Pick<Config, 'relayName' | 'relayHosts' | 'publicUrl'> & {
  /** True if other names may belong to tenants. */
  hasTenants?: boolean;
};

/** Files of the app that are served with its policy: the document and the service worker. */
const WITH_POLICY = /^\/app\/(?:sw\.js)?$/;

/** Variables of the deployment that the Worker itself reads. */
export type Settings = Naming & Pick<Config, 'serviceWorker'>;

/** The variables of a deployment, without its bindings. */
export const textsOf = (env: Record<string, unknown>): Record<string, string> =>
  Object.fromEntries(Object.entries(env).filter((entry): entry is [string, string] => typeof entry[1] === 'string'));

/** @throws RelayError `invalid` for a bad `RELAY_PUBLIC_URL`. */
export function readSettings(env: Record<string, unknown>): Settings {
  const reading = {
    env: textsOf(env),
    directories: { home: '', agentHome: '' },
    // Logged by the object instead.
    warn: () => {},
  };
  return {
    relayName: variables.relayName.read(reading),
    relayHosts: variables.relayHosts.read(reading),
    publicUrl: variables.publicUrl.read(reading),
    serviceWorker: variables.serviceWorker.read(reading),
    hasTenants: env.TENANTS !== undefined,
  };
}

/** The two usual names for this machine. */
const LOCAL = ['localhost', '127.0.0.1'];

/** The name of the relay that answers for a host, or undefined if none does. */
export function relayNameOf(hostname: string, naming: Naming): string | undefined {
  const { relayName, relayHosts, publicUrl, hasTenants } = naming;
  const names = LOCAL.includes(hostname) ? LOCAL : [hostname];
  const listed = names.map((name) => relayHosts?.get(name)).find((name) => name !== undefined);
  if (listed !== undefined) return listed;
  if (LOCAL.includes(hostname)) return relayName;
  if (publicUrl !== undefined && new URL(publicUrl).hostname === hostname) return relayName;
  return relayHosts || publicUrl !== undefined || hasTenants ? undefined : relayName;
}

/**
 * The stateless Worker: passes a request to the object of its relay. It refuses hosts and paths that a stranger may invent,
 * and serves the pages itself, since an object costs memory, storage and money from its first request on.
 */
export function createEntry(
  loadPages: LoadPages,
  rows: readonly SocketRow[] = sockets,
  clock: Pick<Clock, 'now'> = systemClock,
) {
  const isServed = createPathCheck(rows);
  const pages = createPages(loadPages);
  const homePagesOf = createHomePages(clock);

  /** Answers requests that need no relay; undefined for all others. */
  async function staticAnswer(
    request: Request,
    { pathname }: URL,
    config: Settings,
    homePages: () => Promise<readonly string[]>,
  ): Promise<Response | undefined> {
    if (request.method === 'POST' && pathname === SHARE_PATH) return shareMissed();
    if (request.method !== 'GET' && request.method !== 'HEAD') return undefined;
    if (pathname === '/' && !request.headers.has('upgrade') && wantsPage(request)) return toApp();
    if (!/^\/(?:app|console)(?:\/|$)/.test(pathname)) return undefined;
    const others = WITH_POLICY.test(pathname) ? await homePages() : [];
    return (
      (await pageResponse(request, { pages, config, accepted: clientEncoding(request), others })) ??
      errorFor({ url: request.url }, 404, 'not found')
    );
  }

  function refusal(url: URL, name: string | undefined, config: Settings): Response | undefined {
    if (name === undefined) {
      const [status, subject] = config.hasTenants ? [404, 'no relay answers'] : [421, 'this relay does not answer'];
      return errorResponse(status as number, `${subject} for that host name`);
    }
    if (url.protocol === 'http:' && !isLoopbackName(url.hostname)) {
      const location = Object.assign(new URL(url), { protocol: 'https:' }).href;
      return errorResponse(308, 'use https', { location });
    }
    return isServed(url.pathname) ? undefined : errorFor({ url: url.href }, 404, 'not found');
  }

  /** True for calls about tenants that the Worker itself answers. A relay of the deployment has none. */
  const isTenantCall = ({ protocol, pathname, hostname }: URL, own: string | undefined, config: Settings): boolean =>
    config.hasTenants === true &&
    (pathname === TENANTS_PATH || (pathname === CLAIM_PATH && own === undefined)) &&
    (protocol === 'https:' || isLoopbackName(hostname));

  return {
    async fetch(request: Request, env: EntryEnv): Promise<Response> {
      const url = new URL(request.url);
      const settings = readSettings(env);
      const own = relayNameOf(url.hostname, settings);
      if (isTenantCall(url, own, settings)) {
        const answer = await tenantCall(request, env);
        await drain(request);
        return answer;
      }
      let name = own;
      try {
        name ??= await tenantObjectOf(url.hostname, env);
      } catch (error) {
        await drain(request);
        return errorResponse(503, describeError(error));
      }
      const pages = async () => (name === undefined ? [] : homePagesOf(name, env));
      const refused = refusal(url, name, settings) ?? (await staticAnswer(request, url, settings, pages));
      if (refused || name === undefined) {
        await drain(request);
        return refused as Response;
      }
      const stub = env.RELAY.get(env.RELAY.idFromName(name));
      return stub.fetch(request as never) as unknown as Promise<Response>;
    },
  };
}

/** Maximum relays whose home addresses a Worker caches, and milliseconds for which it does. */
const MAX_CACHED = 1000;
const CACHE_TIME = 60_000;

/**
 * The home addresses in the app's policy, by relay. Cached for a minute, so that page loads do not wake its object. Without
 * an answer, the app starts without them.
 */
function createHomePages(clock: Pick<Clock, 'now'>) {
  // Caches answers rather than calls, since a request cannot await the call of another one.
  const cache = new Map<string, { origins: readonly string[]; until: number }>();
  return async (name: string, { RELAY }: EntryEnv): Promise<readonly string[]> => {
    const known = cache.get(name);
    if (known && clock.now() < known.until) return known.origins;
    const stub = RELAY.get(RELAY.idFromName(name)) as unknown as { homePages(): Promise<string[]> };
    const origins = await stub.homePages().catch(() => undefined);
    cache.delete(name);
    if (!origins) return [];
    cache.set(name, { origins, until: clock.now() + CACHE_TIME });
    const [oldest] = cache.keys();
    if (oldest !== undefined && cache.size > MAX_CACHED) cache.delete(oldest);
    return origins;
  };
}

/** The client's own `Accept-Encoding`, since the platform replaces the header and re-encodes responses for the client. */
function clientEncoding(request: Request): string | null | undefined {
  const { cf } = request as { cf?: { clientAcceptEncoding?: string } };
  return cf && (cf.clientAcceptEncoding ?? null);
}

/** Maximum bytes of an unread body to discard, and milliseconds for which the response waits for them. */
const UNREAD_LIMIT = 1024 * 1024;
const UNREAD_WAIT = 250;

/**
 * Discards a small unread body; otherwise the platform would drop the connection, and with it the next requests. After the
 * response the body can no longer be read.
 */
export async function drain({ body, bodyUsed, headers }: Request): Promise<void> {
  if (!body || bodyUsed || body.locked || Number(headers.get('content-length')) > UNREAD_LIMIT) return;
  const reader = body.getReader();
  const timer = setTimeout(() => reader.cancel().catch(() => {}), UNREAD_WAIT);
  let size = 0;
  try {
    for (let part = await reader.read(); !part.done && size <= UNREAD_LIMIT; part = await reader.read()) {
      size += part.value.byteLength;
    }
    await reader.cancel();
  } catch {
    // The client has disconnected.
  } finally {
    clearTimeout(timer);
  }
}

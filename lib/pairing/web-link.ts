import { hasPublicName } from '../kit/addresses.ts';
import { asObject, parseObject } from '../kit/json.ts';

/** Grants that a browser gets only if they are named, since it is neither a phone nor a desktop (contract 09 §5). */
export const NOT_FOR_BROWSERS: readonly string[] = ['bridge', 'desktop'];

/**
 * The address of the app with the code of a payload and the secret beside it, `<base>/app/#code=ABC123&secret=…` (contract
 * 09 §5). The base is `published` if given, else the first route whose TLS a browser can verify, on which a page has the
 * most features, else the first route. Browsers cannot use pinned routes. `local` is the relay's port if only this machine
 * reaches it.
 */
export function pageLink(
  payload: string,
  { published, local }: { published?: string; local?: { port: number; tls: boolean } } = {},
): string {
  const { relay, endpoints } = parseObject(payload) ?? {};
  const { url: direct, code, secret } = asObject(relay) ?? {};
  const fragment = `#code=${code}${typeof secret === 'string' ? `&secret=${secret}` : ''}`;
  if (published !== undefined) return `${published.replace(/\/+$/, '')}/app/${fragment}`;
  const routes = Array.isArray(endpoints) ? endpoints.map(asObject) : [];
  const open = routes.filter((route) => route && !route.proxy && !route.broker);
  const urls = [...open.map((route) => asObject(route?.relay)?.url), direct].filter((url) => typeof url === 'string');
  const own = local && `${local.tls ? 'wss' : 'ws'}://localhost:${local.port}`;
  const secure = urls.find((url) => hasPublicName(url));
  const url = secure ?? own ?? urls[0] ?? '';
  return `${url.replace(/^ws/i, 'http').replace(/\/(?:ws\/?)?$/, '')}/app/${fragment}`;
}
